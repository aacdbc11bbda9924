"""Consumers on a bus in memory: exactly once whatever fails, key by key; parked keys are redriven."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from pydantic import BaseModel

from consumers.kafka import Consumed, Faults, MemoryBus, consumer
from consumers.kafka.consumer_group.client import Place
from consumers.kafka.consumer_group.consumer import Consumer
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.consumer_group.parking import discard, letter, letters, redrive
from ledger import Recorded
from ledger.errors import ChainBroken
from projections.metrics_server import serving

from .oracle import effects, faults, make_table, write, writer

TOPIC = "ledger.lsm"


@pytest.fixture(autouse=True)
def _table(dsn: str) -> None:
    make_table(dsn)


def filled(bus: MemoryBus, events: int = 300, streams: int = 20) -> list[Recorded]:
    return [
        bus.publish(f"lsm.strip/{nr % streams}", "lsm.strip.completed", {"n": nr}) for nr in range(events)
    ]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_each_effect_once_whatever_fails(dsn: str, seed: int, concurrency: int) -> None:
    bus = MemoryBus(seed=seed, faults=Faults(duplicates=0.1, rebalances=30, crashes=15, delays=20))
    published = filled(bus)
    bus.drain(writer(TOPIC, "all"), dsn, members=3, concurrency=concurrency, batch=20)
    assert not faults(effects(dsn, "all"), published)


def failing(dsn: str, at: set[int], **options: Any) -> Handler:
    @consumer(topics=[TOPIC], group="some", delay=0.0, **options)
    def write_but(event: Recorded, transaction: Connection) -> None:
        write("some", [event], transaction)
        if event.position in at:
            raise ValueError(f"position {event.position}")

    return write_but


def test_a_failed_event_is_tried_again_and_holds_up_its_key_only(dsn: str) -> None:
    bus, at = MemoryBus(), {5}
    published = filled(bus, 60, 6)
    handler = failing(dsn, at, attempts=3)
    bus.drain(handler, dsn)
    done = effects(dsn, "some")
    stream = published[4].stream
    assert not faults([one for one in done if one[0] != stream], [e for e in published if e.stream != stream])
    assert not [one for one in done if one[0] == stream and one[2] >= 5]
    with psycopg.connect(dsn, autocommit=True) as connection:
        (dead,) = letters(connection)
        assert (dead.position, dead.attempts, dead.error, dead.message) == (5, 3, "ValueError", "position 5")
        assert dead.behind == 9
        assert [one.topic for one in bus.letters] == ["ledger.lsm.some.dlq"]
        told = dict(bus.letters[0].headers)
        assert told["__dlq.errors.exception.class.name"] == b"ValueError"
        assert told["__dlq.errors.offset"] == b"%d" % dead.offset
        at.clear()
        assert redrive(connection, dead)
    bus.drain(handler, dsn)
    assert not faults(effects(dsn, "some"), published)


def test_a_discarded_letter_lets_the_others_go_on(dsn: str) -> None:
    bus = MemoryBus()
    published = filled(bus, 30, 3)
    handler = failing(dsn, {4}, attempts=1)
    bus.drain(handler, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        (dead,) = letters(connection)
        shown = letter(connection, "some", dead.place, dead.offset)
        assert shown is not None
        assert shown.headers["ce_type"] == b"lsm.strip.completed"
        assert "raise ValueError" in (shown.trace or "")
        assert discard(connection, dead)
        assert not discard(connection, dead)
    bus.drain(handler, dsn)
    assert not faults(effects(dsn, "some"), [event for event in published if event.position != 4])


class Numbered(BaseModel):
    n: int


def test_what_cannot_be_read_is_parked_at_once(dsn: str) -> None:
    bus = MemoryBus(partitions=1)
    bus.publish("lsm.strip/a", "lsm.strip.completed", {"n": 1})
    bus.publish("lsm.strip/b", "lsm.strip.completed", {"n": "x"})
    bus.publish("lsm.strip/b", "lsm.strip.completed", {"n": 3})
    bus.add(Place(TOPIC, 0), None, b"\xff", [("x", b"y")])
    bus.publish("lsm.strip/c", "lsm.strip.completed", {"n": 4})
    seen = []

    @consumer(topics=[TOPIC], model=Numbered)
    def numbers(event: Consumed[Numbered], transaction: Connection) -> None:
        seen.append((event.stream, event.body.n))

    bus.drain(numbers, dsn)
    assert seen == [("lsm.strip/a", 1), ("lsm.strip/c", 4)]
    with psycopg.connect(dsn) as connection:
        found = {one.offset: one for one in letters(connection)}
    assert found[1].attempts == 0
    assert "does not fit Numbered: n:" in (found[1].message or "")
    assert (found[1].behind, found[3].behind) == (1, 0)
    assert "no record of a relay" in (found[3].message or "")


def test_a_gap_ends_the_consumer_after_what_came_before(dsn: str) -> None:
    bus = MemoryBus(partitions=1)
    published = filled(bus, 20)
    del bus.records[Place(TOPIC, 0)][10]
    records = bus.records[Place(TOPIC, 0)]
    records[:] = [one._replace(offset=nr) for nr, one in enumerate(records)]
    with pytest.raises(ChainBroken) as gap:
        bus.drain(writer(TOPIC, "gap"), dsn)
    assert (gap.value.offset, gap.value.expected, gap.value.found) == (10, 10, 11)
    assert not faults(effects(dsn, "gap"), published[:10])


def test_events_that_are_not_wanted_are_passed_over(dsn: str) -> None:
    bus = MemoryBus()
    bus.publish("lsm.strip/a", "lsm.strip.started", {})
    published = [bus.publish("lsm.strip/a", "lsm.strip.completed", {})]
    bus.drain(writer(TOPIC, "few", events=["lsm.strip.completed"]), dsn)
    found = effects(dsn, "few")
    assert [one[2] for one in found] == [event.position for event in published]


def test_a_new_group_may_begin_at_the_end(dsn: str) -> None:
    bus = MemoryBus()
    filled(bus, 10)
    handler = writer(TOPIC, "late", start="latest")
    bus.drain(handler, dsn)
    assert effects(dsn, "late") == []
    published = bus.publish("lsm.strip/a", "lsm.strip.completed", {})
    bus.drain(handler, dsn)
    assert [one[2] for one in effects(dsn, "late")] == [published.position]


def test_metrics_and_readiness(dsn: str) -> None:
    bus, stop = MemoryBus(faults=Faults(duplicates=1.0)), threading.Event()
    filled(bus, 30, 3)
    one = Consumer(bus, failing(dsn, {4}, attempts=2), dsn)
    assert one.why_not_ready == "it has not yet joined its group"
    with serving(one.metrics.registry, 0, lambda: one.why_not_ready) as port:
        thread = threading.Thread(target=one.run, args=(stop,))
        thread.start()
        bus.drain(failing(dsn, {4}, attempts=2), dsn)
        stop.set()
        thread.join()
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{port}/ready")
        assert refused.value.code == 503
        assert json.load(refused.value)["why"] == "it has ended"
        refused.value.close()
    assert "pledger_consumer_round_seconds_count" in text
