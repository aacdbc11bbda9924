"""
The recording of what clients report over /events/in: frames of many sockets, in one transaction.

    events = ClientEvents(log)
    refused = events.record(frames)      returns after the commit: what is wrong with each frame, or None

A report of a state becomes `task_run.created`, where the run is new, and `task_run.state_set`; every other
event becomes `run_event.received`. Each event is recorded once, by its id: clients send again what was not
confirmed. Facts have the claimed time of their event as `claimed_at` in their metadata.

A `prefect.flow-run.heartbeat` also renews the lease of its flow run (`heartbeats`), after the commit.

What this process has just written is kept open, so that the next report of a task run needs no read: a
transaction is one call, and where another process wrote to one of its streams, what is there is read and
decided anew. A killed process leaves all of a transaction, or nothing.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.stream import Stream
from ..errors import AppendUncertain, BadInput, LedgerError, ServerUnavailable, StreamConflict
from ..log.append import Body, append_of, body_of
from ..log.ledger import Ledger
from ..log.recorded import Meta, Recorded
from .frames import FLOW_RUN, HEARTBEAT, Frame, StateReport, read_frame
from .heartbeats import Heartbeats
from .names import NameTaken, OpenName
from .orchestration import named
from .run_event import HELD as HELD_EVENTS
from .run_event import OpenRunEvents, RunEventReceived, RunEvents
from .task_run import (
    HELD,
    OpenTaskRun,
    TaskRun,
    TaskRunCreated,
    TaskRunStateCameLate,
    TaskRunStateSet,
    changed_fields,
    fields_read,
    ids_of_run,
    is_late,
    key_of,
)

_log = logging.getLogger(__name__)
MOST: Final = 500
"""Most frames in one transaction."""
MOST_BYTES: Final = 8 * 2**20
"""Bytes of events after which a transaction takes no further frame."""
KEPT: Final = 4096
"""How many streams are kept open."""
ATTEMPTS: Final = 10
"""How often a transaction is decided while other processes write to the same streams."""
RESENT: Final = 2000
"""How many of a stream's last events are looked through for one that may be sent again."""

Opened = Stream[Any, Any]


class ClientEvents:
    """The events of clients, recorded in a ledger. Threads may share it; one records at a time."""

    def __init__(self, ledger: Ledger, *, kept: int = KEPT) -> None:
        self.ledger, self._kept = ledger, kept
        self._heartbeats = Heartbeats(ledger)
        self._lock = Lock()
        self._open: OrderedDict[str, Opened] = OrderedDict()

    def record(
        self, frames: Sequence[Mapping[str, Any]], actor: str | None = None
    ) -> list[LedgerError | None]:
        """Record frames in their order; returns after the commit.

        The result has one item for each frame: None where it is recorded now or was before, else the error
        that says what is wrong with it. Such a frame is left out; the others are recorded. actor: who sent
        them. Raises what is worth a repeat with the same frames: ServerUnavailable, StorageFull, and
        StreamConflict where other processes kept coming first.
        """
        answers: list[LedgerError | None] = [None] * len(frames)
        read = list[tuple[int, Frame | StateReport]]()
        for nth, given in enumerate(frames):
            try:
                one = read_frame(given)
                _check_name(one)
                read.append((nth, one))
            except Exception as error:
                answers[nth] = _told(error)
        meta = self.ledger.meta(actor=actor)
        beats = _heartbeats(one for _, one in read)
        with self._lock:
            while read:
                read = read[self._commit(read[:MOST], meta, answers) :]
        self._heartbeats.received(beats)
        return answers

    def _commit(
        self, some: Sequence[tuple[int, Frame | StateReport]], meta: Meta, answers: list[LedgerError | None]
    ) -> int:
        """Record the first of these frames in one transaction; returns how many they are."""
        for attempt in range(1, ATTEMPTS + 1):
            batch = _Batch(self.ledger, meta, self._targets([one for _, one in some], guess=attempt == 1))
            try:
                taken = batch.take(some, answers)
                batch.commit()
            except (StreamConflict, AppendUncertain) as error:
                # What may be recorded already is found by its id. After a second conflict, all is read anew.
                is_known = attempt == 1 and isinstance(error, StreamConflict)
                self._forget(batch, cast(StreamConflict, error).stream if is_known else None)
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self._forget(batch)
                raise
            else:
                self._keep(batch)
                return taken
        raise AssertionError("the last attempt raises")

    def _targets(self, some: Sequence[Frame | StateReport], *, guess: bool) -> list[_Target]:
        """Where each frame goes; streams that are not kept open are read in one call.

        guess: take the first report of a task run for that of a new one; if it is not, the append conflicts.
        """
        named = [_key_of(one) for one in some]
        keys = {name.name: name for name in named if name is not None}
        names = cast("dict[str, OpenName]", self._load(keys, guessed=()))
        owners = {name: opened.state.holder for name, opened in names.items()}
        wanted, guessed, found = dict[str, Opened](), set[str](), list[tuple[str, str | None]]()
        for one, name in zip(some, named, strict=True):
            key = None if name is None else name.name
            stream = _stream_of(one, owners, key)
            wanted.setdefault(stream.name, stream)
            found.append((stream.name, key))
            if guess and isinstance(one, StateReport) and one.follows is None:
                guessed.add(stream.name)
        streams = self._load(wanted, guessed)
        return [_Target(streams[stream], None if key is None else names[key]) for stream, key in found]

    def _load(self, wanted: Mapping[str, Opened], guessed: Collection[str]) -> dict[str, Opened]:
        """These streams as they are kept open, or read in one call; guessed: those that are taken for new."""
        loaded = {name: self._open.get(name, stream) for name, stream in wanted.items()}
        missing = [
            stream for name, stream in wanted.items() if name not in self._open and name not in guessed
        ]
        if missing:
            self.ledger.load_each(missing)
        return loaded

    def _keep(self, batch: _Batch) -> None:
        for name, stream in batch.streams.items():
            self._open[name] = stream
            self._open.move_to_end(name)
        while len(self._open) > self._kept:
            self._open.popitem(last=False)

    def _forget(self, batch: _Batch, conflicting: str | None = None) -> None:
        """Close the streams of a batch: what was decided on them is not recorded.

        conflicting: close only this one and those that were taken for new; the others become as before.
        """
        for name in batch.streams:
            self._open.pop(name, None)
        if conflicting is not None:
            self._open.update(batch.undone(conflicting))


