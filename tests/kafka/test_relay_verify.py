"""The proof that topics equal the ledger, and each way in which they may not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from consumers.kafka import relay_verify
from consumers.kafka.cluster import Cluster
from consumers.kafka.envelope import record_of, source_of
from consumers.kafka.merge import published
from consumers.kafka.relay.checkpoint import RelayCheckpoint
from consumers.kafka.relay_verify import Comparison, Verified, verify
from consumers.kafka.routes import Routes
from consumers.kafka.topics import Topics
from ledger import Cursor, CursorMismatch, Ledger, TopicMismatch
from tests.kafka.conftest import SharedBroker
from tests.kafka.relaying import PARTITIONS, relay_all, relaying
from tests.lamp import LampMade

Records = list[tuple[bytes, bytes, list[tuple[str, bytes]]]]
Change = Callable[[Records], object]


@pytest.fixture
def cluster(broker: SharedBroker) -> Cluster:
    return Cluster.of(broker.bootstrap)


def test_topics_that_equal_the_ledger(log: Ledger, cluster: Cluster, kafka_name: str) -> None:
    """All records are counted, in all partitions; what is not published yet is no difference."""
    for n in range(40):
        log.append(f"lamp/{n}", LampMade(watts=n))
    log.append("torch/a", LampMade())
    relay_all(log, cluster, kafka_name, block_events=7)
    found = verify(log, cluster, kafka_name)
    assert (found.difference, found.records, found.position) == (None, 41, log.bound())
    assert len(found.proofs) == 2 * PARTITIONS
    assert found.proofs == verify(log, cluster, kafka_name).proofs
    log.append("lamp/late", LampMade())
    log.append("candle/new", LampMade())
    later = verify(log, cluster, kafka_name)
    assert (later.difference, later.proofs) == (None, found.proofs)


def test_nothing_was_published(log: Ledger, cluster: Cluster, kafka_name: str) -> None:
    with pytest.raises(TopicMismatch, match="no relay has published anything"):
        verify(log, cluster, kafka_name)


def test_another_ledger(log: Ledger, cluster: Cluster, kafka_name: str) -> None:
    """The checkpoint says so; and so does each record."""
    log.append("lamp/a", LampMade())
    relay_all(log, cluster, kafka_name)
    checkpoint = published(cluster, Routes(kafka_name))
    identity = log.identity
    try:
        log.identity = replace(identity, ledger=type(identity.ledger)(int=1))
        with pytest.raises(CursorMismatch):
            verify(log, cluster, kafka_name)
        found = Comparison(log, cluster, kafka_name, checkpoint).run()
    finally:
        log.identity = identity
    assert found.difference is not None
    assert found.difference.what == f"the record is of another ledger, {identity.ledger}"


def removed(records: Records) -> None:
    del records[3]


def swapped(records: Records) -> None:
    records[3], records[4] = records[4], records[3]


def repeated(records: Records) -> None:
    records.insert(4, records[3])


def foreign(records: Records) -> None:
    key, value, headers = records[3]
    positions = {"ce_id", "ce_ledgerposition"}
    records.insert(3, (key, value, [(n, b"999999" if n in positions else v) for n, v in headers]))


def extra(records: Records) -> None:
    records.append(records[-1])


def cut(records: Records) -> None:
    records.pop()


def other_body(records: Records) -> None:
    key, value, headers = records[3]
    records[3] = key, value.replace(b"watts", b"volts"), headers


def other_key(records: Records) -> None:
    records[3] = b"lamp/zz", *records[3][1:]


def other_header(records: Records) -> None:
    key, value, headers = records[3]
    records[3] = key, value, [(n, b"lamp.broke" if n == "ce_type" else v) for n, v in headers]


def no_event(records: Records) -> None:
    records.insert(3, (b"x", b"{}", []))


@pytest.mark.parametrize(
    ("change", "what", "at"),
    [
        (removed, "event 4 is missing: event 5 stands in its place", 4),
        (swapped, "event 5 stands here, before event 4: the order is another one", 4),
        (repeated, "event 4 stands here a second time, where event 5 belongs", 5),
        (foreign, "the ledger has no event 999999, which stands here before event 4", 4),
        (extra, "the ledger has no event for this record", 9),
        (cut, "this event is missing: the partition ends before it", 9),
        (other_body, "its body differs from the event's", 4),
        (other_key, "its key is b'lamp/zz', and the stream is b'lamp/a'", 4),
        (other_header, "its header ce_type is b'lamp.broke' where the ledger says b'lamp.made'", 4),
        (no_event, "the record is no event: it has no header ce_source, so it is no record of a relay", 4),
    ],
)
def test_the_first_difference_is_named(
    log: Ledger, cluster: Cluster, kafka_name: str, change: Change, what: str, at: int
) -> None:
    for n in range(9):
        log.append("lamp/a", LampMade(watts=n))
    relay_all(log, cluster, kafka_name, partitions=1)
    found = falsified(log, cluster, kafka_name, change)
    assert found.difference is not None
    assert (found.difference.what, found.difference.position) == (what, at)
    assert found.difference.topic == f"{kafka_name}-f.lamp"
    assert found.records == (9 if change is extra else at - 1)


def falsified(log: Ledger, cluster: Cluster, prefix: str, change: Change) -> Verified:
    """Compare with a copy of the topic in which something was changed."""
    source, copy = f"{prefix}.lamp", f"{prefix}-f.lamp"
    records = everything(cluster, source)
    change(records)
    Topics(cluster).ensure(copy, partitions=1)
    producer: Any = KafkaProducer(**cluster.options())
    for key, value, headers in records:
        producer.send(copy, value, key, headers, 0)
    producer.flush()
    producer.close()
    checkpoint: RelayCheckpoint = published(cluster, Routes(prefix))
    return Comparison(log, cluster, f"{prefix}-f", checkpoint).run()


def everything(cluster: Cluster, topic: str) -> Records:
    """All records of a topic with one partition."""
    place, found = TopicPartition(topic, 0), []
    consumer: Any = KafkaConsumer(**cluster.options() | {"enable_auto_commit": False})
    consumer.assign([place])
    consumer.seek(place, 0)
    end = consumer.end_offsets([place])[place]
    while consumer.position(place) < end:
        for record in consumer.poll(timeout_ms=200).get(place, ()):
            found.append((record.key, record.value, list(record.headers)))
    consumer.close()
    return found


def test_events_that_are_published_during_the_proof(
    log: Ledger, cluster: Cluster, kafka_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given records behind the end at which the comparison began, and events behind the log's end of then."""
    monkeypatch.setattr(relay_verify, "PAGE", 4)
    checkpoint = grown(log, cluster, kafka_name)
    rounds = iter(range(2))
    comparison = Comparison(
        log, cluster, kafka_name, checkpoint,
        seen=lambda _: None if next(rounds, None) is None else grow(),
    )  # fmt: skip

    def grow() -> None:
        comparison.upto = grown(log, cluster, kafka_name).cursor.position

    grow()
    found = comparison.run()
    assert (found.difference, found.position) == (None, log.bound())


