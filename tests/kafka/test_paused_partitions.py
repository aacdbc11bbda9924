"""A partition that was paused in the middle of what a poll had fetched goes on after it is resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.kafka_member import give_back_paused
from consumers.kafka.topics import Topics

from .conftest import SharedBroker

EACH = 10
LIMIT = 60.0


@contextmanager
def paused_in_the_middle(cluster: Cluster, topic: str) -> Iterator[tuple[Any, TopicPartition]]:
    """A client that left records of a partition, which was paused, while another was read to its end."""
    Topics(cluster).ensure(topic, partitions=2)
    producer = KafkaProducer(**cluster.options())
    for n in range(2 * EACH):
        producer.send(topic, b"%d" % n, partition=n % 2).get(timeout=30)
    producer.close()
    client = KafkaConsumer(**cluster.options(), enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        places = [TopicPartition(topic, n) for n in range(2)]
        client.assign(places)
        client.seek_to_beginning(*places)
        first = poll_until(client, lambda found: bool(found), limit=3)
        (paused,) = first
        client.pause(paused)
        (other,) = {*places} - {paused}
        poll_until(client, lambda found: len(found.get(other, [])) == EACH)
        yield client, paused
    finally:
        client.close(timeout_ms=1000)


def poll_until(
    client: Any, enough: Callable[[dict[TopicPartition, list[Any]]], bool], limit: int = 100
) -> dict[TopicPartition, list[Any]]:
    found: dict[TopicPartition, list[Any]] = {}
    deadline = time.monotonic() + LIMIT
    while not enough(found):
        assert time.monotonic() < deadline, found
        for place, records in client.poll(timeout_ms=100, max_records=limit).items():
            found.setdefault(place, []).extend(records)
    return found


@pytest.fixture
def cluster(broker: SharedBroker) -> Cluster:
    return Cluster(broker.bootstrap)


def test_its_other_records_come(cluster: Cluster, kafka_name: str) -> None:
    with paused_in_the_middle(cluster, kafka_name) as (client, paused):
        client.resume(paused)
        give_back_paused(client)
        rest = poll_until(client, lambda found: len(found.get(paused, [])) == EACH - 3)
        assert [record.offset for record in rest[paused]] == [*range(3, EACH)]


def test_the_client_alone_never_reads_it_again(cluster: Cluster, kafka_name: str) -> None:
    with paused_in_the_middle(cluster, kafka_name) as (client, paused):
        client.resume(paused)
        for _ in range(10):
            assert not client.poll(timeout_ms=50)
        assert paused in client._fetcher._paused_partition_records, (
            "the fault is gone: give_back_paused may be removed"
        )
