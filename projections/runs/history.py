"""How many runs should have begun in each interval of time, by state; how long and how late they were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from ledger import BadInput, Ledger
from ledger.errors import shown
from ledger.runs.json_values import time_text

from .lists import filtered_rows

MOST: Final = 500
"""Intervals of a history; what lies after them is left out."""


def run_history(
    log: Ledger,
    kind: str,
    body: Mapping[str, Any] | None,
    start: datetime,
    end: datetime,
    interval: timedelta,
) -> list[dict[str, Any]]:
    """The intervals from `start` on, in Prefect's JSON form, also those without a run; at most 500.

    kind: flow_runs or task_runs. A run belongs to the interval in which it was expected to start. Each state
    of an interval has count_runs, sum_estimated_run_time and sum_estimated_lateness in seconds.
    Raises BadInput, also for an interval of less than a second and for the filters.
    """
    if interval < timedelta(seconds=1):
        raise BadInput(f"the interval {interval} of a history must be at least a second")
    if kind not in ("flow_runs", "task_runs"):
        raise BadInput(f"kind {shown(kind)} must be flow_runs or task_runs")
    many = min(MOST, max(0, -((start - end) // interval)))
    if not many:
        return []
    states = _states(log, kind, body, start, interval, many)
    return [
        {
            "interval_start": time_text(start + nth * interval),
            "interval_end": time_text(start + (nth + 1) * interval),
            "states": states[nth],
        }
        for nth in range(many)
    ]


def _states(
    log: Ledger, kind: str, body: Mapping[str, Any] | None, start: datetime, interval: timedelta, many: int
) -> defaultdict[int, list[dict[str, Any]]]:
    """The counts of each state, by the number of the interval."""
    times: dict[str, Any] = {
        "start": start, "seconds": interval.total_seconds(), "ending": start + many * interval
    }  # fmt: skip
    states = defaultdict[int, list[dict[str, Any]]](list)
    for bucket, type, name, runs, ran, late in filtered_rows(log, "history", kind, body, **times):
        states[bucket].append(
            {
                "state_type": type, "state_name": name, "count_runs": runs,
                "sum_estimated_run_time": ran, "sum_estimated_lateness": late,
            }
        )  # fmt: skip
    return states
