"""The part `hints` of `dev.py bench kafka`: how soon a job begins where hints wake the worker."""

from __future__ import annotations

import time
from typing import Final

import ledger
from consumers.kafka import KafkaHints
from ledger.jobs import Jobs
from projections import Projector, views_named
from tests.benchmarks.kafka_at_work import running
from tests.benchmarks.kafka_relay import Bench, Figures
from tests.jobs.conftest import eventually, working

REGISTRY: Final = "tests.benchmarks.jobs_at_work:registry"
JOBS: Final = 150
EVERY: Final = 0.05
"""Seconds between two jobs, so that the worker is idle."""


def hints(bench: Bench) -> tuple[Figures, Figures]:
    """A worker that asks the log, and one that waits for hints; another process keeps the view `work`."""
    Jobs(bench.log).submit("nothing", queue="other")  # so that the relay makes the topic
    Projector(bench.log, views_named(["work"])).catch_up()
    with running("keep", bench), running("relay", bench):
        late = {"log": _waits(bench, None)}
        late["hints"] = _waits(bench, KafkaHints(bench.cluster, prefix=bench.name))
    found = {f"{name}_{title}_ms": round(1000 * waits[int(len(waits) * at)], 1)
             for name, waits in late.items() for title, at in (("p50", 0.5), ("p90", 0.9))}  # fmt: skip
    return {"hints_vs_log": round(found["hints_p50_ms"] / found["log_p50_ms"], 2)}, found


def _waits(bench: Bench, hears: KafkaHints | None) -> list[float]:
    """Seconds from created to started of single jobs, sorted; who submits has a connection of its own."""
    waits = []
    with (
        ledger.connect(bench.dsn, schema=bench.log.schema, actor="worker") as log,
        working(log, REGISTRY, concurrency=1, queues=["default"], hints=hears, projecting=False),
    ):
        eventually(lambda: hears is None or not hears.deaf)
        jobs = Jobs(bench.log)
        for _ in range(JOBS):
            time.sleep(EVERY)
            job = jobs.submit("nothing")
            jobs.wait(job, seconds=60)
            created, started = (event.recorded_at for event in jobs.events(job)[:2])
            waits.append((started - created).total_seconds())
    return sorted(waits[10:])
