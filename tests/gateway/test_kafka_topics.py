"""`pledger relay verify`, `views feed` and `kafka schema` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg

from consumers.kafka.cluster import Cluster
from consumers.kafka.topics import Topics
from ledger import Ledger
from ledger.jobs import Jobs
from ledger.log.install import init
from projections.engine.projector import Projector, views_named
from projections.shipped import load
from tests.gateway.conftest import Ended
from tests.kafka.conftest import SharedBroker, broker, kafka_name
from tests.kafka.relaying import PARTITIONS, relay_all

assert broker is not None
assert kafka_name is not None
Pledger = Callable[..., Ended]


def test_the_proof_and_its_repair(
    log: Ledger, pledger: Pledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Given topics that equal the ledger, then it is said; else the first difference is."""
    Jobs(log).submit("ping")
    place = ["--kafka", broker.bootstrap]
    nothing = pledger("relay", "verify", "--prefix", kafka_name, *place)
    assert (nothing.code, "no relay has published" in nothing.err) == (1, True)
    cluster = Cluster.of(broker.bootstrap)
    relay_all(log, cluster, kafka_name)
    fine = pledger("relay", "verify", "--prefix", kafka_name, *place, "--json")
    (told,) = fine.objects
    assert (fine.code, told["records"], told["difference"]) == (0, len(log.log(0, log.bound())), None)
    assert len(told["partitions"]) == PARTITIONS
    shown = pledger("relay", "verify", "--prefix", kafka_name, *place)
    assert "equal the ledger, up to position" in shown.err
    forge(cluster, f"{kafka_name}.jobs")
    wrong = pledger(
        "relay", "verify", "--prefix", kafka_name, *place, "--json", "--repair-into", f"{kafka_name}-b"
    )
    (told,) = wrong.objects
    assert (wrong.code, told["repaired_into"]) == (1, f"{kafka_name}-b")
    assert told["difference"]["what"] == "the ledger has no event for this record"
    assert pledger("relay", "verify", "--prefix", f"{kafka_name}-b", *place).code == 0


def forge(cluster: Cluster, topic: str) -> None:
    """A record that no relay wrote."""
    from kafka import KafkaProducer

    producer = KafkaProducer(**cluster.options())
    producer.send(topic, b"{}", b"job/forged", partition=0)
    producer.flush()
    producer.close()


def test_views_are_fed_elsewhere(
    log: Ledger, pledger: Pledger, broker: SharedBroker, kafka_name: str, dsn: str
) -> None:
    Jobs(log).submit("ping")
    relay_all(log, Cluster.of(broker.bootstrap), kafka_name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection, "copies")
        place = ["--kafka", broker.bootstrap, "--prefix", kafka_name, "--until", str(log.bound())]
        fed = pledger("--schema", "copies", "views", "feed", "in_state", "jobs", *place, "--json")
        (told,) = fed.objects
        assert (fed.code, told["views"], told["position"]) == (0, ["in_state", "jobs"], log.bound())
        assert told["events"] == len(log.log(0, log.bound()))
        rows = connection.execute(
            "SELECT status FROM copies_views.in_state WHERE category = 'job'"
        ).fetchall()
    assert rows == [("queued",)]


def test_states_and_views_beside_the_events(
    log: Ledger, pledger: Pledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Given a relay with both, then their topics are there; without the view progress it is refused."""
    Jobs(log).submit("ping")
    run = ["relay", "run", "--once", "--kafka", broker.bootstrap, "--prefix", kafka_name, "--partitions", "2"]
    refused = pledger(*run, "--views")
    assert (refused.code, "pledger views follow progress" in refused.err) == (2, True)
    load()
    Projector(log, views_named(["progress"])).catch_up()
    assert pledger(*run, "--states", "--views").code == 0
    found = Topics(Cluster.of(broker.bootstrap)).below(kafka_name)
    names = {"jobs", "jobs.states", "views.in_state", "views.progress", "checkpoint"}
    assert found.keys() == {f"{kafka_name}.{name}" for name in names}


def test_the_schema_of_events(pledger: Pledger) -> None:
    whole = pledger("kafka", "schema", "--prefix", "mine")
    document = json.loads(whole.out)
    assert (whole.code, document["channels"]["lsm"]["address"]) == (0, "mine.lsm")
    one = pledger("kafka", "schema", "job.started", "--json")
    assert (one.code, one.objects[0]["$id"]) == (0, "urn:ledger:job.started")
    assert pledger("kafka", "schema", "no.such").code == 3
