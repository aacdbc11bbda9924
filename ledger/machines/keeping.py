"""Where the moves of an object are kept: in a ledger, in a transaction of the user's own, or in memory.

One port, three ways; `tests/contracts/machines.py` holds them to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from ..append import Appended, append_of
from ..errors import CommandReused, StreamConflict, StreamNotFound, TransitionConflict
from ..recorded import Meta, Recorded
from ..store import reading
from ..store.beaten import told_beaten, transaction
from ..store.joining import Joined
from ..store.ledger import Ledger
from ..store.reads import PAGE
from ..store.sending import send
from .transition import MachineStream, Moved, Transition

Call = Callable[[Transition], None]


@dataclass(frozen=True, slots=True)
class Calls:
    """What is called around a move that is being recorded (spec S2-40)."""

    before: Sequence[Call] = ()
    after: Sequence[Call] = ()
    after_commit: Sequence[Call] = ()


class Keeper(Protocol):
    """Keeps the moves of one object."""

    ledger: Ledger | None

    def load(self) -> MachineStream:
        """Where the object stands now."""

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        """Record the one move that is the stream's news, and call what is to be called around it.

        Raises TransitionConflict where the object moved since `load`.
        """

    def history(self) -> list[Transition]:
        """All moves, in their order."""

    def last_to(self, state: str) -> Transition | None:
        """The last move to a state."""

    def repeated(self, command: str, to_state: str) -> Transition | None:
        """The move that this command id recorded before. Raises CommandReused where it was another."""


def transition_of(row: Recorded) -> Transition:
    """A recorded move."""
    moved = row.event
    assert isinstance(moved, Moved)
    return Transition(
        moved.to_state, moved.from_state, row.version, row.recorded_at, moved.metadata, moved.definition,
        row.meta.claimed_at,
    )  # fmt: skip


def moves_of(kind: type[MachineStream], rows: Sequence[Recorded]) -> list[Transition]:
    """The moves among events; what else somebody appended there is left out."""
    return [transition_of(row) for row in rows if isinstance(row.event, kind.MOVED)]


def proposed(stream: MachineStream, connection: Any = None, claimed_at: datetime | None = None) -> Transition:
    """The move that is the stream's news, or was just recorded."""
    now = stream.state
    assert now.status is not None
    assert now.since is not None
    return Transition(
        now.status, now.from_state, now.moves, now.since, now.metadata, now.definition, claimed_at, connection
    )


