"""Consumers of a real broker: each effect once, in the order of its key, through kills and rebalances."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kafka.protocol.consumer import SyncGroupRequest

from consumers.kafka import consumer
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.client import Place, Transport
from consumers.kafka.consumer_group.consumer import Consumer
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.consumer_group.kafka_member import KafkaMember
from consumers.kafka.consumer_group.parking import letters, redrive
from consumers.kafka.consumer_group.rewind import Target, rewind
from consumers.kafka.topics import Topics
from ledger import Recorded
from ledger.errors import GroupRuns, KafkaFailed

from .oracle import effects, faults, make_table, write, writer
from .publishing import Publisher

ROOT = Path(__file__).parents[2]
LIMIT = 90.0
QUICK: dict[str, Any] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 500,
}


@pytest.fixture
def cluster(broker: Any) -> Cluster:
    return Cluster(broker.bootstrap)


@pytest.fixture
def publisher(cluster: Cluster, kafka_name: str, dsn: str) -> Iterator[Publisher]:
    make_table(dsn)
    with Publisher(cluster, f"{kafka_name}.lsm") as made:
        yield made


def until(holds: Callable[[], object], seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.02)


@contextmanager
def running(
    cluster: Cluster | Transport,
    handler: Handler,
    dsn: str,
    fails: type[Exception] | None = None,
    **options: Any,
) -> Iterator[Consumer]:
    """A consumer in a thread; what ended it is raised at the end. fails: the error that must end it."""
    options.setdefault("client", QUICK)
    stop, errors = threading.Event(), list[BaseException]()
    one = Consumer(cluster, handler, dsn, **options)

    def live() -> None:
        try:
            one.run(stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        stop.set()
        thread.join(LIMIT)
    assert not thread.is_alive()
    if fails is not None:
        assert [type(error) for error in errors] == [fails]
    elif errors:
        raise errors[0]


def streams(events: int, keys: int = 20) -> list[str]:
    return [f"lsm.strip/{nr % keys}" for nr in range(events)]


def test_a_slow_handler_stays_in_its_group(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @consumer(topics=[publisher.topic], group=kafka_name)
    def slow(event: Recorded, transaction: Connection) -> None:
        begun.set()
        assert go_on.wait(LIMIT)
        write(kafka_name, [event], transaction)

    published = publisher.publish(["lsm.strip/a", "lsm.strip/b"])
    limits = {**QUICK, "max_poll_interval_ms": 1_500}
    with (
        running(cluster, slow, dsn, client=limits) as one,
        running(cluster, slow, dsn, client=limits) as other,
    ):
        assert begun.wait(LIMIT)
        began = time.monotonic()
        until(lambda: time.monotonic() > began + 3)  # longer than a member may leave off polling
        go_on.set()
        until(lambda: len(effects(dsn, kafka_name)) == 2)
        fenced = [m.metrics.fenced.collect()[0].samples[0].value for m in (one, other)]
    assert not faults(effects(dsn, kafka_name), published)
    assert fenced == [0, 0]


def test_a_key_that_fails_is_parked_and_redriven(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str
) -> None:
    bad = {7}
    fails = failing(publisher.topic, kafka_name, bad, attempts=2)
    published = publisher.publish(streams(60, 6))
    stream = published[6].stream
    rest = [event for event in published if event.stream != stream or event.position < 7]
    with running(cluster, fails, dsn), psycopg.connect(dsn, autocommit=True) as connection:
        until(lambda: len(effects(dsn, kafka_name)) == len(rest))
        until(lambda: letters(connection) and letters(connection)[0].behind == 9 - (7 - 1) // 6)
        assert not faults(effects(dsn, kafka_name), rest)
        (dead,) = letters(connection)
        assert (dead.position, dead.attempts, dead.error) == (7, 2, "RuntimeError")
        until(lambda: _published(connection))
        bad.clear()
        redrive(connection, dead)
        until(lambda: len(effects(dsn, kafka_name)) == 60)
    assert not faults(effects(dsn, kafka_name), published)
    (copy,) = records(cluster, f"{publisher.topic}.{kafka_name}.dlq", 1)
    told = dict(copy.headers)
    assert copy.key == stream.encode()
    assert told["__dlq.errors.exception.message"] == b"position 7"
    assert told["ce_ledgerposition"] == b"7"


def _published(connection: psycopg.Connection[Any]) -> bool:
    return bool(connection.execute("SELECT FROM consumers.parked WHERE published_at IS NOT NULL").fetchall())


def records(cluster: Cluster, topic: str, count: int) -> list[Any]:
    from kafka import KafkaConsumer, TopicPartition

    client = KafkaConsumer(**cluster.options(), auto_offset_reset="earliest", metrics_enabled=False)
    client.assign([TopicPartition(topic, 0)])
    found: list[Any] = []
    until(lambda: found.extend(r for some in client.poll(200).values() for r in some) or len(found) >= count)
    client.close()
    return found


def test_a_topic_that_is_made_later_is_read(cluster: Cluster, dsn: str, kafka_name: str) -> None:
    make_table(dsn)
    topic = f"{kafka_name}.later"
    with running(cluster, writer(topic, kafka_name), dsn) as one:
        until(lambda: one.why_not_ready is None)
        with Publisher(cluster, topic) as publisher:
            published = publisher.publish(streams(20))
            until(lambda: len(effects(dsn, kafka_name)) == 20)
    assert not faults(effects(dsn, kafka_name), published)


def test_rewind(cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str) -> None:
    published = publisher.publish(streams(100), block=7)
    handler = writer(publisher.topic, kafka_name)
    with running(cluster, handler, dsn) as one, psycopg.connect(dsn, autocommit=True) as connection:
        until(lambda: len(effects(dsn, kafka_name)) == 100)
        with pytest.raises(GroupRuns):
            rewind(cluster, connection, kafka_name, [publisher.topic], Target(end=False))
        at = dict(one.at)
    with psycopg.connect(dsn, autocommit=True) as connection:
        topics = [publisher.topic]
        shown = rewind(cluster, connection, kafka_name, topics, Target(position=61), dry_run=True)
        assert [step.old for step in shown] == [
            at[Place(step.topic, step.partition)].next_offset for step in shown
        ]
        by_time = rewind(
            cluster, connection, kafka_name, topics, Target(at=published[60].recorded_at), dry_run=True
        )
        assert [step.new for step in by_time] == [step.new for step in shown]
        assert rewind(cluster, connection, kafka_name, topics, Target(position=61)) == shown
        connection.execute("DELETE FROM effects")
    with running(cluster, handler, dsn):
        until(lambda: len(effects(dsn, kafka_name)) == 40)
    found = effects(dsn, kafka_name)
    assert sorted(position for _, _, position in found) == list(range(61, 101))
    with psycopg.connect(dsn, autocommit=True) as connection:
        start = rewind(cluster, connection, kafka_name, topics, Target(end=False))
        assert {step.new for step in start} == {0}
        end = rewind(cluster, connection, kafka_name, topics, Target(end=True))
        assert sum(step.new for step in end) >= 100


def test_the_double_of_a_static_member_displaces_it(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str
) -> None:
    handler = writer(publisher.topic, kafka_name)
    publisher.publish(streams(10))
    with running(cluster, handler, dsn, instance="one", fails=KafkaFailed) as first:
        until(lambda: len(effects(dsn, kafka_name)) == 10)
        with running(cluster, handler, dsn, instance="one"):
            until(lambda: first.why_not_ready == "it has ended")
            publisher.publish(streams(10))
            until(lambda: len(effects(dsn, kafka_name)) == 20)
    assert not faults(effects(dsn, kafka_name), publisher.published)


class Pack:
    """Consumers in processes of their own, of one group, that are killed and started again."""

    def __init__(self, settings: dict[str, Any], many: int, *, static: bool) -> None:
        self.settings, self.static = settings, static
        self.processes = [self._start(nr) for nr in range(many)]

    def _start(self, nr: int) -> subprocess.Popen[bytes]:
        settings = {**self.settings, "instance": f"member-{nr}" if self.static else None}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.consuming", json.dumps(settings)], cwd=ROOT
        )

    def kill(self, nr: int) -> None:
        """SIGKILL, and another one in its place."""
        self.processes[nr].kill()
        self.processes[nr].wait()
        self.processes[nr] = self._start(nr)

    def leave(self, nr: int) -> None:
        """SIGTERM, and another one in its place: two rebalances, where members are not static."""
        self.processes[nr].terminate()
        assert self.processes[nr].wait(LIMIT) in (0, -signal.SIGTERM)  # that: before it had begun
        self.processes[nr] = self._start(nr)

    def freeze(self, nr: int, seconds: float) -> None:
        """SIGSTOP for so long: then it is a zombie, and goes on."""
        self.processes[nr].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[nr].send_signal(signal.SIGCONT)

    def end(self) -> list[int]:
        """SIGTERM; how they ended."""
        for one in self.processes:
            one.terminate()
        return [one.wait(LIMIT) for one in self.processes]

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.processes:
            one.kill()
            one.wait()


def test_killed_in_the_middle_of_work(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str
) -> None:
    settings = {"bootstrap": cluster.bootstrap, "topic": publisher.topic, "group": kafka_name, "dsn": dsn}
    with Pack({**settings, "concurrency": 3}, 2, static=True) as pack:
        for nr in range(2):
            wanted = len(publisher.published)
            publisher.publish(streams(1000, 30))
            until(lambda n=wanted: len(effects(dsn, kafka_name)) > n)  # type: ignore[misc]
            pack.kill(nr)
        until(lambda: len(effects(dsn, kafka_name)) >= len(publisher.published))
    assert not faults(effects(dsn, kafka_name), publisher.published)


def test_rebalanced_in_the_middle_of_work(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str
) -> None:
    handler = writer(publisher.topic, kafka_name)
    publisher.publish(streams(2000, 30))
    with running(cluster, handler, dsn, batch=20):
        until(lambda: effects(dsn, kafka_name))
        for _ in range(2):
            with running(cluster, handler, dsn, batch=20) as other:
                until(lambda other=other: other.at)  # type: ignore[misc]
                publisher.publish(streams(500, 30))
        until(lambda: len(effects(dsn, kafka_name)) >= len(publisher.published))
    assert not faults(effects(dsn, kafka_name), publisher.published)


def failing(topic: str, group: str, at: set[int], **options: Any) -> Handler:
    """A handler that fails at some positions, after its effect."""

    @consumer(topics=[topic], group=group, delay=0.01, **options)
    def fails(event: Recorded, transaction: Connection) -> None:
        write(group, [event], transaction)
        if event.position in at:
            raise RuntimeError(f"position {event.position}")

    return fails


@pytest.mark.slow  # the campaign of each run does the same
def test_brokers_and_database_go_away_and_come_back(own_broker: Broker, dsn: str, kafka_name: str) -> None:
    make_table(dsn)
    cluster = Cluster.of(own_broker.bootstrap)
    topic = f"{kafka_name}.lsm"
    with Publisher(cluster, topic) as publisher:
        published = publisher.publish(streams(300))
    with running(cluster, writer(topic, kafka_name, batch=False), dsn, batch=20) as one:
        until(lambda: len(effects(dsn, kafka_name)) > 20)
        own_broker.kill(1)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'pledger consumer%' AND datname = current_database()"
            )
        until(lambda: one.why_not_ready)
        own_broker.start(1)
        until(lambda: len(effects(dsn, kafka_name)) >= 300)
        until(lambda: one.why_not_ready is None)
    assert not faults(effects(dsn, kafka_name), published)


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 3])
def test_killed_frozen_and_rebalanced_for_minutes(
    cluster: Cluster, publisher: Publisher, dsn: str, kafka_name: str, minutes: float, concurrency: int
) -> None:
    chance, count = random.Random(), dict.fromkeys(("kill", "leave", "freeze"), 0)
    settings = {
        "bootstrap": cluster.bootstrap,
        "topic": publisher.topic,
        "group": kafka_name,
        "dsn": dsn,
        "idle": 3,
        "concurrency": concurrency,
    }
    end = time.monotonic() + 60 * min(minutes, 2)  # the campaign of test_campaign.py does the most of it
    with Pack(settings, 2, static=True) as static, Pack(settings, 2, static=False) as free:
        while time.monotonic() < end:
            publisher.publish(streams(1000, 50))
            pack = chance.choice([static, free])
            fault = chance.choices(list(count), [6, 3, 1])[0]
            count[fault] += 1
            if fault == "freeze":
                pack.freeze(chance.randrange(2), 8.0)
            else:
                getattr(pack, fault)(chance.randrange(2))
            wanted = min(len(effects(dsn, kafka_name)) + 200, len(publisher.published))
            until(lambda wanted=wanted: len(effects(dsn, kafka_name)) >= wanted)  # type: ignore[misc]
        until(lambda: len(effects(dsn, kafka_name)) >= len(publisher.published))
        static.end()
        free.end()
    found = effects(dsn, kafka_name)
    print(f"{count}, {len(found)} effects of {len(publisher.published)} events")
    assert not faults(found, publisher.published)


def test_a_join_that_outlasts_a_poll_is_finished(cluster: Cluster, kafka_name: str) -> None:
    """It begins because a topic was made after the first one, and so no poll begins another."""
    member = KafkaMember(cluster, [f"{kafka_name}.later"], kafka_name, None, QUICK)
    with closing(member):
        coordinator = member._client._coordinator
        until(lambda: member.poll(0.05, 1) == {} and member.is_joined and coordinator._join_task is None)
        held, go_on = hold_answers(coordinator._manager, SyncGroupRequest)
        Topics(cluster).ensure(f"{kafka_name}.later", partitions=1)
        until(lambda: member.poll(0.05, 1) == {} and held.is_set())
        go_on.set()
        until(lambda: member.poll(0.05, 1) == {} and member.assigned())


def hold_answers(manager: Any, kind: type[Any]) -> tuple[threading.Event, threading.Event]:
    """Hold back the answers to a kind of request: an event that is set when one is held, and one to go on."""
    held, go_on, send = threading.Event(), threading.Event(), manager.send

    async def hold(answered: Any) -> Any:
        answer = await answered
        while not go_on.is_set():
            held.set()
            await manager._net.sleep(0.01)
        return answer

    def sent(request: Any, *args: Any, **options: Any) -> Any:
        answered = send(request, *args, **options)
        return manager.call_soon(lambda: hold(answered)) if isinstance(request, kind) else answered

    manager.send = sent
    return held, go_on
