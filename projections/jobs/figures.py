"""Figures of jobs for Prometheus: what waits and runs, dead letters, leases, workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ledger import Ledger

from ..feeds import filling_of
from ..sql import query

SILENT: Final = 30.0
"""Seconds after which a worker of which nothing is heard counts as silent."""


def job_figures(ledger: Ledger) -> Iterator[Metric]:
    """What the views `jobs` and `work` show, where they are made, and what workers say of themselves."""
    if filling_of(ledger, "jobs") is not None:
        yield from _jobs(ledger)
    if filling_of(ledger, "work") is not None:
        yield from _waiting(ledger)
    yield from _leases(ledger)
    yield from _workers(ledger)


def _asked(ledger: Ledger, name: str) -> list[tuple[Any, ...]]:
    with ledger.reader() as connection:
        return query(connection, ledger.schema, name)


def _gauge(
    ledger: Ledger, name: str, about: str, labels: Sequence[str], rows: list[tuple[Any, ...]]
) -> Metric:
    """A gauge of rows that end with its value; before that the labels."""
    gauge = GaugeMetricFamily(f"pledger_{name}", about, labels=("schema", *labels))
    for *values, value in rows:
        gauge.add_metric((ledger.schema, *values), value)
    return gauge


def _jobs(ledger: Ledger) -> Iterator[Metric]:
    line = ("queue", "operation")
    about = "Jobs that are queued, running, or dispatched: the operation is over, the set goes on."
    yield _gauge(ledger, "jobs", about, (*line, "status"), _asked(ledger, "jobs_active"))
    about = "Jobs and batches that failed and were neither discarded nor redriven."
    yield _gauge(ledger, "dead_letters", about, (*line, "kind"), _asked(ledger, "dead_counts"))


def _waiting(ledger: Ledger) -> Iterator[Metric]:
    rows = _asked(ledger, "work_waiting")
    line = ("queue", "operation")
    about = "Jobs and batches that wait for a claim, those that are not due yet included."
    yield _gauge(ledger, "work_waiting", about, line, [(q, o, n) for q, o, n, *_ in rows])
    about = "Those that are due."
    yield _gauge(ledger, "work_due", about, line, [(q, o, n) for q, o, _, n, _ in rows])
    about = "Seconds for which the first of them is due."
    yield _gauge(ledger, "work_oldest_seconds", about, line, [(q, o, s) for q, o, *_, s in rows])


def _leases(ledger: Ledger) -> Iterator[Metric]:
    rows = _asked(ledger, "leases_by_operation")
    told = [(o, state, n) for o, held, late in rows for state, n in (("held", held), ("expired", late))]
    yield _gauge(
        ledger, "leases", "Leases, by whether they were renewed in time.", ("operation", "state"), told
    )


def _workers(ledger: Ledger) -> Iterator[Metric]:
    rows = _asked(ledger, "workers_seen")
    states = [
        "silent" if silent > SILENT else "draining" if draining else "working"
        for *_, draining, _, silent in rows
    ]
    told = [(state, states.count(state)) for state in ("working", "draining", "silent")]
    yield _gauge(ledger, "workers", f"Workers; silent: not heard of for {SILENT:g} s.", ("state",), told)
    yield _gauge(ledger, "worker_slots", "Slots of a worker.", ("worker",), [(r[0], r[1]) for r in rows])
    yield _gauge(ledger, "worker_busy", "Those that work.", ("worker",), [(r[0], r[2]) for r in rows])
    done = CounterMetricFamily(
        "pledger_worker_done", "What a worker ended since it began.", labels=("schema", "worker")
    )
    for worker, _, _, _, many, _ in rows:
        done.add_metric((ledger.schema, worker), many)
    yield done
