"""Scenario I: background tasks that another process serves; their callers wait for the results."""

from __future__ import annotations

import signal
import sys

from commands import beside
from prefect import flow, task
from prefect.task_worker import serve
from waiting import report


@task(persist_result=True, tags=["i-tag"])
def add(one: int, two: int) -> int:
    return one + two


@task(persist_result=True, retries=1, log_prints=True)
def unlucky() -> None:
    raise ValueError("no luck")


@flow(name="i-caller", flow_run_name="caller")
def caller() -> int:
    future = add.delay(3, 4)
    future.wait(timeout=600)
    return int(future.result())


def main() -> None:
    first = add.delay(1, 2)
    second = unlucky.delay()
    with beside(__file__, "serve", end=signal.SIGTERM):
        first.wait(timeout=600)
        second.wait(timeout=600)
        ended = caller(return_state=True)
        report(
            first=first.result(timeout=10),
            second=[second.state.name, second.state.message],
            caller=[ended.name, ended.message],
            task_runs=[str(first.task_run_id), str(second.task_run_id)],
        )


if __name__ == "__main__":
    serve(add, unlucky) if "serve" in sys.argv else main()
