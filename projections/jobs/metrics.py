"""Metrics of jobs for Prometheus: waiting and running work, dead letters, leases, workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ledger import Ledger
from ledger.jobs.leases import SILENT, Leases
from ledger.log.sql import Statements

from ..feeds import filling_of
from .dead_letters import dead_groups
from .unclaimed import unclaimed

SQL = Statements(__package__, "metrics")
_STATES: Final = {"working": "here", "draining": "draining", "silent": "silent"}
"""States of workers: the names in metrics, and those of `WorkerStatus.state`."""


def job_metrics(ledger: Ledger) -> Iterator[Metric]:
    """Metrics from the views `jobs` and `work`, where they exist, and from the list of workers."""
    if filling_of(ledger, "jobs") is not None:
        yield from _jobs(ledger)
    if filling_of(ledger, "work") is not None:
        yield from _waiting(ledger)
        yield from _unclaimed(ledger)
    yield from _leases(ledger)
    yield from _workers(ledger)


def _gauge(
    ledger: Ledger, name: str, about: str, labels: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> Metric:
    """A gauge of rows that end with its value; before that the labels."""
    gauge = GaugeMetricFamily(f"pledger_{name}", about, labels=("schema", *labels))
    for *values, value in rows:
        gauge.add_metric((ledger.schema, *values), value)
    return gauge


def _jobs(ledger: Ledger) -> Iterator[Metric]:
    line = ("queue", "operation")
    about = "Jobs that are queued, running, or dispatched: the operation is over, the set goes on."
    yield _gauge(ledger, "jobs", about, (*line, "status"), ledger.query(SQL.jobs_active))
    about = "Jobs and batches that failed and were neither discarded nor redriven."
    yield _gauge(ledger, "dead_letters", about, (*line, "kind"), dead_groups(ledger))


def _waiting(ledger: Ledger) -> Iterator[Metric]:
    rows = ledger.query(SQL.work_waiting)
    line = ("queue", "operation")
    about = "Jobs and batches that wait for a claim, including those that are not due yet."
    yield _gauge(ledger, "work_waiting", about, line, [(q, o, n) for q, o, n, *_ in rows])
    about = "Jobs and batches that wait for a claim and are due."
    yield _gauge(ledger, "work_due", about, line, [(q, o, n) for q, o, _, n, _ in rows])
    about = "Seconds since the first of them was due."
    yield _gauge(ledger, "work_oldest_seconds", about, line, [(q, o, s) for q, o, *_, s in rows])


def _leases(ledger: Ledger) -> Iterator[Metric]:
    rows = ledger.query(SQL.leases_by_operation)
    told = [(o, state, n) for o, held, late in rows for state, n in (("held", held), ("expired", late))]
    yield _gauge(
        ledger, "leases", "Leases, by whether they were renewed in time.", ("operation", "state"), told
    )


def _unclaimed(ledger: Ledger) -> Iterator[Metric]:
    about = "Waiting jobs and batches that no worker takes: none runs, or none knows the operation."
    rows = [(one.queue, one.operation, one.why, one.waiting) for one in unclaimed(ledger)]
    yield _gauge(ledger, "work_unclaimed", about, ("queue", "operation", "reason"), rows)


def _workers(ledger: Ledger) -> Iterator[Metric]:
    workers = Leases(ledger).workers()
    states = [worker.state for worker in workers]
    told = [(name, states.count(state)) for name, state in _STATES.items()]
    yield _gauge(ledger, "workers", f"Workers; silent: no renewal for {SILENT:g} s.", ("state",), told)
    slots, busy = [(w.worker, w.slots) for w in workers], [(w.worker, w.busy) for w in workers]
    yield _gauge(ledger, "worker_slots", "Slots of a worker.", ("worker",), slots)
    yield _gauge(ledger, "worker_busy", "Those that work.", ("worker",), busy)
    done = CounterMetricFamily(
        "pledger_worker_done", "Claims that a worker has ended since its start.", labels=("schema", "worker")
    )
    for worker in workers:
        done.add_metric((ledger.schema, worker.worker), worker.done)
    yield done
