"""
Reads of runs: lists and counts by the filters of Prefect's API, and the events that Prefect's clients see.

    from projections.runs import flow_runs, records, wait_for

    wait_for(log, projector)                                    # read what was appended before
    flow_runs(log, {"flow_runs": {"name": {"like_": "etl"}}}, "START_TIME_DESC", limit=20)

    views.py, *.sql     the views `flow_runs`, `task_runs`, `run_records`: a row is the state of its stream
    fields.py           the fields of the filters, kind by kind
    criteria.py         one criterion of a field as SQL
    filters.py          the filters of a body as one condition
    lists.py            lists, counts, what is scheduled
    history.py          how many runs there were in each interval of time
    graph.py            the graph of a flow run
    waiting.py          waiting until the views contain what was appended
    prefect_events.py   Prefect's events, derived from the log
    event_filters.py    the filters of events
"""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .history import run_history
    from .lists import (
        count_flow_runs,
        count_records,
        count_task_runs,
        counts_by_state,
        flow_runs,
        lateness,
        records,
        scheduled_runs,
        task_runs,
    )
    from .waiting import wait_for
else:
    __getattr__ = lazily(
        __name__,
        {
            "lists": "count_flow_runs count_records count_task_runs counts_by_state flow_runs lateness "
            "records scheduled_runs task_runs",
            "history": "run_history",
            "waiting": "wait_for",
        },
    )

__all__ = [
    "count_flow_runs",
    "count_records",
    "count_task_runs",
    "counts_by_state",
    "flow_runs",
    "lateness",
    "records",
    "run_history",
    "scheduled_runs",
    "task_runs",
    "wait_for",
]
