"""Work on both transports, the log and hints over Kafka: one contract; and what hints spare."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.hints import KafkaHints
from ledger import Ledger
from ledger.jobs import Jobs
from tests.jobs.conftest import AtWork, eventually, topics, working
from tests.kafka.conftest import SharedBroker
from tests.kafka.relaying import relaying


class Transport:
    """How workers hear of work. hints: whether over Kafka."""

    def __init__(self, log: Ledger, cluster: Cluster, prefix: str, *, hints: bool) -> None:
        self.log, self.cluster, self.prefix, self.hints = log, cluster, prefix, hints

    def options(self, **more: Any) -> dict[str, Any]:
        """Those of a worker on this transport; it keeps the view `work`."""
        hints = (
            KafkaHints(self.cluster, prefix=self.prefix, queues=more.get("queues")) if self.hints else None
        )
        return {**more, "hints": hints}


@pytest.fixture(params=["log", "kafka"])
def transport(
    request: pytest.FixtureRequest, log: Ledger, broker: SharedBroker, kafka_name: str
) -> Iterator[Transport]:
    cluster = Cluster.of(broker.bootstrap)
    if request.param == "log":
        yield Transport(log, cluster, kafka_name, hints=False)
        return
    Jobs(log).submit("nowhere")  # so that the topic is there
    with relaying(log, cluster, kafka_name):
        yield Transport(log, cluster, kafka_name, hints=True)


def hears(at_work: AtWork) -> bool:
    """Whether a worker's hints come."""
    hints = at_work.worker.hints
    return hints is None or not getattr(hints, "deaf", False)


def test_each_job_runs_once_and_comes_to_its_end(log: Ledger, transport: Transport) -> None:
    """Given jobs before and after two workers begin, then each is run once, by either."""
    jobs = Jobs(log)
    ids = [jobs.submit("echo", {"n": n}) for n in range(10)]
    with working(log, **transport.options()) as one, working(log, **transport.options()) as two:
        eventually(lambda: hears(one) and hears(two))
        ids += [jobs.submit("echo", {"n": n}) for n in range(20)]
        boom, again = jobs.submit("boom"), jobs.submit("boom", max_attempts=2)
        assert set(jobs.wait(*ids, seconds=60).values()) == {"succeeded"}
        assert jobs.wait(boom, seconds=30) == {boom: "failed"}
        eventually(lambda: "job.attempt_failed" in topics(jobs, again))
    assert (one.error, two.error) == (None, None)
    for job in ids:
        assert Counter(topics(jobs, job))["job.started"] == 1


def test_work_that_is_due_later_starts_when_it_is_due(log: Ledger, transport: Transport) -> None:
    """Given a delay, a time and a retry later, then none starts before, and the sweep is not waited for."""
    jobs = Jobs(log)
    with working(log, **transport.options()) as at_work:
        eventually(lambda: hears(at_work))
        if transport.hints:
            at_work.worker.offers.sweep = 3600  # type: ignore[attr-defined]
        delayed = jobs.submit("ping", delay=1.0)
        timed = jobs.submit("ping", run_at=datetime.now(UTC) + timedelta(seconds=1.5))
        busy = jobs.submit("busy", {"delay": 0.5})
        statuses = jobs.wait(delayed, timed, seconds=30)
        assert set(statuses.values()) == {"succeeded"}
        eventually(lambda: topics(jobs, busy).count("job.retry_later") > 1)
    for job, seconds in ((delayed, 1.0), (timed, 1.0)):
        created, started = (event.recorded_at for event in jobs.events(job)[:2])
        assert (started - created).total_seconds() >= seconds


def test_only_its_queues(log: Ledger, transport: Transport) -> None:
    """Given work of other queues, then it stays."""
    jobs = Jobs(log)
    with working(log, **transport.options(queues=["gpu"])) as at_work:
        eventually(lambda: hears(at_work))
        other, own = jobs.submit("ping"), jobs.submit("ping", queue="gpu")
        assert jobs.wait(own, seconds=30) == {own: "succeeded"}
    assert topics(jobs, other) == ["job.created"]


# Hints


@pytest.mark.slow
def test_an_idle_worker_asks_a_fifth_as_often_at_most(
    log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Given a worker without views of its own, then hints start its work, and little else asks."""
    cluster, jobs = Cluster.of(broker.bootstrap), Jobs(log)
    jobs.submit("nowhere")
    asked: dict[str, int] = {}
    with relaying(log, cluster, kafka_name), working(log, queues=["none"]):
        for name in ("log", "kafka"):
            hints = KafkaHints(cluster, prefix=kafka_name) if name == "kafka" else None
            with working(log, hints=hints, projecting=False) as at_work:
                jobs.wait(jobs.submit("ping"), seconds=30)
                eventually(lambda worker=at_work: hears(worker))  # type: ignore[misc]
                time.sleep(1.5)  # it asks for a second after a hint
                asked[name] = _asked_in(at_work, 3.0)
        assert asked["kafka"] * 5 <= asked["log"]


def _asked_in(at_work: AtWork, seconds: float) -> int:
    """How often a worker asks for offers in so many seconds."""
    source: Any = getattr(at_work.worker.offers, "offers", at_work.worker.offers)
    calls, take = Counter[str](), source.take

    def counted(*given: Any) -> Any:
        calls["take"] += 1
        return take(*given)

    source.take = counted
    try:
        time.sleep(seconds)
    finally:
        source.take = take
    return calls["take"]


@pytest.mark.slow
def test_without_kafka_the_log_is_asked(log: Ledger, own_broker: Broker, kafka_name: str) -> None:
    """Given a broker that dies, then the worker works on, and hears again when it is back."""
    cluster, jobs = Cluster.of(own_broker.bootstrap), Jobs(log)
    jobs.submit("nowhere")
    with (
        relaying(log, cluster, kafka_name),
        working(log, hints=KafkaHints(cluster, prefix=kafka_name)) as at_work,
    ):
        eventually(lambda: hears(at_work))
        own_broker.kill(1)
        job = jobs.submit("ping")
        assert jobs.wait(job, seconds=30) == {job: "succeeded"}
        own_broker.start(1)
        eventually(lambda: hears(at_work))
        job = jobs.submit("ping")
        assert jobs.wait(job, seconds=30) == {job: "succeeded"}

    gc.collect()


def test_latency_of_hints(log: Ledger, transport: Transport) -> None:
    """Work begins soon on both: created → started, of single jobs for an idle worker."""
    jobs, waits = Jobs(log), []
    with working(log, concurrency=1, **transport.options()) as at_work:
        eventually(lambda: hears(at_work))
        for _ in range(12):
            job = jobs.submit("ping")
            jobs.wait(job, seconds=30)
            created, started = (event.recorded_at for event in jobs.events(job)[:2])
            waits.append((started - created).total_seconds())
    assert statistics.median(waits) < 1.0