def grown(log: Ledger, cluster: Cluster, prefix: str) -> RelayCheckpoint:
    """The checkpoint after eight events more."""
    for n in range(8):
        log.append("lamp/a", LampMade(watts=n))
    relay_all(log, cluster, prefix)
    return published(cluster, Routes(prefix))


def test_a_record_whose_transaction_ends_during_the_proof(
    log: Ledger, cluster: Cluster, kafka_name: str
) -> None:
    """Given a checkpoint whose last record is not yet readable, then the proof waits for it."""
    place = TopicPartition(f"{kafka_name}.lamp", 0)
    log.append("lamp/a", LampMade())
    relay_all(log, cluster, kafka_name, partitions=1)
    first = published(cluster, Routes(kafka_name))
    log.append("lamp/a", LampMade())
    (event,) = log.log(1, 2, 1)
    producer: Any = KafkaProducer(**cluster.options(), transactional_id=f"{kafka_name}-late")
    producer.init_transactions()
    producer.begin_transaction()
    record = record_of(event, 1, source_of(log.identity.ledger), place.topic, 0)
    producer.send(place.topic, record.value, record.key, record.headers, 0).get(10)
    checkpoint = replace(first, cursor=Cursor.after(log.identity.ledger, event))
    comparison = Comparison(log, cluster, kafka_name, checkpoint)
    ends = threading.Timer(1.0, producer.commit_transaction)
    ends.start()
    found = comparison.run()
    ends.join()
    producer.close()
    assert (found.difference, found.records) == (None, 2)


@pytest.mark.slow
def test_while_the_relay_goes_on(log: Ledger, cluster: Cluster, kafka_name: str) -> None:
    """Given appends and a relay that publishes them meanwhile, then no proof finds a difference."""
    stop = threading.Event()

    def append() -> None:
        for n in count():
            if stop.is_set():
                return
            log.append(f"lamp/{n % 50}", LampMade(watts=n))

    log.append("lamp/0", LampMade())
    relay_all(log, cluster, kafka_name)
    writer = threading.Thread(target=append)
    with relaying(log, cluster, kafka_name, block_events=20):
        writer.start()
        proofs = [verify(log, cluster, kafka_name) for _ in range(8)]
        stop.set()
        writer.join()
    assert [proof.difference for proof in proofs] == [None] * 8
    assert proofs[-1].records > proofs[0].records
