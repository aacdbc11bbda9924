"""A hundred flow runs, six at a time, with subflows, slots of a limit, and flows and tasks that are retried.

What ended, as this client knows it, is reported: it must be what the server knows, whatever happens to it.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prefect import flow, task
from prefect.concurrency.sync import concurrency
from prefect.runtime import flow_run, task_run
from waiting import report

ENDED: dict[str, str] = {}
"""The state of each task run that ended, by its id."""


def note(_task: Any, run: Any, state: Any) -> None:
    ENDED[str(run.id)] = state.type.value


@task(retries=1, on_completion=[note], on_failure=[note])
def flaky(number: int) -> int:
    if number % 3 == 0 and task_run.run_count == 1:
        raise ValueError("the first time")
    return number


@flow
def child(number: int) -> int:
    return flaky(number) + flaky(number + 1)


@flow(retries=1)
def parent(number: int) -> int:
    with concurrency("slots", occupy=1):
        found = flaky(number)
    found += child(number)
    if number % 4 == 0 and flow_run.run_count == 1:
        raise ValueError("the first time")
    return found


def run(number: int) -> str:
    named = parent.with_options(flow_run_name=f"parent {number}")
    return str(named(number, return_state=True).type.value)


if __name__ == "__main__":
    with ThreadPoolExecutor(6) as pool:
        flows = list(pool.map(run, range(int(sys.argv[1]) if len(sys.argv) > 1 else 100)))
    report(flows=flows, tasks=ENDED)
