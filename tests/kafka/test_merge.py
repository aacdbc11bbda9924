"""The merge of many partitions: the order of the log, nothing missing, and little in memory."""

from __future__ import annotations

import random

import pytest

from consumers.kafka import merge, partitions
from consumers.kafka.cluster import Cluster
from consumers.kafka.merge import Merge, Places, published
from consumers.kafka.relay_verify import verify
from consumers.kafka.routes import Routes
from ledger import NEW, BadInput, Ledger
from ledger.log.append import Append, body_of
from tests.kafka.conftest import SharedBroker
from tests.kafka.foreign import ForeignProducer
from tests.kafka.relaying import PARTITIONS, relay_all
from tests.lamp import LampMade


def test_partitions_that_are_far_ahead_are_paused(
    log: Ledger, broker: SharedBroker, kafka_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one domain that is written first, then another, then all comes in order, and little waits."""
    monkeypatch.setattr(merge, "FULL", 40)
    monkeypatch.setattr(partitions, "FETCH", 4096)
    cluster, many = Cluster.of(broker.bootstrap), 2400
    for begin in range(0, many, 400):
        kind = "lamp" if begin < many / 2 else "torch"
        log.append_all(
            [Append(f"{kind}/{n}", [body_of(LampMade(watts=n))], NEW) for n in range(begin, begin + 400)]
        )
    relay_all(log, cluster, kafka_name, block_events=60)  # a block is read as a whole
    checkpoint = published(cluster, Routes(kafka_name))
    merged = Merge(cluster, Routes(kafka_name), checkpoint)
    found, waited = [], 0
    while merged.watermark < log.bound():
        found += [envelope.event for envelope in merged.poll(0.1)]
        waited = max(waited, sum(map(len, merged._waiting.values())))
    merged.close()
    assert found == log.log(0, log.bound(), many)
    assert waited < 2 * PARTITIONS * 150
    again = Merge(cluster, Routes(kafka_name), checkpoint, Places.parse(str(merged.places)))
    assert again.poll(0.5) == []
    again.close()


@pytest.mark.slow
def test_records_that_are_there_twice_are_left_out(
    log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Given records that a foreign producer wrote again, between two blocks and at the end."""
    cluster, many = Cluster.of(broker.bootstrap), 60
    foreign = ForeignProducer(broker.bootstrap, f"{kafka_name}.lamp", PARTITIONS)
    for begin in range(0, many, 20):
        log.append_all([Append(f"lamp/{n}", [body_of(LampMade())], NEW) for n in range(begin, begin + 20)])
        relay_all(log, cluster, kafka_name)
        foreign.write_again(random.Random(begin))
    foreign.close()
    assert foreign.written
    merged, found = Merge(cluster, Routes(kafka_name), published(cluster, Routes(kafka_name))), []
    while merged.watermark < log.bound():
        found += [envelope.event for envelope in merged.poll(0.1)]
    merged.close()
    assert found == log.log(0, log.bound(), many)
    difference = verify(log, cluster, kafka_name).difference
    assert difference is not None
    assert (difference.partition, difference.offset) in foreign.written


def test_places_are_read_again() -> None:
    assert Places.parse("") == Places()
    with pytest.raises(BadInput, match="does not name places"):
        Places.parse("[1]")
