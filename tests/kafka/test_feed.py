"""A view fed from Kafka, in a database without a log, equals the view that follows the log."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import ledger
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.feed import KafkaFeed
from consumers.kafka.relay.checkpoint import read_checkpoint
from consumers.kafka.routes import Routes
from ledger import BadInput, Body, EventsMissing, Ledger, TopicMismatch, ViewFailed
from ledger.domain.topics import TopicStatus
from ledger.jobs import Jobs
from ledger.log.announce import announce, announce_statuses
from ledger.log.install import init
from ledger.pipelines import LSMStateService
from projections.engine.projector import Projector, views_named
from projections.shipped import load
from tests.jobs.conftest import eventually
from tests.kafka.conftest import SharedBroker
from tests.kafka.feeding import VIEWS, feeding
from tests.kafka.relaying import relay_all, relaying
from tests.views.lamps import lamps


@pytest.fixture
def elsewhere(dsn: str) -> Iterator[Ledger]:
    """A place for views only: an empty ledger, with an id of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection, "copies")
    with ledger.connect(dsn, schema="copies", actor="feed") as opened:
        yield opened


def rows(connection: psycopg.Connection[Any], schema: str, table: str) -> list[tuple[Any, ...]]:
    """All rows of a view's table."""
    return connection.execute(f"SELECT * FROM {schema}.{table} t ORDER BY t::text").fetchall()


