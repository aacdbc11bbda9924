"""The producer whose word is not trusted: each fault of the client happens to a bare one, and ends ours."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.envelope import Outgoing
from consumers.kafka.relay.producer import Limits, Transactions
from consumers.kafka.topics import Topics
from ledger import KafkaUnavailable
from tests.kafka.conftest import SharedBroker
from tests.kafka.reading import records

# The client leaks a socket with each try to connect to a broker that is dead.
SHORT = Limits(transaction=8.0, flush=1.5, commit=1.5)
LIMIT = 60.0


@pytest.fixture(autouse=True)
def _leaked() -> Iterator[None]:
    yield
    gc.collect()  # now, while their warnings are left out


@pytest.fixture(scope="module")
def frail() -> Iterator[Broker]:
    """A broker of these tests' own, to be frozen."""
    with Broker() as broker:
        yield broker


def topic(cluster: Cluster, name: str) -> str:
    Topics(cluster, partitions=1).ensure(name)
    return name


def bare(cluster: Cluster, transactional_id: str, **settings: Any) -> Any:
    """A producer as the client's own pages make it; its first transaction can begin."""
    given = dict(
        transactional_id=transactional_id, transaction_timeout_ms=8000, delivery_timeout_ms=1500,
        request_timeout_ms=1000, batch_size=100, retry_backoff_ms=5, metrics_enabled=False,
    )  # fmt: skip
    producer = KafkaProducer(**cluster.options() | given | settings)
    producer.init_transactions()
    return producer


def ours(cluster: Cluster, transactional_id: str, limits: Limits = SHORT) -> Transactions:
    transactions = Transactions(cluster, transactional_id, limits=limits)
    transactions.fence()
    return transactions


def made(topic: str, *values: bytes) -> list[Outgoing]:
    return [Outgoing(topic, 0, b"key", value, []) for value in values]


def values(cluster: Cluster, topic: str) -> list[bytes]:
    return [one.value for one in records(cluster.bootstrap, topic)]