class _Target(NamedTuple):
    """Where a frame goes: a task run or the events of a resource, and the unique key of a task run."""

    stream: Opened
    key: OpenName | None


class _Batch:
    """The frames of one transaction, decided one after the other, on streams that are open.

    streams: those that were looked at. bodies: the events for each stream that changes.
    """

    def __init__(self, ledger: Ledger, meta: Meta, targets: Sequence[_Target]) -> None:
        self.ledger, self.targets = ledger, targets
        self._meta = _around_time(meta)
        self.streams = {one.name: one for target in targets for one in target if one is not None}
        self._before = {name: (one.state, one.version) for name, one in self.streams.items()}
        self.bodies: dict[str, list[Body]] = {}
        self._size = 0

    def take(self, some: Sequence[tuple[int, Frame | StateReport]], answers: list[LedgerError | None]) -> int:
        """Decide what becomes of the frames, until there are enough bytes; returns how many were taken."""
        for taken, ((nth, one), target) in enumerate(zip(some, self.targets, strict=True), 1):
            try:
                if isinstance(one, StateReport):
                    self._report(one, target)
                else:
                    self._receive(one, target.stream)
            except (ServerUnavailable, StreamConflict):
                raise
            except Exception as error:
                answers[nth] = _told(error)
            if self._size >= MOST_BYTES:
                return taken
        return len(some)

    def commit(self) -> None:
        """Append what was decided, all or nothing, and settle the streams."""
        if not self.bodies:
            return
        appends = [append_of(self.streams[name], bodies) for name, bodies in self.bodies.items()]
        recorded_at = self.ledger.append_all(appends).recorded_at
        for name in self.bodies:
            self.streams[name].settle(recorded_at)

    def undone(self, conflicting: str) -> dict[str, Opened]:
        """The streams as they were before the batch, without the one that conflicts and without new ones."""
        kept = dict[str, Opened]()
        for name, (state, version) in self._before.items():
            if version and name != conflicting:
                stream = kept[name] = self.streams[name]
                stream.restore(state, version)
                stream.news.clear()
                if isinstance(stream, OpenTaskRun):
                    stream.sent = None
        return kept

    def _report(self, one: StateReport, target: _Target) -> None:
        run = cast(OpenTaskRun, target.stream)
        state = run.state
        if self._is_held(run, one.state.id, late=is_late(state, one.report), full=len(state.held) == HELD):
            return
        given = {} if one.run == run.sent else fields_read(one.run)  # most reports repeat what is known
        late = state.is_deleted or is_late(state, one.report)
        facts = list(_facts_of(one, state, given, late=late))
        self._record(run, one.state.timestamp, facts)
        if target.key is not None and target.key.holder is None:
            self._record(target.key, one.state.timestamp, [NameTaken(holder=state.id)])
        if not late:
            run.sent = one.run

    def _receive(self, one: Frame, events: Opened) -> None:
        state: RunEvents = events.state
        late = state.newest is not None and one.occurred <= state.newest
        if not self._is_held(events, one.id, late=late, full=len(state.held) == HELD_EVENTS):
            self._record(events, one.occurred, [one.fact()])

    def _record(self, stream: Opened, claimed_at: datetime, facts: Sequence[Event]) -> None:
        """Decide these facts for a stream; none of them where one is refused. Raises BadBody."""
        meta, before, count = self._meta_at(claimed_at), stream.state, len(stream.news)
        bodies = [body_of(fact)._replace(meta=meta) for fact in facts]
        try:
            for fact in facts:
                stream.record(fact)
        except BaseException:
            stream.state = before
            del stream.news[count:]
            raise
        self.bodies.setdefault(stream.name, []).extend(bodies)
        self._size += sum(len(body.data or "") for body in bodies)

    def _meta_at(self, claimed_at: datetime) -> str:
        """The metadata of an event, as JSON text."""
        return claimed_at.isoformat().join(self._meta)

    def _is_held(self, stream: Opened, id: str, *, late: bool, full: bool) -> bool:
        """Whether an event is recorded. full: the state keeps no more ids, so the log is asked."""
        if id in stream.state.held:
            return True
        if not (late and full and stream.version):
            return False
        before = self.ledger.read(stream.name, after=max(0, stream.version - RESENT), upto=stream.version)
        return any(_id_in(event) == id for event in before)


