"""Where the moves of an object are kept: in a ledger, in an open transaction, or in memory.

`backend_at` returns the backend for a place; inside a callback, the backend of the callback's transaction.
`tests/contracts/machines.py` holds all backends to the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from ..errors import (
    BadInput,
    CommandReused,
    LedgerBusy,
    LedgerError,
    Refused,
    StreamConflict,
    TransitionConflict,
    shown,
)
from ..log import read
from ..log.append import Appended, append_of
from ..log.appender import send
from ..log.callbacks import CallbackTransaction, callback_transaction
from ..log.conflict import conflict_of, in_transaction, transaction
from ..log.join import SQL as JOIN
from ..log.join import Joined
from ..log.ledger import Ledger
from ..log.pool import Connection
from ..log.recorded import Meta, Recorded
from ..log.server_errors import ledger_errors
from ..log.sql import Statements, run
from .definition import Definition
from .definition_stream import declare, declare_inside
from .transition import MachineStream, Moved, Transition

SQL = Statements(__package__, "backends")
Call = Callable[[Transition], None]


@dataclass(frozen=True, slots=True)
class Calls:
    """The callbacks around a move that is being recorded (spec S2-40)."""

    before: Sequence[Call] = ()
    after: Sequence[Call] = ()
    after_commit: Sequence[Call] = ()


class Backend(Protocol):
    """Keeps the moves of one object."""

    @property
    def is_alone(self) -> bool:
        """Whether no surrounding transaction can undo what is read; only then the machine remembers it."""

    def number(self, machine: str, definition: Definition) -> int:
        """The number of a machine's definition, which is recorded if it is new; 0 in memory."""

    def load(self) -> MachineStream:
        """The object as it is now."""

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        """Record the move in the stream's news, and call the callbacks around it.

        Raises TransitionConflict if the object has moved since `load`.
        """

    def history(self) -> list[Transition]:
        """All moves, in their order."""

    def last_to(self, state: str) -> Transition | None:
        """The last move to a state."""

    def repeated(self, command: str, to_state: str) -> Transition | None:
        """The move that this command id recorded before, or None. Raises CommandReused for another move."""


def transition_of(row: Recorded) -> Transition:
    """A recorded move."""
    moved = row.event
    assert isinstance(moved, Moved)
    return Transition(
        moved.to_state, moved.from_state, row.version, row.recorded_at, moved.metadata, moved.definition,
        row.meta.claimed_at,
    )  # fmt: skip


def moves_of(kind: type[MachineStream], rows: Sequence[Recorded]) -> list[Transition]:
    """The moves among events. Events of other topics in the stream are left out."""
    return [transition_of(row) for row in rows if isinstance(row.event, kind.MOVED)]


