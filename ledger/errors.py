"""
Every error the ledger raises on purpose.

LedgerError
├── BadInput                 invalid input: it can never be recorded; nothing was sent
│   ├── BadName              a stream name, key part, topic or id that cannot be used
│   ├── BadBody              a body that PostgreSQL would change or refuse
│   ├── BadFile              a file that is malformed; names the place
│   ├── UnknownFlag          an item of this level has no such flag
│   ├── UnknownView          no class of this process declares a view of this name
│   ├── UnknownMachine       no machine of this name is defined
│   ├── BadDefinition        a machine's table contradicts itself
│   │   ├── InvalidState     no such state, or two initial states
│   │   ├── InvalidTransition       no such transition in the table
│   │   ├── InvalidCallback  a callback cannot be called
│   │   └── StateConstantConflict   two states that are equal in upper case
│   ├── UnknownOperation     no operation is registered under this name
│   ├── BadPayload           a payload does not fit the model of its operation
│   ├── BadRecord            fields of a record do not fit its kind
│   ├── BadParameters        parameters do not fit the schema of a deployment
│   ├── BadMetadata          the metadata of a move does not fit the model of the transition
│   ├── WrongIdent           an ident of another kind than the one that is needed here
│   └── InvalidAstHashKeyError   the key of a fingerprint has an empty part, a NUL, or is too long
├── Refused                  the ledger refused a valid request; nothing was stored
│   ├── MoveNotAllowed       the domain does not allow this move
│   │   └── TransitionFailed the machine has no transition from the present state to that one
│   ├── GuardRefused         a guard of a machine refused the move
│   ├── BadTable             a table of transitions of another system contradicts itself
│   ├── StreamConflict       another writer came first: load again and decide again
│   │   └── TransitionConflict      another writer moved the object first
│   ├── GuardFailed          status or lease token is not what the guard requires
│   ├── CommandReused        this command id already recorded something else
│   ├── EffectFailed         a registered inline effect raised; the append is undone
│   ├── AlreadyOpen          this stream is open in this scope already
│   ├── BeingBuilt           another process is building this view
│   ├── GroupRuns            consumers of this group run: stop them first
│   ├── DefinitionChanged    the view was built by another definition: rebuild it
│   ├── FedFromElsewhere     the view is fed with the events of another ledger: its own log cannot build it
│   ├── EventsMissing        the view lacks events before those that were handed in
│   ├── ViewsDiffer          the rebuilt view differs from the live one by more than was allowed
│   ├── ClaimLost            the work was taken over, ended or undone before it finished
│   │   └── WorkStopped      the job was cancelled or its lease lost: the operation must stop
│   ├── DuplicateJob         a job with the same deduplication key is queued or running
│   ├── TokenExists          a token of this name was added before
│   ├── RecordExists         another record of this kind has the same name or id
│   ├── RecordProtected      the record is the server's own, or another needs it
│   ├── StageAlreadyRunningError another runner has a claim on this stage of a build
│   └── LockLost             the lock of a scope was lost, and others may have changed what it read
├── JobUnsuccessful          a job whose result was requested did not succeed
├── StreamNotFound           nothing is recorded under this name
├── TokenNotFound            no token has this name
├── RecordNotFound           no record of this kind has this id or name, or it was deleted
│   └── RunNotFound          no flow run or task run has this id, or it was deleted
├── RuleError                a rule of a policy did what the engine does not allow
├── BadKey                   a key of encrypted values is missing, or cannot be used
├── UnreadableEvent          an event does not match its topic, or cannot be applied to its stream's state
├── CursorMismatch           the cursor is of another ledger, or of a history that was rolled back
├── ReactionFailed           a reactor stopped before an event, because its reaction failed
├── ViewFailed               a view cannot be followed or built, because its own statements fail
│   └── TablesMissing        tables of a view are missing: rebuild it
├── KafkaFailed              what goes through Kafka cannot go on
│   ├── KafkaUnavailable     the cluster cannot be used at the moment; the message says why
│   ├── TopicMismatch        the topics are not those that the checkpoint or the ledger says
│   ├── ChainBroken          a record of a topic is missing
│   └── Undecodable          a record that is no event of a ledger, or does not fit its model
├── StateDBError             the state of a build cannot be read or written in its local copy
│   ├── PathTooLongError     the key of a path or name is longer than the store takes
│   ├── DatabaseFullError    the local copy cannot grow: the disk or its limit is full
│   ├── StateDBClosed        the store is closed
│   └── StateDBReadonly      the store was opened for reading only
├── SchemaMismatch           the database and this code do not fit; run `pledger init`
├── DamagedLedger            the database contradicts itself; nothing more is appended
└── ServerUnavailable        the server cannot be used at the moment
    ├── AppendUncertain      the connection broke during an append without a command id
    ├── LedgerBusy           no connection, lock or answer within the time allowed
    │   └── LockTimeout      a scope that is open elsewhere did not end within the time allowed
    ├── ReadOnly             the server takes no writes (a standby, or a read-only database)
    ├── NoPermission         the connected role may not do this
    └── StorageFull          the server's disk is full
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class LedgerError(Exception):
    """Base class of all errors of the ledger."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that a process pool can return errors."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[LedgerError], said: tuple[Any, ...]) -> LedgerError:
    return kind.__new__(kind, *said)


