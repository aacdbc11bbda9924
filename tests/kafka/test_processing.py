"""One round in one transaction: rivals are fenced, lanes are left out after a crash, traces go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from consumers.kafka import MemoryBus, consumer
from consumers.kafka.consumer_group.client import Messages, Place
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.consumer_group.memory import MemoryRecord
from consumers.kafka.consumer_group.offsets import Offset, make_tables
from consumers.kafka.consumer_group.processing import Processing, round_of
from ledger import Recorded, SchemaMismatch

from .oracle import effects, faults, make_table, write, writer

TOPIC = "ledger.lsm"
LIMIT = 60.0


class Rivals:
    """Processings of one group that all believe to have the same partitions."""

    def __init__(self, dsn: str, bus: MemoryBus) -> None:
        self.dsn, self.bus, self.all = dsn, bus, list[Processing]()
        make_table(dsn)
        self.at = {Place(TOPIC, 0): Offset(0, 0)}
        with psycopg.connect(dsn, autocommit=True) as connection:
            make_tables(connection)

    def new(self, handler: Handler, concurrency: int = 1) -> Processing:
        one = Processing(handler, lambda: psycopg.connect(self.dsn, autocommit=True), concurrency=concurrency)
        self.all.append(one)
        one.offsets.begin(one.connection(), Place(TOPIC, 0), TOPIC, Offset(0, 0))
        return one

    @property
    def messages(self) -> Messages:
        return {place: records for place, records in self.bus.records.items() if place in self.at}


@pytest.fixture
def rivals(dsn: str) -> Iterator[Rivals]:
    bus = MemoryBus(partitions=1)
    for nr in range(40):
        bus.publish(f"lsm.strip/{nr % 8}", "lsm.strip.completed", {"n": nr})
    made = Rivals(dsn, bus)
    yield made
    for one in made.all:
        one.close()


def published(rivals: Rivals) -> list[Recorded]:
    from consumers.kafka.envelope import envelope_of

    records: Sequence[MemoryRecord] = rivals.bus.records[Place(TOPIC, 0)]
    return [envelope_of(one.key, one.value, one.headers).event for one in records]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_zombie_is_fenced_by_compare_and_set(rivals: Rivals, dsn: str, concurrency: int) -> None:
    handler = writer(TOPIC, "all")
    first, zombie = rivals.new(handler, concurrency), rivals.new(handler, concurrency)
    wanted = round_of(rivals.messages, rivals.at, handler)
    assert first.apply(wanted).fenced == frozenset()
    assert zombie.apply(wanted).fenced == {Place(TOPIC, 0)}
    assert not faults(effects(dsn, "all"), published(rivals))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_rival_waits_for_what_is_under_way_and_is_fenced(
    rivals: Rivals, dsn: str, concurrency: int
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @consumer(topics=[TOPIC], group="all", batch=True)
    def slow(events: Sequence[Recorded], transaction: Connection) -> None:
        write("all", events, transaction)
        begun.set()
        assert go_on.wait(LIMIT)

    one, two = rivals.new(slow, concurrency), rivals.new(writer(TOPIC, "all"), concurrency)
    wanted, told = round_of(rivals.messages, rivals.at, slow), dict[str, frozenset[Place]]()
    threads = [
        threading.Thread(target=lambda p=p, n=n: told.__setitem__(n, p.apply(wanted).fenced))  # type: ignore[misc]
        for n, p in (("one", one), ("two", two))
    ]
    threads[0].start()
    assert begun.wait(LIMIT)
    threads[1].start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        _until(lambda: bool(connection.execute(waits).fetchall()))
    go_on.set()
    for thread in threads:
        thread.join(LIMIT)
    assert {*told.values()} == {frozenset(), frozenset({Place(TOPIC, 0)})}
    if concurrency == 1:  # else the rival may have been first with a part that had not begun
        assert told["one"] == frozenset()
    assert not faults(effects(dsn, "all"), published(rivals))


def _until(holds: Callable[[], bool]) -> None:
    waiter = threading.Event()
    for _ in range(int(LIMIT / 0.01)):
        if holds():
            return
        waiter.wait(0.01)
    raise AssertionError(f"not within {LIMIT:g} s")


def test_lanes_that_are_done_are_left_out_after_a_crash(rivals: Rivals, dsn: str) -> None:
    class Died(BaseException):
        pass

    @consumer(topics=[TOPIC], group="all", batch=True)
    def dies(events: Sequence[Recorded], transaction: Connection) -> None:
        write("all", events, transaction)
        if any(event.stream == "lsm.strip/0" for event in events):
            raise Died

    handler = writer(TOPIC, "all")
    wanted = round_of(rivals.messages, rivals.at, handler)
    with pytest.raises(Died):
        rivals.new(dies, 3).apply(wanted)
    one = rivals.new(handler, 3)
    done = one.offsets.done(one.connection(), Place(TOPIC, 0))
    assert 0 < len(done) < 40
    rest = round_of(rivals.messages, rivals.at, handler, done={Place(TOPIC, 0): done})
    assert len(rest.deliveries) == 40 - len(done)
    assert one.apply(rest).fenced == frozenset()
    assert not faults(effects(dsn, "all"), published(rivals))
    assert not one.offsets.done(one.connection(), Place(TOPIC, 0))


def test_a_deferred_constraint_parks_the_event_that_breaks_it(rivals: Rivals, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE effects ADD UNIQUE (version, stream) DEFERRABLE INITIALLY DEFERRED")
        connection.execute("INSERT INTO effects (reader, stream, version) VALUES ('x', 'lsm.strip/3', 2)")
    handler = writer(TOPIC, "all", batch=False)
    one = rivals.new(handler)
    outcome = one.apply(round_of(rivals.messages, rivals.at, handler))
    assert (outcome.failed[TOPIC], outcome.handled[TOPIC]) == (1, 36)
    assert one.parking.counts(one.connection()) == {"waiting": 1, "behind": 3}


@pytest.mark.parametrize("batch", [True, False])
def test_a_full_disk_parks_no_event(rivals: Rivals, dsn: str, batch: bool) -> None:
    """It is no fault of the event: the round is rolled back, and done again once there is room."""
    handler, is_full = writer(TOPIC, "all", batch=batch), [True]
    write_it = handler.handle

    def refused(events: Any, transaction: Connection) -> None:
        write_it(events, transaction)
        if is_full[0]:
            transaction.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$")

    one = rivals.new(replace(handler, handle=refused))
    wanted = round_of(rivals.messages, rivals.at, handler)
    with pytest.raises(psycopg.errors.DiskFull):
        one.apply(wanted)
    assert effects(dsn, "all") == []
    is_full[0] = False
    one.apply(wanted)
    assert not faults(effects(dsn, "all"), published(rivals))
    assert not one.parking.counts(one.connection())


def test_the_trace_of_an_event_is_current_in_its_handler(rivals: Rivals) -> None:
    from opentelemetry import trace

    parent, seen = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", list[str]()
    record = rivals.bus.records[Place(TOPIC, 0)][0]
    record.headers.append(("traceparent", parent.encode()))

    @consumer(topics=[TOPIC], group="traced")
    def traced(event: Recorded, transaction: Connection) -> None:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")

    rivals.new(traced).apply(round_of(rivals.messages, rivals.at, traced))
    assert seen[0] == "0af7651916cd43dd8448eb211c80319c"
    assert set(seen[1:]) == {"0" * 32}


def test_tables_of_newer_code_are_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert make_tables(connection) == make_tables(connection)
        connection.execute("INSERT INTO consumers.consumer_migrations VALUES (99)")
        with pytest.raises(SchemaMismatch, match="of migration 99"):
            make_tables(connection)


def test_a_group_with_a_bad_name_is_refused() -> None:
    with pytest.raises(ValueError, match="group"):

        @consumer(topics=[TOPIC], group="a b")
        def handle(event: Any, transaction: Connection) -> None: ...