def assert_equal(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    """The fed views equal those that follow."""
    load()
    views = views_named(VIEWS)
    Projector(log, views).catch_up()
    for view in views:
        for table in view.table_names:
            assert rows(connection, "copies_views", table) == rows(connection, "ledger_views", table), table


def feed(elsewhere: Ledger, cluster: Cluster, prefix: str, until: int) -> KafkaFeed:
    """Feed all views up to a position."""
    load()
    fed = KafkaFeed(elsewhere, views_named(VIEWS), cluster, prefix)
    fed.run(threading.Event(), until=until)
    return fed


def test_it_equals_the_view_that_follows(
    log: Ledger, elsewhere: Ledger, connection: psycopg.Connection[Any], broker: SharedBroker, kafka_name: str
) -> None:
    """In several goes, over topics of several domains; what was fed is not fed again."""
    cluster, jobs, service = Cluster.of(broker.bootstrap), Jobs(log), LSMStateService(log)
    lamps(log, 9)
    relay_all(log, cluster, kafka_name, block_events=7)
    first = feed(elsewhere, cluster, kafka_name, log.bound())
    assert first.position == log.bound()
    for n in range(5):
        jobs.cancel(jobs.submit("ping", {"n": n}))
        with service.open_strip("mouse 12", slice_id=1, strip_id=n, channel_id=0) as strip:
            strip.mark_completed()
    relay_all(log, cluster, kafka_name, block_events=3)
    second = feed(elsewhere, cluster, kafka_name, log.bound())
    assert first.events + second.events == len(log.log(0, log.bound(), 10_000))
    assert_equal(log, connection)


def test_a_feed_that_begins_before_the_relay_waits_for_it(
    log: Ledger, elsewhere: Ledger, connection: psycopg.Connection[Any], broker: SharedBroker,
    kafka_name: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cluster = Cluster.of(broker.bootstrap)
    lamps(log, 9)
    load()
    fed = KafkaFeed(elsewhere, views_named(VIEWS), cluster, kafka_name)
    thread = threading.Thread(target=fed.run, args=[threading.Event(), log.bound()])
    thread.start()
    eventually(lambda: "no relay has published anything" in caplog.text)
    relay_all(log, cluster, kafka_name)
    thread.join(60)
    assert fed.position == log.bound()
    assert_equal(log, connection)


@pytest.mark.slow
def test_feeds_that_are_killed(
    log: Ledger,
    elsewhere: Ledger,
    connection: psycopg.Connection[Any],
    broker: SharedBroker,
    kafka_name: str,
    dsn: str,
) -> None:
    """Half-way, again and again, while the relay publishes: each event counts once."""
    cluster = Cluster.of(broker.bootstrap)
    load()
    announce(elsewhere)  # what tests of this process have imported; a killed feed knows less
    lamps(log, 50)
    with relaying(log, cluster, kafka_name, block_events=20):
        for round in range(2):
            with feeding(dsn, broker.bootstrap, kafka_name) as process:
                lamps(log, 100 + round, first=10)
                wait_for_more(connection)
                process.kill()
        lamps(log, 60)
    relay_all(log, cluster, kafka_name)
    feed(elsewhere, cluster, kafka_name, log.bound())
    assert fed_events(connection) == len(log.log(0, log.bound(), 100_000))
    assert_equal(log, connection)


def wait_for_more(connection: psycopg.Connection[Any]) -> None:
    """Wait until more events are applied."""
    before = fed_events(connection)
    eventually(lambda: fed_events(connection) > before)


def fed_events(connection: psycopg.Connection[Any]) -> int:
    """How many events the fed view has applied."""
    row = connection.execute("SELECT coalesce(max(events), 0) FROM copies.view_copies").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
def test_a_broker_that_is_restarted(
    log: Ledger, elsewhere: Ledger, connection: psycopg.Connection[Any], own_broker: Broker, kafka_name: str
) -> None:
    """Feed and relay wait for it, and go on.

    The client leaves sockets of attempts that failed to the garbage collector.
    """
    cluster, stop = Cluster.of(own_broker.bootstrap), threading.Event()
    lamps(log, 5)
    load()
    with relaying(log, cluster, kafka_name):
        fed = KafkaFeed(elsewhere, views_named(VIEWS), cluster, kafka_name)
        eventually(lambda: read_checkpoint(cluster, fed.routes))
        thread = threading.Thread(target=fed.run, args=[stop])
        thread.start()
        eventually(lambda: fed.position == log.bound())
        own_broker.kill(1)
        lamps(log, 20)
        own_broker.start(1)
        eventually(lambda: fed.position == log.bound())
        stop.set()
        thread.join(60)
        gc.collect()
    assert_equal(log, connection)


@pytest.mark.slow
def test_topics_of_another_life(
    log: Ledger, elsewhere: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Topics that begin too late, or that were made anew, are refused."""
    cluster = Cluster.of(broker.bootstrap)
    lamps(log, 5)
    relay_all(log, cluster, f"{kafka_name}-late", start=4)
    with pytest.raises(EventsMissing, match="start after 4"):
        feed(elsewhere, cluster, f"{kafka_name}-late", log.bound())
    relay_all(log, cluster, kafka_name)
    feed(elsewhere, cluster, kafka_name, log.bound())
    with cluster.admin() as admin:
        admin.delete_topics([f"{kafka_name}.lamp", f"{kafka_name}.checkpoint"])
    eventually(lambda: read_checkpoint(cluster, Routes(kafka_name)) is None)
    relay_all(log, cluster, kafka_name)
    with pytest.raises(TopicMismatch, match="was made anew"):
        feed(elsewhere, cluster, kafka_name, log.bound())


def test_a_body_that_is_too_large_is_read_from_the_ledger(
    log: Ledger, elsewhere: Ledger, connection: psycopg.Connection[Any], broker: SharedBroker, kafka_name: str
) -> None:
    cluster, stop = Cluster.of(broker.bootstrap), threading.Event()
    log.append("torch/a", Body("torch.lit", 1, json.dumps({"much": "x" * 1_000_000})))
    relay_all(log, cluster, kafka_name)
    with pytest.raises(BadInput, match="event 1 is too large for a record"):
        feed(elsewhere, cluster, kafka_name, 1)
    load()
    fed = KafkaFeed(elsewhere, views_named(VIEWS), cluster, kafka_name, source=log)
    fed.run(stop, until=1)
    assert fed.events == 1
    assert_equal(log, connection)


@pytest.mark.slow
def test_it_is_built_anew_with_statuses_that_are_declared_later(
    log: Ledger, elsewhere: Ledger, connection: psycopg.Connection[Any], broker: SharedBroker, kafka_name: str
) -> None:
    """Readers see the old rows until the new ones contain as much; then it equals the view that follows."""
    cluster, [view] = Cluster.of(broker.bootstrap), views_named(["in_state"])
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    relay_all(log, cluster, kafka_name)
    feed(elsewhere, cluster, kafka_name, log.bound())
    for one in (log, elsewhere):
        announce_statuses(one, {"torch.lit": TopicStatus("lit")})
    lamps(log, 9)
    relay_all(log, cluster, kafka_name, block_events=5)
    with pytest.raises(ViewFailed, match="pledger views feed in_state --anew"):
        KafkaFeed(elsewhere, [view], cluster, kafka_name).run(threading.Event(), until=log.bound())
    anew = KafkaFeed(elsewhere, [view], cluster, kafka_name, anew=True)
    anew.run(threading.Event(), until=log.bound())
    assert anew.events == len(log.log(0, log.bound(), 1000))
    Projector(log, [view]).catch_up()
    assert rows(connection, "copies_views", "in_state") == rows(connection, "ledger_views", "in_state")
    assert "lit" in {value for row in rows(connection, "copies_views", "in_state") for value in row}