class BadInput(LedgerError, ValueError):
    """Invalid input: it can never be recorded; nothing was sent."""


class BadName(BadInput):
    """A stream name, key part, topic or id that cannot be used."""

    def __init__(self, what: str, value: object, wrong: str) -> None:
        super().__init__(f"{what} {shown(value)} {wrong}")
        self.what, self.value, self.wrong = what, value, wrong


class BadBody(BadInput):
    """A body that PostgreSQL would change or refuse; `path` is the place in it."""

    def __init__(self, wrong: str, path: str = "") -> None:
        super().__init__(f"{_clipped(path)}: {wrong}" if path else wrong)
        self.wrong, self.path = wrong, path


class BadFile(BadInput):
    """A file that is malformed; `place` is the place in it."""

    def __init__(self, file: str, place: str, wrong: str) -> None:
        super().__init__(f"{file}, {place}: {wrong}" if place else f"{file}: {wrong}")
        self.file, self.place, self.wrong = file, place, wrong


class UnknownFlag(BadInput, AttributeError):
    """An item of this level has no such flag."""

    def __init__(self, flag: str, level: str, flags: Iterable[str]) -> None:
        super().__init__(f"{flag!r} is not a flag of {level}; its flags: {', '.join(flags) or 'none'}")
        self.flag, self.level = flag, level


class UnknownView(BadInput):
    """No class of this process declares a view of this name."""

    def __init__(self, view: str, known: Iterable[str]) -> None:
        super().__init__(
            f"no view is named {shown(view)}; known views: {', '.join(sorted(known)) or 'none'}; import the "
            "module that declares it"
        )
        self.view = view


class UnknownMachine(BadInput):
    """No machine of this name is defined, in the ledger or in this process."""

    def __init__(self, machine: str, known: Iterable[str]) -> None:
        super().__init__(
            f"no machine is named {shown(machine)}; known machines: {', '.join(sorted(known)) or 'none'}; a "
            "machine is known after the first move of an object, or when its module is imported"
        )
        self.machine = machine


class BadDefinition(BadInput):
    """A machine's table contradicts itself."""


class InvalidState(BadDefinition):
    """No such state, or two initial states."""


class InvalidTransition(BadDefinition):
    """No such transition in the table."""


class InvalidCallback(BadDefinition):
    """A callback cannot be called."""


class StateConstantConflict(BadDefinition):
    """Two states that are equal in upper case."""

    def __init__(self, constant: str, state: str, other: object) -> None:
        super().__init__(
            f"state {shown(state)} needs the constant {constant}, which {shown(other)} has already"
        )
        self.constant, self.state, self.other = constant, state, other