class InLedger:
    """In a ledger; each move is an append of its own."""

    def __init__(self, ledger: Ledger, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        self.ledger: Ledger | None = ledger
        self._ledger, self._kind, self._key = ledger, kind, key

    @property
    def _name(self) -> str:
        return self._kind.name_of(*self._key)

    def load(self) -> MachineStream:
        return self._ledger.load(self._kind, *self._key)

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        claimed, append = meta.get("claimed_at"), append_of(stream)
        try:
            if calls.before or calls.after:
                appended = self._record_inside(stream, calls, self._ledger.meta(**meta))
            else:
                appended = self._ledger.append_all([append], **meta)
                stream.settle(appended.recorded_at)
        except StreamConflict as error:
            if isinstance(error, TransitionConflict) or error.stream != stream.name:
                raise  # a callback's own (spec W2-07)
            raise stream.conflict(error) from error
        if appended.repeated:
            return self._at(appended.version)
        transition = proposed(stream, claimed_at=claimed)
        for call in calls.after_commit:
            call(transition)
        return transition

    def _record_inside(self, stream: MachineStream, calls: Calls, meta: Meta) -> Appended:
        """The same, in a transaction in which something is called. The locks are held from the append on."""
        with self._ledger.connections.connection() as connection:
            with transaction(connection, self._ledger, stream):
                for call in calls.before:
                    call(proposed(stream, connection, meta.claimed_at))
                with told_beaten(self._ledger, stream):
                    append = append_of(stream)
                    appended = send(connection, self._ledger.schema, [append], meta.body(), meta.command)
                stream.settle(appended.recorded_at)
                for call in () if appended.repeated else calls.after:
                    call(proposed(stream, connection, meta.claimed_at))
        self._ledger.wakeup.appended()
        return appended

    def history(self) -> list[Transition]:
        found: list[Transition] = []
        try:
            after = 0
            while page := self._ledger.read(self._name, after=after, limit=PAGE):
                found += moves_of(self._kind, page)
                after = page[-1].version
        except StreamNotFound:
            pass
        return found

    def last_to(self, state: str) -> Transition | None:
        which = {"stream": self._name, "topic": self._kind.MOVED.topic, "state": state}
        with self._ledger.reader() as connection:
            rows = reading.query(connection, self._ledger.schema, "last_event_to", **which)
        return transition_of(reading.recorded(rows[0])) if rows else None

    def repeated(self, command: str, to_state: str) -> Transition | None:
        with self._ledger.reader() as connection:
            rows = reading.query(connection, self._ledger.schema, "recorded_command", command=command)
        if not rows:
            return None
        first, last = rows[0]
        event = self._ledger.event_at(first)
        same = event is not None and isinstance(event.event, Moved) and first == last
        if event is None or not same or (event.stream, event.event.to_state) != (self._name, to_state):  # type: ignore[union-attr]
            raise CommandReused(command)
        return transition_of(event)

    def _at(self, version: int) -> Transition:
        return transition_of(self._ledger.read(self._name, after=version - 1, upto=version)[0])


class InTransaction:
    """In a transaction of the user's own: moves are recorded at the end of `with ledger.join(connection)`."""

    def __init__(self, joined: Joined, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        self.ledger: Ledger | None = joined.ledger
        self._joined, self._kind, self._key = joined, kind, key

    def load(self) -> MachineStream:
        """A copy of what the block has: the move counts there once what is called before it let it pass."""
        taken = self._joined.take(self._kind, *self._key)
        stream = copy(taken)
        stream.news = [*taken.news]
        return stream

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        """The move is recorded at the block's end, and what is called after it is called there."""
        connection = self._joined.connection
        transition = proposed(stream, connection, meta.get("claimed_at"))
        for call in calls.before:
            call(transition)
        taken = self._joined.take(self._kind, *self._key)
        if (known := taken.version + len(taken.news)) != stream.state.moves - 1:
            expected = f"version {stream.state.moves - 1}"
            raise stream.conflict(StreamConflict(stream.name, expected, known))
        self._joined.carry(**meta)
        self._joined.decide(taken, stream.news[-1])

        def recorded(call: Call, connection: Any = None) -> None:
            appended = self._joined.appended
            if appended is not None and not appended.repeated:
                call(replace(transition, at=appended.recorded_at, connection=connection))

        for call in calls.after:
            self._joined.then(partial(recorded, call, connection))
        for call in calls.after_commit:
            self._joined.on_commit(partial(recorded, call))
        return transition

    def history(self) -> list[Transition]:
        """As the block took it: not what others recorded since, of which `load` knows nothing."""
        stream = self.load()
        rows = [row for row in self._joined.read(stream.name) if row.version <= stream.version]
        return [*moves_of(self._kind, rows), *_unrecorded(stream)]

    def last_to(self, state: str) -> Transition | None:
        return next((one for one in reversed(self.history()) if one.to_state == state), None)

    def repeated(self, command: str, to_state: str) -> Transition | None:
        return InLedger(self._joined.ledger, self._kind, self._key).repeated(command, to_state)


class InMemory:
    """In memory, for trying a machine without a ledger; in the order and with the rules of the others."""

    ledger: Ledger | None = None

    def __init__(self, kind: type[MachineStream], key: Sequence[str | int]) -> None:
        self._kind, self._key = kind, key
        self._past: list[tuple[Moved, datetime]] = []
        self._claimed: list[datetime | None] = []
        self._commands: dict[str, tuple[str, int]] = {}

    def load(self) -> MachineStream:
        return self._kind(*self._key, past=self._past)

    def record(self, stream: MachineStream, calls: Calls, **meta: Any) -> Transition:
        for call in calls.before:
            call(proposed(stream, claimed_at=meta.get("claimed_at")))
        if stream.version != len(self._past):
            found = StreamConflict(stream.name, f"version {stream.version}", len(self._past))
            raise stream.conflict(found)
        kept, (moved,) = len(self._past), stream.news
        now = datetime.now(UTC)
        self._past.append((moved, now))
        self._claimed.append(meta.get("claimed_at"))
        stream.settle(now)
        transition = proposed(stream, claimed_at=meta.get("claimed_at"))
        try:
            for call in calls.after:
                call(transition)
        except BaseException:
            del self._past[kept:], self._claimed[kept:]
            raise
        if (command := meta.get("command")) is not None:
            self._commands[command] = moved.to_state, kept
        for call in calls.after_commit:
            call(transition)
        return transition

    def history(self) -> list[Transition]:
        stream, found = self._kind(*self._key), []
        for (moved, at), claimed in zip(self._past, self._claimed, strict=True):
            stream.replay(moved, at)
            found.append(proposed(stream, claimed_at=claimed))
        return found

    def last_to(self, state: str) -> Transition | None:
        return next((one for one in reversed(self.history()) if one.to_state == state), None)

    def repeated(self, command: str, to_state: str) -> Transition | None:
        if command not in self._commands:
            return None
        was, place = self._commands[command]
        if was != to_state:
            raise CommandReused(command)
        return self.history()[place]


def _unrecorded(stream: MachineStream) -> Iterator[Transition]:
    """The moves that the stream's news are."""
    first = stream.state.moves - len(stream.news)
    for nth, moved in enumerate(stream.news, first + 1):
        at = stream.state.since or datetime.now(UTC)
        yield Transition(moved.to_state, moved.from_state, nth, at, moved.metadata, moved.definition)