def _told(error: Exception) -> LedgerError:
    """What is told of a frame that cannot be recorded. What no check foresaw is a defect, and logged as one.

    It must not stop the frames of others, nor those that its client sends after it.
    """
    if isinstance(error, BadInput):
        return error
    if not isinstance(error, RecursionError):
        _log.error("a frame could not be read", exc_info=error)
    return BadInput(f"the event cannot be recorded: {type(error).__name__}: {error}"[:300])


def _check_name(one: Frame | StateReport) -> None:
    """Raise BadName for what cannot be part of the name of a stream."""
    if isinstance(one, Frame):
        OpenRunEvents.name_of(one.resource_id)
    else:
        _key_of(one)


def _around_time(meta: Meta) -> Sequence[str]:
    """The text of metadata before and after its claimed time: the events of a batch differ only in that."""
    at = datetime(1, 1, 2, tzinfo=UTC)
    return replace(meta, claimed_at=at).body().split(at.isoformat())


def _facts_of(one: StateReport, run: TaskRun, given: dict[str, Any], *, late: bool) -> Iterator[Event]:
    """The facts that a report leads to, given the task run as it is. given: the fields that may be new."""
    is_new = run.created is None
    if is_new:
        own = {} if one.flow_run_id is None else {"flow_run_id": one.flow_run_id}
        name = given.pop("name", one.task_key)
        yield TaskRunCreated(
            name=name, task_key=one.task_key, dynamic_key=one.dynamic_key, fields=given | own,
            related=tuple(map(dict, one.related)),
        )  # fmt: skip
        run = changed(run, flow_run_id=one.flow_run_id)
    details = {**one.state.state_details, **ids_of_run(run)}
    state = {**one.state.recorded(), "state_details": details}
    if late:
        yield TaskRunStateCameLate(state=state, follows=one.follows)
        return
    yield TaskRunStateSet(
        status=one.state.type.lower(), state=state, initial=None if run.state is None else named(run.state),
        changes={} if is_new else changed_fields(run, given), reported=True, follows=one.follows,
        claimed=dict(one.claimed),
    )  # fmt: skip


def _stream_of(one: Frame | StateReport, owners: dict[str, str | None], key: str | None) -> Opened:
    """The stream of a frame, not read yet. owners: which task run has a key; a new one takes a free key."""
    if not isinstance(one, StateReport):
        return OpenRunEvents(one.resource_id)
    if key is None:
        return OpenTaskRun(one.task_run_id)
    owners[key] = owners[key] or one.task_run_id
    return OpenTaskRun(owners[key] or one.task_run_id)


_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def _key_of(one: Frame | StateReport) -> OpenName | None:
    """The unique key of a task run within its flow run, not read yet.

    None where its dynamic key is a random UUID, as clients make it for tasks that they run: no other run
    can have it, so that a name would only cost an append.
    """
    if type(one) is not StateReport or one.flow_run_id is None or _RANDOM.match(one.dynamic_key):
        return None
    return key_of(one.flow_run_id, one.task_key, one.dynamic_key)


def _heartbeats(read: Iterable[Frame | StateReport]) -> dict[str, datetime]:
    """The flow runs whose clients say that they are alive, with the latest claimed time of each."""
    last = dict[str, datetime]()
    for one in read:
        if type(one) is Frame and one.event == HEARTBEAT and one.resource_id.startswith(FLOW_RUN):
            id = one.resource_id.removeprefix(FLOW_RUN)
            last[id] = max(one.occurred, last.get(id, one.occurred))
    return last


def _id_in(event: Recorded) -> str | None:
    """The id of the client's event that a recorded event was made of."""
    match event.event:
        case TaskRunStateSet(state=state) | TaskRunStateCameLate(state=state):
            return str(state["id"])
        case RunEventReceived(id=id):
            return id
        case _:
            return None
