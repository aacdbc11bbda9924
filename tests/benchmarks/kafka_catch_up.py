"""The part `catch-up` of `dev.py bench kafka`: a long log through relay, consumer and feed; their memory."""

from __future__ import annotations

import json

import psycopg

from tests.benchmarks.kafka_at_work import COUNTS, process
from tests.benchmarks.kafka_relay import Bench, Figures


def catch_up(bench: Bench) -> tuple[Figures, Figures]:
    """One after the other, each in a process of its own; resident memory after each tenth."""
    events = bench.options.log
    bench.fill(events)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute(COUNTS)
    ratios, figures = {}, {}
    for name in ("relay", "consumer", "feed"):
        with process(f"catch-up-{name}", bench, events=events) as one:
            assert one.stdout is not None
            told = [json.loads(line) for line in one.stdout]
        assert one.returncode == 0, name
        (first, start, began), (_, middle, _), (last, end, ended) = told[0], told[len(told) // 2], told[-1]
        figures |= {f"{name}_start_mib": start, f"{name}_middle_mib": middle, f"{name}_end_mib": end}
        figures[f"{name}_catch_up_events_per_s"] = round((last - first) / (ended - began))
        ratios[f"{name}_memory_growth"] = round(end / start, 2)
    return ratios, figures
