"""The relay: topics equal the log, whatever ends a relay, and it refuses what would break them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ledger
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.envelope import MAX_BODY, Outgoing, envelope_of
from consumers.kafka.relay.checkpoint import read_checkpoint
from consumers.kafka.relay.producer import Transactions
from consumers.kafka.relay.relay import BLOCK_BYTES, Relay, blocks_of
from consumers.kafka.routes import Routes
from consumers.kafka.topics import Topics
from ledger import Append, BadInput, Body, CursorMismatch, Ledger, TopicMismatch
from tests.kafka.conftest import SharedBroker
from tests.kafka.killed_relays import LEASE
from tests.kafka.reading import assert_published, records, topics_below
from tests.kafka.test_envelope import event

LIMIT = 60.0
ROOT = Path(__file__).parents[2]
NEVER = threading.Event()


def fill(log: Ledger, events: int, *categories: str, size: int = 10) -> int:
    """Record events of some streams of each category; the last position."""
    last = 0
    for at in range(0, events, 20):
        appends = [
            Append(f"{category}/{(at + number) % 13}", (body(at, size), body(at + 1, size)), ledger.ANY)
            for category in categories or ("job", "payment.card")
            for number in range(10 // len(categories or ("job", "payment.card")))
        ]
        last = log.append_all(appends, actor="mina").last_position
    return last


def body(number: int, size: int = 10) -> Body:
    return Body("thing.happened", 1, f'{{"n":{number},"t":"{"x" * size}"}}')


def relay_of(log: Ledger, broker: SharedBroker | Broker, prefix: str, **options: Any) -> Relay:
    options = dict(partitions=3, lease=LEASE) | options
    return Relay(log, Cluster.of(broker.bootstrap), prefix=prefix, **options)


def test_topics_hold_the_log(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    end = fill(log, 400)
    relay = relay_of(log, broker, kafka_name, block_events=70)
    relay.run(NEVER, until=end)
    found = assert_published(log, broker.bootstrap, kafka_name)
    assert relay.statistics.events == len(found)
    assert relay.statistics.blocks >= len(found) / 70
    assert topics_below(broker.bootstrap, kafka_name) == [f"{kafka_name}.jobs", f"{kafka_name}.payment"]
    checkpoint = read_checkpoint(relay.cluster, relay.routes)
    assert checkpoint is not None
    assert (checkpoint.cursor.position, checkpoint.count) == (end, len(found))
    assert sum(chain.count for chain in checkpoint.chains.values()) == len(found)


def test_a_second_life_goes_on_where_the_first_ended(
    log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    for categories in (("job",), ("job", "lsm.strip"), ("machine",)):
        relay = relay_of(log, broker, kafka_name)
        relay.run(NEVER, until=fill(log, 60, *categories))
    assert_published(log, broker.bootstrap, kafka_name)
    relay = relay_of(log, broker, kafka_name)
    relay.run(NEVER, until=relay_end(log))
    assert relay.statistics.events == 0


def test_it_ends_where_the_last_appends_were_rolled_back(
    log: Ledger, broker: SharedBroker, kafka_name: str, connection: psycopg.Connection[Any]
) -> None:
    """Given positions that no event has, behind the last one: nothing more will come up to there."""
    last = fill(log, 40)
    with connection.transaction(force_rollback=True), log.join(connection) as joined:
        joined.append("job/never", body(1))
    assert log.bound() > last
    relay = relay_of(log, broker, kafka_name)
    relay.run(NEVER, until=log.bound())
    assert relay.statistics.published == last


def relay_end(log: Ledger) -> int:
    with log.reader() as connection:
        row = connection.execute("SELECT max(position) FROM ledger.events").fetchone()
    assert row is not None
    return int(row[0])


def test_it_publishes_while_events_come(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    stop, relay = threading.Event(), relay_of(log, broker, kafka_name)
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        for _ in range(5):
            end = fill(log, 40)
            wait_until(lambda end=end: relay.statistics.published >= end)  # type: ignore[misc]
    finally:
        stop.set()
        thread.join(LIMIT)
    assert not thread.is_alive()
    assert_published(log, broker.bootstrap, kafka_name)


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_begins_after_a_position_and_ends_at_one(
    log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    begin, end = fill(log, 60), fill(log, 60)
    fill(log, 60)
    relay_of(log, broker, kafka_name, start=begin).run(NEVER, until=end)
    found = records(broker.bootstrap, *topics_below(broker.bootstrap, kafka_name))
    positions = {int(one.headers["ce_ledgerposition"]) for one in found}
    assert (min(positions) > begin, max(positions)) == (True, end)
    relay_of(log, broker, kafka_name, start=begin).run(NEVER, until=relay_end(log))
    assert_published(log, broker.bootstrap, kafka_name, after=begin)
    with pytest.raises(TopicMismatch, match=f"begin after position {begin}, not after 0"):
        relay_of(log, broker, kafka_name, start=0).run(NEVER, until=end)


def test_a_body_that_is_too_large_stays_in_the_ledger(
    log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    fill(log, 20, "job")
    large = log.append("job/large", body(1, 2 * MAX_BODY), actor="mina").last_position
    end = fill(log, 20, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    found = {
        int(one.headers["ce_ledgerposition"]): one for one in records(broker.bootstrap, f"{kafka_name}.jobs")
    }
    assert found[large].value == b""
    envelope = envelope_of(found[large].key, b"", found[large].headers.items())
    assert envelope.by_reference
    assert envelope.event.meta.actor == "mina"
    assert len(found) == 41


def test_a_block_ends_with_the_event_that_fills_it() -> None:
    sizes = [10, BLOCK_BYTES - 5, 3, BLOCK_BYTES, 4, 4]
    events = [event(position=place, data="x" * size) for place, size in enumerate(sizes)]
    assert [len(block) for block in blocks_of(events)] == [2, 2, 2]
    assert [one for block in blocks_of(events) for one in block] == events
    assert list(blocks_of([])) == []


# What ends a relay


@pytest.mark.slow  # the campaign of each run does the same
def test_a_relay_that_is_killed_again_and_again(
    dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    end = fill(log, 8_000)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.kafka.killed_relays",
        dsn,
        broker.bootstrap,
        kafka_name,
    ]
    run = subprocess.run(
        [*command, str(end), "5", str(time.time_ns())], cwd=ROOT, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 0, "no relay was killed: more events, or shorter lives"
    assert_published(log, broker.bootstrap, kafka_name)


@contextmanager
def relaying(dsn: str, broker: SharedBroker | Broker, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    """A relay in a process of its own."""
    code = "import sys; from tests.kafka.killed_relays import publish; publish(*sys.argv[1:], 1 << 62)"
    command = [sys.executable, "-W", "ignore", "-c", code, dsn, broker.bootstrap, prefix]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_frozen_relay_is_followed_and_fenced(
    dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    cluster, routes = Cluster.of(broker.bootstrap), Routes(kafka_name)
    end = fill(log, 100)
    with relaying(dsn, broker, kafka_name) as zombie:
        wait_until(lambda: published_to(cluster, routes) >= end)
        fill(log, 400)
        os.kill(zombie.pid, signal.SIGSTOP)
        end = fill(log, 100)
        successor = relay_of(log, broker, kafka_name)
        successor.run(NEVER, until=end)
        os.kill(zombie.pid, signal.SIGCONT)
        end = fill(log, 100)
        wait_until(lambda: published_to(cluster, routes) >= end)
        assert zombie.poll() is None
    assert_published(log, broker.bootstrap, kafka_name)


def published_to(cluster: Cluster, routes: Routes) -> int:
    found = read_checkpoint(cluster, routes)
    return 0 if found is None else found.cursor.position


def test_two_relays_at_once(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    stop = threading.Event()
    relays = [relay_of(log, broker, kafka_name) for _ in range(2)]
    threads = [threading.Thread(target=relay.run, args=(stop,)) for relay in relays]
    for thread in threads:
        thread.start()
    try:
        end = fill(log, 400)
        wait_until(lambda: max(relay.statistics.published for relay in relays) >= end)
        idle = min(relays, key=lambda relay: relay.statistics.lives)
        assert idle.statistics.lives == 0, "only the elected one begins"
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT)
    assert_published(log, broker.bootstrap, kafka_name)


def test_two_relays_that_are_both_elected_fence_each_other(
    log: Ledger, broker: SharedBroker, kafka_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election is for peace only: without it the topics are whole all the same."""
    monkeypatch.setattr("consumers.election.Candidate.is_elected", True)
    stop = threading.Event()
    relays = [relay_of(log, broker, kafka_name, block_events=20) for _ in range(2)]
    threads = [threading.Thread(target=relay.run, args=(stop,)) for relay in relays]

    def met() -> bool:
        """Whether one of them was fenced and began anew; there is always something left to publish."""
        fill(log, 1)
        return sum(relay.statistics.lives for relay in relays) > 2

    for thread in threads:
        thread.start()
    try:
        wait_until(met)
        end = fill(log, 40)
        wait_until(lambda: max(relay.statistics.published for relay in relays) >= end)
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert_published(log, broker.bootstrap, kafka_name)


