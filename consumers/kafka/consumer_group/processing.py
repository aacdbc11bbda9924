"""
What one poll brought, applied exactly once: its events' effects and the offsets in one PostgreSQL
transaction.

With a concurrency of one, a round (the records of one poll, of all partitions) is one transaction. It begins
with the compare-and-set of the offsets, so a rival that has the same partitions waits for its end, and is
refused then.

With a concurrency of N the keys of a round are divided among N lanes. A lane is one thread and one
transaction; it holds the offsets where they are, and notes its events as done. When all lanes are through,
one more transaction moves the offsets. So what is atomic is the events of a lane: after a crash some lanes of
the last round are done, and the next consumer leaves those events out.

Where the handler raises, the transaction is rolled back and done again event by event, each in a savepoint;
those that fail again are parked. So a handler is called once more for the events of a round that failed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import psycopg

from ledger.errors import ChainBroken

from .client import Message, Messages, Place
from .handler import Delivery, Fetch, Handler, delivered
from .offsets import SCHEMA, Move, Moves, Offset, Offsets
from .parking import Failure, Parking, State, Tried, is_transient, ordering_of
from .runner import Runner
from .tracing import in_trace

Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]


@dataclass(slots=True)
class Round:
    """What one poll brought: the events that the handler wants, in order, and how far the offsets move.

    broken: the gap in a partition's chain; its records from there on are not in the round.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    moves: dict[Place, Move] = field(default_factory=dict)
    passed: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    broken: ChainBroken | None = None

    def without(self, places: Iterable[Place]) -> Round:
        """The same without some partitions."""
        gone = set(places)
        kept = [one for one in self.deliveries if _place(one) not in gone]
        return Round(kept, {place: move for place, move in self.moves.items() if place not in gone})


@dataclass(slots=True)
class Outcome:
    """What came of a round. fenced: partitions that another consumer moved; nothing of theirs was stored."""

    handled: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    dead: int = 0
    seconds: float = 0.0
    fenced: frozenset[Place] = frozenset()

    def add(self, other: Outcome) -> None:
        """Add what came of a part."""
        self.handled += other.handled
        self.failed += other.failed
        self.dead += other.dead


def round_of(
    messages: Messages, at: Mapping[Place, Offset], handler: Handler, *, fetch: Fetch | None = None,
    done: Mapping[Place, frozenset[int]] | None = None,
) -> Round:  # fmt: skip
    """Decode what a poll brought, and check the chain of positions. done: events that are to be left out."""
    found = Round()
    for place, records in messages.items():
        skipped, first = (done or {}).get(place, frozenset()), at[place].next_offset
        new = (delivered(one, handler, fetch) for one in records if one.offset >= first)
        _follow(found, place, at[place], new, skipped)
    return found


def _follow(
    found: Round, place: Place, old: Offset, records: Iterable[Delivery], done: frozenset[int]
) -> None:
    """Add the records of one partition to a round."""
    next_offset, last, recorded_at = old.next_offset, old.last_position, None
    for one in records:
        offset = one.message.offset
        if one.envelope is not None:
            event, previous = one.envelope.event, one.envelope.previous
            if last is not None and one.envelope.is_known(last):
                found.duplicates += 1
                next_offset = offset + 1
                continue
            if last is not None and previous != last:
                found.broken = found.broken or ChainBroken(*place, offset, last, previous)
                break
            last, recorded_at = event.position, event.recorded_at
        next_offset = offset + 1
        if not one.is_handled:
            found.passed[place.topic] += 1
        elif offset not in done:
            found.deliveries.append(one)
    if next_offset != old.next_offset:
        found.moves[place] = Move(old, Offset(next_offset, last), recorded_at)


def _place(delivery: Delivery) -> Place:
    return Place(delivery.message.topic, delivery.message.partition)


class _Raised(Exception):
    """The handler raised, or the server refused what it wrote: do it again event by event."""


class _Fenced(Exception):
    def __init__(self, places: Iterable[Place]) -> None:
        super().__init__()
        self.places = frozenset(places)


