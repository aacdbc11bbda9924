"""The current run of Prefect as actor (its name) and correlation (its id) of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ledger import Meta, acting

from .extra import needs_extra


@contextmanager
def acting_in_run(**fields: Any) -> Iterator[Meta]:
    """
    Everything appended in this context carries the current run: its name as actor, its id as correlation.

    The actor reads `flow NAME run RUN`, in a task `flow NAME run RUN task TASKRUN`; the correlation is the id
    of the flow run (of the task run where there is no flow). `fields` are further fields of Meta and override
    these. Outside of a run only they are set.
    """
    with acting(**(_fields_of_run() | fields)) as meta:
        yield meta


def actor_of_run() -> str | None:
    """The current run as an actor; None outside of a run."""
    return _fields_of_run().get("actor")


def _fields_of_run() -> dict[str, str]:
    with needs_extra():
        from prefect.runtime import flow_run, task_run
    flow_id, task_id = flow_run.id, task_run.id
    parts = []
    if flow_id:
        parts.append(f"flow {flow_run.flow_name} run {flow_run.name}")
    if task_id:
        parts.append(f"task {task_run.name}")
    return {"actor": " ".join(parts), "correlation": str(flow_id or task_id)} if parts else {}