class UnknownOperation(BadInput, KeyError):
    """No operation is registered under this name (spec S1-14)."""

    def __init__(self, operation: str, known: Iterable[str]) -> None:
        super().__init__(
            f"Unknown operation: {shown(operation)}; known operations: "
            f"{', '.join(sorted(known)) or 'none'}; register it, or give the worker the "
            "registry that contains it"
        )
        self.operation = operation

    __str__ = Exception.__str__  # KeyError's shows the repr


class BadPayload(BadInput):
    """A payload does not fit the model of its operation (spec S1-12)."""

    def __init__(self, operation: str, model: str, wrong: Iterable[str]) -> None:
        self.operation, self.model, self.wrong = operation, model, tuple(wrong)
        super().__init__(f"the payload for {operation} does not fit {model}: {'; '.join(self.wrong)}")


class BadRecord(BadInput):
    """Fields of a record do not fit its kind. wrong: what is wrong, a text for each field."""

    def __init__(self, kind: str, wrong: Iterable[str]) -> None:
        self.kind, self.wrong = kind, tuple(wrong)
        super().__init__(f"the fields do not fit a {kind.replace('_', ' ')}: {'; '.join(self.wrong)}")


class BadParameters(BadInput):
    """Parameters or job variables do not fit the schema of a deployment, or the schema is invalid.

    what: what does not fit; wrong: what is wrong, a text for each place.
    """

    def __init__(self, what: str, wrong: Iterable[str]) -> None:
        self.what, self.wrong = what, tuple(wrong)
        super().__init__(f"{what}: {'; '.join(self.wrong)}")


class BadMetadata(BadInput):
    """The metadata of a move does not fit the model of the transition."""

    def __init__(self, from_state: str | None, to_state: str, model: str, wrong: Iterable[str]) -> None:
        self.from_state, self.to_state, self.model, self.wrong = from_state, to_state, model, tuple(wrong)
        super().__init__(
            f"the metadata of the move from {from_state or 'nothing'} to {to_state} does not fit {model}: "
            f"{'; '.join(self.wrong)}"
        )


class WrongIdent(BadInput, TypeError):
    """An ident of another kind than the one that is needed here."""


class InvalidAstHashKeyError(BadInput):
    """The key of a fingerprint has an empty part, a NUL in a part, or is too long (spec S4-15)."""

    def __init__(self, part: str, value: object, wrong: str) -> None:
        super().__init__(f"the fingerprint's {part} {shown(value)} {wrong}")
        self.part, self.value, self.wrong = part, value, wrong


class Refused(LedgerError):
    """The ledger refused a valid request; nothing was stored."""


class MoveNotAllowed(Refused):
    """The domain does not allow this move."""

    def __init__(self, old: str | None, new: str, allowed: Iterable[str] = ()) -> None:
        self.old, self.new, self.allowed = old, new, tuple(sorted(allowed))
        way = f"; allowed from there: {', '.join(self.allowed)}" if self.allowed else ""
        super().__init__(f"cannot move from {old or 'nothing'} to {new}{way}")


class TransitionFailed(MoveNotAllowed):
    """The machine has no transition from the present state to that one (spec S2-35).

    is_gone: the definition no longer has the present state.
    """

    def __init__(
        self, machine: str, old: str | None, new: str, allowed: Iterable[str] = (), *, is_gone: bool = False
    ) -> None:
        super().__init__(old, new, allowed)
        self.machine, self.from_state, self.to_state, self.is_gone = machine, old, new, is_gone
        way = f"; allowed from there: {', '.join(self.allowed)}" if self.allowed else ""
        if is_gone:
            way = (
                f": the definition no longer has the state '{old}'; declare it with a transition out, such "
                f"as From('{old}').To('{new}')"
            )
        start = "nothing" if old is None else f"'{old}'"
        self.args = (f"{machine}: Cannot transition from {start} to '{new}'{way}",)