class Processing:
    """Applies rounds for one handler. connect: opens a connection in autocommit; the consumer's own ones are
    closed by `close`.

    Raises psycopg's errors where the database is away; what was applied then is told by the offsets.
    """

    def __init__(
        self,
        handler: Handler,
        connect: Connect,
        *,
        schema: str = SCHEMA,
        concurrency: int = 1,
        fetch: Fetch | None = None,
    ) -> None:
        self.handler, self.fetch, self.concurrency = handler, fetch, concurrency
        self.offsets, self.parking = Offsets(handler.group, schema), Parking(handler.group, schema)
        self._connect = connect
        self._open: dict[int, Connection] = {}
        self._lanes = [
            Runner(f"consumer {handler.name} lane {n}") for n in range(concurrency if concurrency > 1 else 0)
        ]

    def connection(self, lane: int = -1) -> Connection:
        """The connection of a lane; -1: that of the consumer itself. Opened anew where it broke."""
        known = self._open.get(lane)
        if known is None or known.closed:
            known = self._open[lane] = self._connect()
        return known

    def cancel(self) -> None:
        """Have the server end what is under way; from any thread."""
        for one in list(self._open.values()):
            with suppress(psycopg.Error):
                one.cancel_safe(timeout=2)

    def close(self) -> None:
        """Close the connections, which rolls back what is under way."""
        for lane in self._lanes:
            lane.end()
        for one in self._open.values():
            one.close()
        self._open.clear()

    # Rounds

    def apply(self, wanted: Round) -> Outcome:
        """
        Apply a round, without the partitions that another consumer moved: those are named in the outcome.
        """
        began = time.perf_counter()
        fenced: frozenset[Place] = frozenset()
        outcome = Outcome()
        while wanted.moves:
            try:
                outcome = self._in_lanes(wanted) if self._lanes else self._whole(wanted)
                break
            except _Fenced as error:
                fenced |= error.places
                wanted = wanted.without(error.places)
        outcome.fenced, outcome.seconds = fenced, time.perf_counter() - began
        return outcome

    def _whole(self, wanted: Round) -> Outcome:
        """The round in one transaction."""
        connection = self.connection()

        def claim() -> None:
            if places := self.offsets.move(connection, wanted.moves):
                raise _Fenced(places)

        return self._carefully(connection, wanted.deliveries, wanted.moves, claim)

    def _in_lanes(self, wanted: Round) -> Outcome:
        """The round in a transaction for each lane, then one that moves the offsets."""
        parts: list[list[Delivery]] = [[] for _ in self._lanes]
        for one in wanted.deliveries:
            parts[crc32(ordering_of(one.message)) % len(parts)].append(one)
        futures = [
            lane.submit(lambda nr=nr, part=part: self._lane(nr, part, wanted.moves))  # type: ignore[misc]
            for nr, (lane, part) in enumerate(zip(self._lanes, parts, strict=True))
            if part
        ]
        outcome, errors = Outcome(), list[BaseException]()
        for future in futures:
            try:
                outcome.add(future.result())
            except BaseException as error:
                errors.append(error)
        fenced = [one for one in errors if isinstance(one, _Fenced)]
        if len(fenced) < len(errors):
            raise next(one for one in errors if not isinstance(one, _Fenced))
        if fenced:
            raise _Fenced(place for one in fenced for place in one.places)
        with self.connection().transaction():
            if places := self.offsets.move(self.connection(), wanted.moves):
                raise _Fenced(places)
            self.offsets.clear_done(self.connection())
        return outcome

    def _lane(self, nr: int, part: list[Delivery], moves: Moves) -> Outcome:
        connection = self.connection(nr)
        mine = {place: moves[place] for place in {_place(one) for one in part}}

        def claim() -> None:
            if places := self.offsets.share(connection, mine):
                raise _Fenced(places)
            try:
                self.offsets.mark_done(connection, [(_place(one), one.message.offset) for one in part])
            except psycopg.errors.UniqueViolation:  # of a consumer that has the same partitions
                raise _Fenced(mine) from None

        return self._carefully(connection, part, mine, claim)

    def _carefully(
        self,
        connection: Connection,
        deliveries: list[Delivery],
        places: Iterable[Place],
        claim: Callable[[], None],
    ) -> Outcome:
        """One transaction; where the handler raises, another one, event by event."""
        try:
            return self._transaction(connection, deliveries, places, claim, one_by_one=False)
        except _Raised:
            return self._transaction(connection, deliveries, places, claim, one_by_one=True)

    def _transaction(
        self, connection: Connection, deliveries: list[Delivery], places: Iterable[Place],
        claim: Callable[[], None], *, one_by_one: bool,
    ) -> Outcome:  # fmt: skip
        outcome, good = Outcome(), list[Delivery]()
        try:
            with connection.transaction():
                claim()
                blocked = self.parking.blocked(connection, places) if deliveries else set()
                for one in deliveries:
                    key = _place(one), ordering_of(one.message)
                    state, failure = self._tried(connection, one, key in blocked, one_by_one=one_by_one)
                    if state is None:
                        good.append(one)
                        continue
                    blocked.add(key)
                    self._park(connection, one, state, failure, outcome)
                if not one_by_one:
                    self._handle(connection, good)
        except psycopg.errors.IntegrityError as error:  # a deferred constraint, at the commit
            if one_by_one:
                raise
            raise _Raised from error
        outcome.handled.update(one.message.topic for one in good)
        return outcome

    def _tried(
        self, connection: Connection, one: Delivery, blocked: bool, *, one_by_one: bool
    ) -> tuple[State | None, Failure | None]:
        """The state in which an event is to be parked; None: it is handled, or will be with the others."""
        if blocked:
            return "behind", None
        if one.wrong is not None:
            return "dead", Failure.of(one.wrong)
        if not one_by_one:
            return None, None
        try:
            self.call(one, connection)
        except Exception as error:
            if is_transient(error, connection):
                raise
            return ("dead" if self.handler.attempts == 1 else "waiting"), Failure.of(error)
        return None, None

    def _park(
        self, connection: Connection, one: Delivery, state: State, failure: Failure | None, outcome: Outcome
    ) -> None:
        attempts = int(failure is not None and one.wrong is None)
        delay = self.handler.pause_before(1) if state == "waiting" else 0.0
        self.parking.park(connection, one, state, failure, attempts=attempts, delay=delay)
        if failure is not None:
            outcome.failed[one.message.topic] += 1
        outcome.dead += state == "dead"

    def _handle(self, connection: Connection, good: Sequence[Delivery]) -> None:
        """Hand events to the handler in the transaction that is open. Raises _Raised."""
        try:
            if self.handler.batch:
                if good:
                    self.handler.handle([one.event for one in good], connection)
                return
            handle = self.handler.handle
            for one in good:
                traceparent = one.envelope.traceparent if one.envelope else None
                if traceparent is None:
                    handle(one.event, connection)
                else:
                    with in_trace(traceparent):
                        handle(one.event, connection)
        except Exception as error:
            if is_transient(error, connection):
                raise
            raise _Raised from error

    def call(self, one: Delivery, connection: Connection) -> None:
        """Hand one event to the handler, in a savepoint that also checks deferred constraints."""
        with connection.transaction(), in_trace(one.envelope.traceparent if one.envelope else None):
            self.handler.handle([one.event] if self.handler.batch else one.event, connection)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            connection.execute("SET CONSTRAINTS ALL DEFERRED")

    # Parked events

    def retry(self, places: Sequence[Place]) -> Tried:
        """Try the parked events that are due in these partitions; each key in a transaction of its own."""
        connection, total = self.connection(), Tried()
        for place, ordering in self.parking.due(connection, places):
            with connection.transaction():
                tried = self.parking.try_again(
                    connection, place, ordering, self.handler, self.decode, self.call
                )
            total.handled += tried.handled
            total.failed += tried.failed
            total.dead += tried.dead
            total.topics += tried.topics
        return total

    def decode(self, message: Message) -> Delivery:
        """A record as the handler takes it."""
        return delivered(message, self.handler, self.fetch)
