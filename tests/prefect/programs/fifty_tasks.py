"""A flow of fifty tasks, after which the client ends: its last states are on their way while it closes."""

from __future__ import annotations

from prefect import flow, task
from prefect.context import FlowRunContext
from waiting import report


@task
def double(number: int) -> int:
    return number * 2


@flow
def fifty_tasks() -> int:
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    report(flow_run=context.flow_run.id)
    return sum(future.result() for future in [double.submit(number) for number in range(50)])


if __name__ == "__main__":
    fifty_tasks()