class GuardRefused(Refused):
    """A guard of a machine refused the move from `from_state` to `to_state` (spec W2-06)."""

    def __init__(self, machine: str, old: str | None, new: str, guard: str, place: str = "") -> None:
        super().__init__(
            f"{machine}: Guard on transition from: '{old}' to '{new}' returned false: {guard}"
            + (f" ({place})" if place else "")
        )
        self.machine, self.from_state, self.to_state, self.guard, self.place = machine, old, new, guard, place


class BadTable(Refused):
    """A table of transitions of another system contradicts itself; `faults` name the first of its rows."""

    def __init__(self, table: str, many: int, faults: Iterable[str]) -> None:
        self.table, self.many, self.faults = table, many, tuple(faults)
        more = "" if many <= len(self.faults) else f"; and {many - len(self.faults)} more"
        super().__init__(f"{table} has {many} errors: {'; '.join(self.faults)}{more}")


class StreamConflict(Refused):
    """Another writer came first: load again and decide again."""

    def __init__(self, stream: str, expected: str, found: int) -> None:
        super().__init__(
            f"{stream}: expected {expected}, found version {found}; load it again and decide again"
        )
        self.stream, self.expected, self.found = stream, expected, found


class TransitionConflict(StreamConflict):
    """Another writer moved the object first: load it and decide again (spec S2-12, S2-13).

    in_transaction: the caller's own transaction keeps its old snapshot; run the whole transaction again.
    """

    def __init__(
        self, stream: str, expected: str, found: int, to_state: str | None, *, in_transaction: bool = False
    ) -> None:
        super().__init__(stream, expected, found)
        self.to_state, self.in_transaction = to_state, in_transaction
        move = "a move" if to_state is None else f"the move to {to_state}"
        way = "roll back this transaction and run it" if in_transaction else "load it again and decide"
        self.args = (
            f"{stream}: another writer moved it before {move} was recorded "
            f"(expected {expected}, found version {found}); {way} again",
        )


class GuardFailed(Refused):
    """The stream's status or lease token is not what the guard requires."""

    def __init__(self, stream: str, wanted: str, found: str) -> None:
        super().__init__(f"{stream}: the guard requires {wanted}, found {found}")
        self.stream, self.wanted, self.found = stream, wanted, found


class CommandReused(Refused):
    """This command id already recorded something else."""

    def __init__(self, command: str) -> None:
        super().__init__(f"command {command!r} already recorded other content; use a new command id")
        self.command = command


class EffectFailed(Refused):
    """A registered inline effect raised; the append is undone."""

    def __init__(self, effect: str, reason: str) -> None:
        super().__init__(f"inline effect {effect!r} refused the append: {reason}")
        self.effect, self.reason = effect, reason


class AlreadyOpen(Refused):
    """This stream is open in this scope already."""

    def __init__(self, stream: str, scope: str, way: str = "use the object that is open") -> None:
        super().__init__(f"{stream} is already open in {scope}; {way}")
        self.stream, self.scope = stream, scope


class BeingBuilt(Refused):
    """Another process is building this view."""

    def __init__(self, view: str) -> None:
        super().__init__(f"another process is building view {view}; wait for it, or stop it")
        self.view = view


class GroupRuns(Refused):
    """Consumers of this group run, so its offsets cannot be set. hosts: where they run."""

    def __init__(self, group: str, hosts: Iterable[str]) -> None:
        self.group, self.hosts = group, tuple(hosts)
        super().__init__(
            f"group {group} has {len(self.hosts)} members, on {', '.join(sorted(set(self.hosts)))}: stop "
            "them first; a member that was killed is gone after its session, about 10 seconds"
        )


class DefinitionChanged(Refused):
    """The view was built by another definition than that of this code."""

    def __init__(self, view: str, copy: int) -> None:
        super().__init__(
            f"copy {copy} of view {view} was built by another definition: run `pledger rebuild {view}`, or "
            "the code that built it"
        )
        self.view, self.copy = view, copy