class _Recorded:
    """Reads the moves of one object in a ledger."""

    def __init__(self, ledger: Ledger, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        self._ledger, self._kind, self._key = ledger, kind, key

    @property
    def _name(self) -> str:
        return self._kind.name_of(*self._key)

    def _reader(self) -> AbstractContextManager[Connection]:
        """The connection to read on."""
        return self._ledger.reader()

    def _rows(self, after: int = 0, upto: int = 2**62) -> list[Recorded]:
        span = {"stream": self._name, "after": after, "upto": upto, "limit": None}
        with self._reader() as connection:
            rows = run(connection, self._ledger.schema, read.SQL.read_stream, **span)
        return [read.recorded(row) for row in rows]

    def _at(self, version: int) -> Transition:
        return transition_of(self._rows(version - 1, version)[0])

    def history(self) -> list[Transition]:
        return moves_of(self._kind, self._rows())

    def last_to(self, state: str) -> Transition | None:
        which = {"stream": self._name, "topic": self._kind.MOVED.topic, "state": state}
        with self._reader() as connection:
            rows = run(connection, self._ledger.schema, SQL.last_move_to, **which)
        return transition_of(read.recorded(rows[0])) if rows else None

    def repeated(self, command: str, to_state: str) -> Transition | None:
        schema = self._ledger.schema
        with self._reader() as connection:
            rows = run(connection, schema, read.SQL.recorded_command, command=command)
            if not rows:
                return None
            first, last = rows[0]
            found = run(connection, schema, read.SQL.event_at, position=first)
        event = read.recorded(found[0]) if found and first == last else None
        moved = None if event is None else event.event
        wanted = (self._name, to_state)
        if event is None or not isinstance(moved, Moved) or (event.stream, moved.to_state) != wanted:
            raise CommandReused(command)
        return transition_of(event)


class LedgerBackend(_Recorded):
    """In a ledger: each move is an append of its own."""

    is_alone = True

    def number(self, machine: str, definition: Definition) -> int:
        return declare(self._ledger, machine, definition)

    def load(self) -> MachineStream:
        return self._ledger.load(self._kind, *self._key)

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        if calls.before or calls.after:
            return self._record_inside(stream, calls, **meta)
        try:
            appended = self._ledger.append_all([append_of(stream)], **meta)
        except StreamConflict as error:
            raise stream.conflict(error) from error
        if appended.repeated:
            return self._at(appended.version)
        stream.settle(appended.recorded_at)
        transition = stream.transition(claimed_at=meta.get("claimed_at"))
        for call in calls.after_commit:
            call(transition)
        return transition

    def _record_inside(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        """Record a move with callbacks in one transaction. The locks are held from the append on."""
        self._ledger.first_appends.announce_topics({self._kind.MOVED.topic})
        around = CallbackTransaction(self._ledger)
        try:
            with self._ledger.pool.connection() as around.connection:
                keeper = CallbackBackend(around, self._ledger, self._kind, self._key)
                transition = keeper.record(stream, calls, **meta)
        except TransitionConflict as conflict:
            if conflict is around.conflict:
                conflict.in_transaction = False  # it is over: what runs this again begins a new one
            raise
        self._ledger.wakeup.appended()
        for act in around.waiting:
            act()
        return transition


class CallbackBackend(_Recorded):
    """In a transaction in which callbacks run.

    A move that a callback makes is recorded at once, in a savepoint of its own, in which its own callbacks
    run. Its `after_commit` callbacks run after the outermost commit.
    """

    is_alone = False

    def __init__(
        self, around: CallbackTransaction, ledger: Ledger, kind: type[MachineStream], key: Sequence[str | int]
    ) -> None:
        super().__init__(ledger, kind, key)
        assert around.connection is not None
        self._around, self._connection = around, around.connection

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        with ledger_errors():
            yield self._connection

    def number(self, machine: str, definition: Definition) -> int:
        """The number of a definition; a new one is recorded in this transaction."""
        if number := definition.numbers.get(self._ledger, {}).get(machine, 0):
            return number
        topic = self._kind.MOVED.topic
        with ledger_errors():
            number = declare_inside(self._connection, self._ledger, machine, topic, definition)
        if self._around.joined is None:
            self._around.waiting.append(partial(_remember, self._ledger, machine, definition))
        return number

    def load(self) -> MachineStream:
        with ledger_errors():
            return read.open_one(self._connection, self._ledger.schema, self._kind, self._key)

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        around, claimed = self._around, meta.get("claimed_at")
        is_first = around.depth == 0 and around.joined is None
        made: Transition | None = None
        with around.move(stream.name):
            with self._transaction(stream, is_first=is_first):
                for call in calls.before:
                    with around.calling(stream.name):
                        call(stream.transition(self._connection, claimed))
                appended = self._append(stream, self._ledger.meta(**meta), calls, is_first=is_first)
                done = stream.transition(claimed_at=claimed)
                made = self._called(done, appended, calls, is_first=is_first)
            if made is None:
                raise Refused(f"{stream.name}: a callback rolled the move back (psycopg.Rollback)")
        return made

    def _transaction(self, stream: MachineStream, *, is_first: bool) -> AbstractContextManager[Any]:
        if is_first:
            return transaction(self._connection, self._ledger, stream)
        return self._connection.transaction()

    def _append(self, stream: MachineStream, meta: Meta, calls: Calls, *, is_first: bool) -> Appended:
        """Record the move. Its locks are held until the transaction ends."""
        if calls.after or not is_first:
            self._around.limit()
        appends = [append_of(stream)]
        try:
            with ledger_errors():
                appended = send(self._connection, self._ledger.schema, appends, meta.body(), meta.command)
        except (StreamConflict, LedgerBusy) as error:
            conflict = self._conflict(stream, error, is_first=is_first)
            if conflict is None:
                raise
            self._around.conflict = conflict
            raise conflict from error
        stream.settle(appended.recorded_at)
        self._around.took(stream)
        return appended

    def _conflict(
        self, stream: MachineStream, error: StreamConflict | LedgerBusy, *, is_first: bool
    ) -> StreamConflict | None:
        """The conflict that the error of an append is for this object; None if it is another error."""
        if isinstance(error, LedgerBusy):
            return conflict_of(self._ledger, [stream], error.__cause__, inside=not is_first)
        conflict = stream.conflict(error)
        ((level,),) = run(self._connection, self._ledger.schema, JOIN.isolation)
        return conflict if is_first or level == "read committed" else in_transaction(conflict)

    def _called(self, made: Transition, appended: Appended, calls: Calls, *, is_first: bool) -> Transition:
        """Call the callbacks after the move. For a repeated command, return the move it made before."""
        if appended.repeated:
            return self._at(appended.version)
        for call in calls.after:
            with self._around.calling():
                call(replace(made, connection=self._connection))
        for call in calls.after_commit:
            act = partial(call, made)
            self._around.waiting.append(act if is_first else partial(self._if_committed, appended, act))
        return made

    def _if_committed(self, appended: Appended, act: Callable[[], None]) -> None:
        """Call it if the move was committed: a callback may have rolled back a savepoint around it."""
        if self._ledger.event_at(appended.first_position) is not None:
            act()


def _remember(ledger: Ledger, machine: str, definition: Definition) -> None:
    """Look up the number again after the commit: a savepoint may have been rolled back."""
    with suppress(LedgerError):
        declare(ledger, machine, definition)


class JoinedBackend(_Recorded):
    """In a transaction of the user's own: moves are recorded at the end of the `join` block."""

    is_alone = False

    def __init__(self, joined: Joined, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        super().__init__(joined.ledger, kind, key)
        self._joined = joined

    @property
    def _around(self) -> CallbackTransaction | None:
        """The transaction, if this thread is in a callback that runs in it."""
        around = callback_transaction(self._joined.ledger)
        return around if around is not None and around.joined is self._joined else None

    def number(self, machine: str, definition: Definition) -> int:
        return declare(self._joined.ledger, machine, definition)

    def load(self) -> MachineStream:
        """A copy of the block's stream: a move counts only after its `before` callbacks have passed."""
        taken = self._joined.take(self._kind, *self._key)
        stream = copy(taken)
        stream.news = [*taken.news]
        return stream

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        """Plan the move: it is recorded, and its other callbacks are called, at the end of the block."""
        joined = self._joined
        transition = stream.transition(joined.connection, meta.get("claimed_at"))
        around = self._around or CallbackTransaction(joined.ledger, joined.connection, joined)
        with around.move(stream.name):
            with joined.connection.transaction() if calls.before else nullcontext():
                for call in calls.before:
                    with around.calling(stream.name):
                        call(transition)
            taken = joined.take(self._kind, *self._key)
            expected = stream.version + len(stream.news) - 1
            if (known := taken.version + len(taken.news)) != expected:
                raise stream.conflict(StreamConflict(stream.name, f"version {expected}", known))
            joined.carry(**meta)
            joined.decide(taken, stream.news[-1])
            self._plan(transition, calls)
        return transition

    def _plan(self, transition: Transition, calls: Calls) -> None:
        if calls.after:
            self._joined.then(partial(self._recorded, transition, calls))
            return
        for call in calls.after_commit:
            self._joined.on_commit(partial(_committed, transition, call))

    def _recorded(self, transition: Transition, calls: Calls) -> None:
        """After the block's append: call the `after` callbacks of this move."""
        joined, appended = self._joined, self._joined.appended
        if appended is None or appended.repeated:
            return
        around = CallbackTransaction(joined.ledger, joined.connection, joined)
        around.held |= {stream.name for stream in joined.decided}
        around.limit()
        for call in calls.after:
            with around.calling():
                call(replace(transition, at=appended.recorded_at))
        around.end_limit()
        for act in around.waiting:
            joined.on_committed(act)
        for call in calls.after_commit:
            joined.on_committed(partial(_committed, transition, call, appended))

    def history(self) -> list[Transition]:
        """The moves that the block knows, without those that others have recorded since."""
        stream = self.load()
        rows = [row for row in self._joined.read(stream.name) if row.version <= stream.version]
        return [*moves_of(self._kind, rows), *_unrecorded(stream)]

    def last_to(self, state: str) -> Transition | None:
        return next((one for one in reversed(self.history()) if one.to_state == state), None)


def _committed(transition: Transition, call: Call, appended: Appended | None) -> None:
    if appended is not None and not appended.repeated:
        call(replace(transition, at=appended.recorded_at, connection=None))


def _unrecorded(stream: MachineStream) -> Iterator[Transition]:
    """The moves in the stream's news."""
    for nth, moved in enumerate(stream.news, stream.version + 1):
        at = stream.state.since or datetime.now(UTC)
        yield Transition(moved.to_state, moved.from_state, nth, at, moved.metadata, moved.definition)


@dataclass(slots=True)
class _Memory:
    """The moves of one object, and the place of the move that each command made."""

    moves: list[Transition] = field(default_factory=list)
    commands: dict[str, int] = field(default_factory=dict)

    def cut(self, size: int) -> None:
        """Keep the first moves only."""
        del self.moves[size:]
        self.commands = {command: place for command, place in self.commands.items() if place < size}


class MemoryBackend:
    """In memory: each machine object has a history of its own.

    In a callback, a new machine of the same object shares the history of the surrounding transaction.
    """

    def __init__(self, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        self._kind, self._key = kind, key
        around = callback_transaction(None)
        name = kind.name_of(*key)
        self._memory: _Memory = _Memory() if around is None else around.kept.setdefault(name, _Memory())

    @property
    def is_alone(self) -> bool:
        return callback_transaction(None) is None

    def number(self, machine: str, definition: Definition) -> int:
        return 0

    def load(self) -> MachineStream:
        moves = self._memory.moves
        return self._kind.after(self._key, moves[-1]) if moves else self._kind(*self._key)

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        around = callback_transaction(None) or CallbackTransaction(None)
        is_first = around.depth == 0
        with around.move(stream.name):
            around.kept.setdefault(stream.name, self._memory)
            for call in calls.before:
                with around.calling(stream.name):
                    call(stream.transition(claimed_at=meta.get("claimed_at")))
            transition = self._record(around, stream, **meta)
            for call in calls.after:
                with around.calling():
                    call(transition)
            around.waiting += [partial(call, transition) for call in calls.after_commit]
        for act in around.waiting if is_first else ():
            act()
        return transition

    def _record(
        self,
        around: CallbackTransaction,
        stream: MachineStream,
        claimed_at: datetime | None = None,
        command: str | None = None,
        **_: Any,
    ) -> Transition:
        if stream.version != (size := len(self._memory.moves)):
            raise stream.conflict(StreamConflict(stream.name, f"version {stream.version}", size))
        stream.settle(datetime.now(UTC))
        transition = stream.transition(claimed_at=claimed_at)
        self._memory.moves.append(transition)
        if command is not None:
            self._memory.commands[command] = size
        around.undo.append(partial(self._memory.cut, size))
        return transition

    def history(self) -> list[Transition]:
        return [*self._memory.moves]

    def last_to(self, state: str) -> Transition | None:
        return next((one for one in reversed(self._memory.moves) if one.to_state == state), None)

    def repeated(self, command: str, to_state: str) -> Transition | None:
        place = self._memory.commands.get(command)
        if place is None:
            return None
        if (move := self._memory.moves[place]).to_state != to_state:
            raise CommandReused(command)
        return move


Place = Ledger | Joined | None
"""Where the moves of an object are kept; None is in memory."""


def checked_place(
    place: Any, kind: type[MachineStream], key: Sequence[str | int]
) -> Ledger | Joined | MemoryBackend:
    """The place, if moves can be kept there; a new memory backend for None. Raises BadInput."""
    if place is None:
        return MemoryBackend(kind, key)
    if isinstance(place, Ledger | Joined):
        return place
    raise BadInput(
        "the place of a machine must be a ledger, `ledger.join(connection)`, or None for memory, "
        f"not {shown(place)}"
    )


def backend_at(
    place: Ledger | Joined | MemoryBackend, kind: type[MachineStream], key: Sequence[str | int]
) -> Backend:
    """The backend that this thread must use for an object now: in a callback, that of its transaction."""
    if isinstance(place, MemoryBackend):
        return place
    if isinstance(place, Ledger):
        around = callback_transaction(place)
        if around is None:
            return LedgerBackend(place, kind, key)
        if around.joined is None:
            return CallbackBackend(around, place, kind, key)
        place = around.joined
    around = callback_transaction(place.ledger)
    if around is not None and around.joined is place and place.has_sent:
        return CallbackBackend(around, place.ledger, kind, key)
    return JoinedBackend(place, kind, key)