@pytest.mark.slow  # the campaign of each run does the same
def test_the_broker_is_away(log: Ledger, own_broker: Broker, kafka_name: str) -> None:
    stop, relay = threading.Event(), relay_of(log, own_broker, kafka_name)
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        end = fill(log, 100)
        wait_until(lambda: relay.statistics.published >= end)
        own_broker.terminate(1)
        end = fill(log, 100)
        wait_until(lambda: relay.statistics.error is not None)
        own_broker.start(1)
        wait_until(lambda: relay.statistics.published >= end)
    finally:
        stop.set()
        thread.join(LIMIT)
    assert_published(log, own_broker.bootstrap, kafka_name)


# What it refuses


def test_a_topic_that_was_made_anew_is_refused(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    end = fill(log, 40, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    cluster, name = Cluster.of(broker.bootstrap), f"{kafka_name}.jobs"
    with cluster.admin() as admin:
        admin.delete_topics([name])
    wait_until(lambda: name not in Topics(cluster).found([name]))
    with pytest.raises(TopicMismatch, match="was deleted since"):
        relay_of(log, broker, kafka_name).run(NEVER, until=end)
    Topics(cluster, partitions=3).ensure(name)
    with pytest.raises(TopicMismatch, match="made anew"):
        relay_of(log, broker, kafka_name).run(NEVER, until=end)


def test_other_partitions_are_refused(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    end = fill(log, 40, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    with Cluster.of(broker.bootstrap).admin() as admin:
        admin.create_partitions({f"{kafka_name}.jobs": 4})
    with pytest.raises(TopicMismatch, match="has 4 partitions, but had 3"):
        relay_of(log, broker, kafka_name).run(NEVER, until=end)


def test_a_topic_that_forgets_is_refused(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    Topics(Cluster.of(broker.bootstrap), partitions=3).ensure(f"{kafka_name}.jobs", {"retention.ms": "1000"})
    with pytest.raises(TopicMismatch, match="--add-config"):
        relay_of(log, broker, kafka_name).run(NEVER, until=fill(log, 40, "job"))


def test_records_of_another_are_refused(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    cluster, name = Cluster.of(broker.bootstrap), f"{kafka_name}.jobs"
    Topics(cluster, partitions=3).ensure(name)
    with Transactions(cluster, f"{kafka_name}-x") as transactions:
        transactions.fence()
        transactions.publish([Outgoing(name, 0, b"k", b"v", [])])
    with pytest.raises(TopicMismatch, match="has records, but the relay's checkpoint does not know it"):
        relay_of(log, broker, kafka_name).run(NEVER, until=fill(log, 40, "job"))


def test_an_empty_topic_is_taken_over(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    """It may be of a relay that ended before its first block was published."""
    Topics(Cluster.of(broker.bootstrap), partitions=5).ensure(f"{kafka_name}.jobs")
    relay_of(log, broker, kafka_name).run(NEVER, until=fill(log, 40, "job"))
    found = assert_published(log, broker.bootstrap, kafka_name)
    assert {one.partition for one in found} > {3}


def test_a_relay_of_another_name_is_refused(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    end = fill(log, 40, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    with pytest.raises(TopicMismatch, match="published by the relay 'main', not by 'second'"):
        relay_of(log, broker, kafka_name, name="second").run(NEVER, until=end)
    with pytest.raises(BadInput):
        relay_of(log, broker, kafka_name, name="")


def test_other_routing_is_refused(
    log: Ledger, broker: SharedBroker, kafka_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = fill(log, 40, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    monkeypatch.setattr("consumers.kafka.relay.relay.ROUTING", 2)
    with pytest.raises(TopicMismatch, match="routed by rule 1, this relay has rule 2"):
        relay_of(log, broker, kafka_name).run(NEVER, until=end)


def test_a_history_that_was_rolled_back_is_refused(
    log: Ledger, admin_dsn: str, broker: SharedBroker, kafka_name: str
) -> None:
    end = fill(log, 40, "job")
    relay_of(log, broker, kafka_name).run(NEVER, until=end)
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM ledger.events WHERE position = %s", (end,))
    with pytest.raises(CursorMismatch):
        relay_of(log, broker, kafka_name).run(NEVER, until=end + 1)


def test_ledgers_share_a_cluster_and_not_a_prefix(
    log: Ledger, dsn: str, broker: SharedBroker, kafka_name: str
) -> None:
    with ledger.connect(dsn, schema="other", create=True) as other:
        assert other.identity.ledger != log.identity.ledger
        ends = {f"{kafka_name}-a": (log, fill(log, 60)), f"{kafka_name}-b": (other, fill(other, 80))}
        for prefix, (one, end) in ends.items():
            relay_of(one, broker, prefix).run(NEVER, until=end)
        for prefix, (one, _) in ends.items():
            assert_published(one, broker.bootstrap, prefix)
        with pytest.raises(TopicMismatch, match="are those of ledger"):
            relay_of(other, broker, f"{kafka_name}-a").run(NEVER, until=1)


def test_a_relay_of_another_ledger_fences_nobody(
    log: Ledger, dsn: str, broker: SharedBroker, kafka_name: str
) -> None:
    stop, relay = threading.Event(), relay_of(log, broker, kafka_name)
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        end = fill(log, 40)
        wait_until(lambda: relay.statistics.published >= end)
        with ledger.connect(dsn, schema="other", create=True) as other, pytest.raises(TopicMismatch):
            relay_of(other, broker, kafka_name).run(NEVER, until=1)
        end = fill(log, 40)
        wait_until(lambda: relay.statistics.published >= end)
    finally:
        stop.set()
        thread.join(LIMIT)
    assert relay.statistics.lives == 1