class FedFromElsewhere(Refused):
    """The view is fed with the events of another ledger: its own log cannot build it."""

    def __init__(self, view: str, source: object) -> None:
        super().__init__(
            f"view {view} is fed with the events of ledger {source}, which this log does not have: to "
            f"build it anew from Kafka, run `pledger views feed {view} --anew`"
        )
        self.view, self.source = view, source


class EventsMissing(Refused):
    """The view lacks events before those that were handed in: read them from the log first."""

    def __init__(self, view: str, position: int, after: int) -> None:
        super().__init__(
            f"view {view} is at position {position}, but the given events start after {after}: give the "
            "events in between first; read them from the log"
        )
        self.view, self.position, self.after = view, position, after


class ViewsDiffer(Refused):
    """The rebuilt view differs from the live one by more rows than was allowed; the live one stays."""

    def __init__(self, view: str, rows: int, most: int) -> None:
        super().__init__(
            f"view {view}: {rows} rows differ between the rebuilt copy and the live one, more than the "
            f"{most} allowed; the live copy stays"
        )
        self.view, self.rows, self.most = view, rows, most


class ClaimLost(Refused):
    """The work was taken over, ended or undone before it finished: its result is discarded."""

    def __init__(self, stream: str, work: str) -> None:
        super().__init__(
            f"{stream}: {work} was taken over, ended or undone meanwhile; its result is discarded"
        )
        self.stream, self.work = stream, work


class WorkStopped(ClaimLost):
    """The job was cancelled, or its lease was lost: the operation must stop; its result is discarded."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(stream, "the claim")
        self.reason = reason
        self.args = (f"{stream}: {reason}; stop working on it: its result will be discarded",)


class DuplicateJob(Refused):
    """A job with the same deduplication key is queued or running (spec S1-71)."""

    def __init__(self, key: str, job: str) -> None:
        super().__init__(
            f"job {job} with the deduplication key {key} is queued or running: wait for it, or cancel it"
        )
        self.key, self.job = key, job


class TokenExists(Refused):
    """A token of this name was added before; the name of a revoked one is not used again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a token named {shown(name)} was added before: choose a name that was never used")
        self.name = name


class RecordExists(Refused):
    """Another record of this kind has the same name or id. name: its parts; id: of the one that has it."""

    def __init__(self, kind: str, name: Iterable[str], id: str) -> None:
        self.kind, self.name, self.id = kind, tuple(name), id
        said = " / ".join(self.name)
        super().__init__(
            f"a {kind.replace('_', ' ')} {shown(said)} exists already ({id}): change that one, or choose "
            "another name"
        )


class RecordProtected(Refused):
    """The record is the server's own, or another needs it: it cannot be changed so. why: the reason."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        self.kind, self.name, self.why = kind, name, why
        super().__init__(f"{kind.replace('_', ' ')} {shown(name)} {why}")


class StageAlreadyRunningError(Refused):
    """Another runner has a claim on this stage of a build (spec S4-42). token: of that claim."""

    def __init__(self, stage: str, runner: str, token: int) -> None:
        super().__init__(
            f"stage {stage} is already running ({runner}, token {token}): wait for it; once its lease has "
            "run out, a run takes it over"
        )
        self.stage, self.runner, self.token = stage, runner, token


class LockLost(Refused):
    """The lock of a scope was lost (its connection ended), and others may have changed what it read."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"{stream}: the lock of this scope was lost, so what it read may have changed; nothing was "
            "stored: open it again and decide again"
        )
        self.stream = stream


class JobUnsuccessful(LedgerError):
    """A job whose result was requested did not succeed. error_code, message: set where it failed."""

    def __init__(
        self, job: str, status: str, error_code: str | None = None, message: str | None = None
    ) -> None:
        why = f": {error_code}: {message}" if error_code else ""
        super().__init__(f"job {job} is {status}{why}")
        self.job, self.status, self.error_code, self.message = job, status, error_code, message