def hangs(act: Callable[[], object], seconds: float = 2.0) -> bool:
    """Whether a call is not over after some seconds; it is left behind."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread.is_alive()


def error_of(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except Exception as error:
        return error
    return None


MANY = [b"%d" % number * 60 for number in range(9)]
"""More batches than can be on their way to a broker at once."""


def test_a_bare_commit_passes_over_batches_that_expired(frail: Broker, kafka_name: str) -> None:
    cluster = Cluster.of(frail.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    producer = bare(cluster, kafka_name, linger_ms=0)
    producer.begin_transaction()
    producer.send(name, b"first", partition=0)
    producer.flush()
    frail.freeze(1)
    futures = [producer.send(name, value, partition=0) for value in MANY]
    producer.flush()  # says nothing
    frail.thaw(1)
    assert all(future.failed() for future in futures)
    producer.commit_transaction()  # says nothing
    producer.close(timeout=0)
    found = values(cluster, name)
    assert b"first" in found
    assert MANY[-1] not in found, (
        "the fault is gone: rule 1 of consumers/kafka/relay/producer.py may be relaxed"
    )


def test_ours_ends_when_batches_expire(frail: Broker, kafka_name: str) -> None:
    cluster = Cluster.of(frail.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    with ours(cluster, kafka_name) as transactions:
        transactions.publish(made(name, b"first"))
        frail.freeze(1)
        try:
            with pytest.raises(KafkaUnavailable):
                transactions.publish(made(name, *MANY))
        finally:
            frail.thaw(1)
    with ours(cluster, kafka_name) as transactions:
        assert values(cluster, name) == [b"first"]
        transactions.publish(made(name, *MANY))
    assert values(cluster, name) == [b"first", *MANY]


def wait_for_abort(cluster: Cluster, transactional_id: str) -> None:
    """Wait until the coordinator has aborted a transaction, because its timeout was over."""
    deadline = time.monotonic() + LIMIT
    with cluster.admin() as admin:
        while "Ongoing" in str(admin.describe_transactions([transactional_id])) or "Abort" in str(
            admin.describe_transactions([transactional_id])
        ).replace("CompleteAbort", ""):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_bare_commit_praises_a_transaction_that_its_timeout_had_aborted(
    broker: SharedBroker, kafka_name: str
) -> None:
    cluster = Cluster.of(broker.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    producer = bare(cluster, kafka_name, transaction_timeout_ms=500, delivery_timeout_ms=30_000)
    producer.begin_transaction()
    producer.send(name, b"first", partition=0)
    producer.flush()
    wait_for_abort(cluster, kafka_name)
    producer.send(name, b"second", partition=0)
    producer.commit_transaction()  # says nothing
    producer.begin_transaction()  # nor does this
    producer.close(timeout=0)
    assert values(cluster, name) == [], (
        "the fault is gone: rule 1 of consumers/kafka/relay/producer.py may be relaxed"
    )


def test_ours_ends_when_the_timeout_aborted_its_transaction(broker: SharedBroker, kafka_name: str) -> None:
    cluster = Cluster.of(broker.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    limits = Limits(transaction=0.5, flush=2.0, commit=2.0)

    def slowly() -> Iterator[Outgoing]:
        yield from made(name, b"first")
        transactions._producer.flush()
        wait_for_abort(cluster, kafka_name)
        yield from made(name, b"second")

    with ours(cluster, kafka_name, limits) as transactions, pytest.raises(KafkaUnavailable):
        transactions.publish(slowly())
    assert values(cluster, name) == []


def test_a_commit_that_comes_after_the_timeout_proves_nothing(broker: SharedBroker, kafka_name: str) -> None:
    """However the client answers: a process that was frozen meanwhile must not believe it."""
    cluster = Cluster.of(broker.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    with ours(cluster, kafka_name) as transactions:
        transactions.limits = Limits(transaction=0.0)
        with pytest.raises(KafkaUnavailable):
            transactions.publish(made(name, b"first"))


def test_a_fenced_producer_is_told_so_by_many_exceptions(broker: SharedBroker, kafka_name: str) -> None:
    cluster = Cluster.of(broker.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    told: set[str] = set()
    for number, is_sent in enumerate((False, True, True)):
        one = f"{kafka_name}-{number}"
        producer = bare(cluster, one)
        producer.begin_transaction()
        if is_sent:
            producer.send(name, b"zombie", partition=0)
            producer.flush()
        bare(cluster, one).close()
        if number < 2:
            future = producer.send(name, b"zombie", partition=0)
            producer.flush()
            told.add(type(future.exception).__name__)
        told.add(type(error_of(producer.commit_transaction)).__name__)
        producer.close(timeout=0)
    assert len(told) >= 3, told

    with ours(cluster, kafka_name) as zombie:
        zombie.publish(made(name, b"first"))
        with ours(cluster, kafka_name) as successor:
            for _ in range(2):
                with pytest.raises(KafkaUnavailable):
                    zombie.publish(made(name, b"zombie"))
            successor.publish(made(name, b"second"))
    assert values(cluster, name) == [b"first", b"second"]


@pytest.mark.slow
def test_calls_of_the_client_hang_for_ever_and_ours_do_not(own_broker: Broker, kafka_name: str) -> None:
    cluster = Cluster.of(own_broker.bootstrap)
    name = topic(cluster, f"{kafka_name}.a")
    committing, aborting = bare(cluster, f"{kafka_name}-c"), bare(cluster, f"{kafka_name}-a")
    for producer in (committing, aborting):
        producer.begin_transaction()
        producer.send(name, b"first", partition=0)
        producer.flush()
    transactions = ours(cluster, kafka_name)
    transactions.publish(made(name, b"first"))
    own_broker.kill(1)
    assert hangs(committing.commit_transaction), "the fault is gone: rule 2 may be relaxed"
    aborting.send(name, b"second", partition=0)
    aborting.flush()
    assert hangs(aborting.abort_transaction), "the fault is gone: rule 3 may be relaxed"
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable):
        transactions.publish(made(name, b"second"))
    transactions.close()
    assert time.monotonic() - began < LIMIT
    for producer in (committing, aborting):
        error_of(lambda one=producer: one.close(timeout=0))  # type: ignore[misc]
        producer._sender.force_close()
    assert isinstance(error_of(lambda: transactions.publish([])), KafkaUnavailable | KafkaError)