class StreamNotFound(LedgerError):
    """Nothing is recorded under this name."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"no event is recorded under {shown(stream)}")
        self.stream = stream


class TokenNotFound(LedgerError):
    """No token has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no token is named {shown(name)}; `pledger token list` lists them")
        self.name = name


class RecordNotFound(LedgerError):
    """No record of this kind has this id or name, or it was deleted."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"no {kind.replace('_', ' ')} has the id or name {shown(id)}")
        self.kind, self.id = kind, id


class RunNotFound(RecordNotFound):
    """No flow run or task run has this id, or it was deleted. kind: `flow run` or `task run`."""


class RuleError(LedgerError, RuntimeError):
    """A rule of a policy did what the engine does not allow: it acted after the state was fixed, or it
    rejected a proposal without naming a state although the run has none (spec S3-43).
    """


class BadKey(LedgerError):
    """A key of encrypted values is missing, or cannot be used. The message never shows a key."""


class UnreadableEvent(LedgerError):
    """An event does not match its topic, or `evolve` fails on it; `__cause__` is the original error.

    topic, why; stream, version and position where they are known.
    """

    def __init__(
        self,
        topic: str,
        why: str,
        *,
        stream: str | None = None,
        version: int | None = None,
        position: int | None = None,
    ) -> None:
        self.topic, self.why = topic, why
        self.stream, self.version, self.position = stream, version, position
        places = [f"version {version}"] * (version is not None) + [f"position {position}"] * bool(position)
        where = f"{shown(stream)}, {', '.join(places) or 'an event'}: " if stream is not None else ""
        super().__init__(f"{where}{topic} {why}")

    def at(self, stream: str, version: int | None = None, position: int | None = None) -> UnreadableEvent:
        """The same error with the place of the event."""
        placed = type(self)(self.topic, self.why, stream=stream, version=version, position=position)
        placed.__cause__ = self.__cause__
        return placed


class CursorMismatch(LedgerError):
    """The cursor is of another ledger, or of a history that was rolled back."""

    def __init__(self, wrong: str) -> None:
        super().__init__(f"{wrong}; rebuild the reader from the start, or restore the ledger that it read")
        self.wrong = wrong


class ReactionFailed(LedgerError):
    """A reactor stopped before an event, because its reaction failed; `__cause__` is the original error."""

    def __init__(self, reactor: str, position: int, topic: str, cause: BaseException) -> None:
        super().__init__(
            f"reactor {reactor} failed on the event at position {position} ({topic}): "
            f"{type(cause).__name__}: {_clipped(str(cause))}; fix the cause and start it again: it "
            "continues with this event"
        )
        self.reactor, self.position, self.topic = reactor, position, topic


class ViewFailed(LedgerError):
    """A view cannot be followed or built, because its own statements fail; `__cause__` is the error."""

    def __init__(self, view: str, reason: str) -> None:
        super().__init__(f"view {view} fails: {reason}; fix its definition, then rebuild it")
        self.view, self.reason = view, reason


class TablesMissing(ViewFailed):
    """Tables of a view are missing; `pledger rebuild` rebuilds them from the log."""

    def __init__(self, view: str, tables: Iterable[str]) -> None:
        self.tables = tuple(tables)
        reason = f"its tables {', '.join(self.tables)} are missing"
        super().__init__(view, reason)
        self.args = (f"view {view} cannot be read: {reason}; run `pledger rebuild {view}`",)


class KafkaFailed(LedgerError):
    """What goes through Kafka cannot go on."""


class KafkaUnavailable(KafkaFailed):
    """The cluster cannot be used at the moment; the message contains the reason and a remedy."""


class TopicMismatch(KafkaFailed):
    """The topics are not those that the checkpoint or the ledger says: a person must decide.

    topic: the topic, or the prefix of all of them. differs: what differs. remedy: what to do.
    """

    def __init__(self, topic: str, differs: str, remedy: str) -> None:
        super().__init__(f"{topic}: {differs}; {remedy}")
        self.topic, self.differs, self.remedy = topic, differs, remedy


class ChainBroken(KafkaFailed):
    """A record of a topic is missing: the chain of positions does not fit.

    expected: the position of the record before it; found: the one that the record names.
    """

    def __init__(self, topic: str, partition: int, offset: int, expected: int, found: int) -> None:
        super().__init__(
            f"{topic}, partition {partition}, offset {offset}: the record follows position {found}, but the "
            f"one before it was at {expected}; run `pledger relay verify`"
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.expected, self.found = expected, found


class Undecodable(KafkaFailed):
    """A record that is no event of a ledger, or whose body does not fit its model."""

    def __init__(self, topic: str, partition: int, offset: int, wrong: str) -> None:
        super().__init__(f"{topic}, partition {partition}, offset {offset}: {wrong}")
        self.topic, self.partition, self.offset, self.wrong = topic, partition, offset, wrong


class StateDBError(LedgerError):
    """The state of a build cannot be read or written in its local copy (spec S4-04)."""


class PathTooLongError(StateDBError, ValueError):
    """The key of a path or name is longer than the store takes (spec S4-04). size, most: in bytes."""

    def __init__(self, path: str, size: int, most: int) -> None:
        super().__init__(f"the key of {shown(path)} has {size} bytes, more than the maximum of {most}")
        self.path, self.size, self.most = path, size, most


class DatabaseFullError(StateDBError):
    """The local copy cannot grow: the disk is full, or its limit is reached (spec S4-04)."""

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(
            f"the local copy {folder} cannot grow: {reason}; free some space, or delete {folder}: it is made "
            "again from the ledger"
        )
        self.folder, self.reason = folder, reason


class StateDBClosed(StateDBError, RuntimeError):
    """The store is closed (spec S4-03)."""

    def __init__(self) -> None:
        super().__init__("Cannot operate on closed StateDB: open it again")


class StateDBReadonly(StateDBError, RuntimeError):
    """The store was opened for reading only (spec S4-02)."""

    def __init__(self, method: str) -> None:
        super().__init__(f"Cannot call {method} on a readonly StateDB: open it without readonly=True")
        self.method = method


class SchemaMismatch(LedgerError):
    """The database and this code do not fit."""


class DamagedLedger(LedgerError):
    """The database contradicts itself; nothing more is appended."""


class ServerUnavailable(LedgerError):
    """The server cannot be used at the moment; the message contains the reason and a remedy."""


class AppendUncertain(ServerUnavailable):
    """The connection broke during an append without a command id: it may or may not be recorded."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = tuple(streams)
        super().__init__(
            f"the connection broke while appending to {', '.join(self.streams[:3])}: it may or may not be "
            "recorded; load the stream to check, or give appends a command id, which makes a repeat safe"
        )


class LedgerBusy(ServerUnavailable):
    """No connection, lock or answer within the time allowed."""


class LockTimeout(LedgerBusy, TimeoutError):
    """A scope that is open elsewhere did not end within the time allowed. holder: its actor, if known."""

    def __init__(self, stream: str, seconds: float | None, holder: str | None = None) -> None:
        by = f" by {holder}" if holder else ""
        waited = (
            "in a scope that waits for this one (deadlock)" if seconds is None else f"after {seconds:g} s"
        )
        super().__init__(f"{stream} is still open elsewhere{by} {waited}; nothing was changed")
        self.stream, self.seconds, self.holder = stream, seconds, holder


class ReadOnly(ServerUnavailable):
    """The server takes no writes: a standby, or a read-only database or transaction."""


class NoPermission(ServerUnavailable):
    """The connected role may not do this."""


class StorageFull(ServerUnavailable):
    """The server's disk is full."""


def shown(value: object) -> str:
    """A value as messages show it: in ASCII, and shortened."""
    try:
        return _clipped(ascii(value))
    except ValueError:  # an integer that Python refuses to print
        return f"of {type(value).__name__}"


def _clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
