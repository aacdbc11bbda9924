"""
The task runs of a flow run that is deleted are deleted with it (the cascade of spec 4.2).

They are deleted before it, many in one append. Where that is interrupted, the flow run is still there, and to
delete it once more deletes the rest.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .names import OpenName
from .task_run import OpenTaskRun, key_of

AT_ONCE: Final = 200
"""Task runs that are deleted in one append."""


def delete_task_runs(ledger: Ledger, flow_run_id: str) -> int:
    """Delete the task runs of a flow run, and free their keys; how many there were."""
    below = (f"{OpenName.name_of('task_run', flow_run_id)}/", OpenName)
    held = ledger.states(below)[OpenName]
    ids = iter([name.holder for _, _, name in held if name.holder is not None])
    deleted = 0
    while some := list(islice(ids, AT_ONCE)):
        deleted += retry_conflicts(lambda some=some: _deleted(ledger, some))  # type: ignore[misc]
    return deleted


def _deleted(ledger: Ledger, ids: list[str]) -> int:
    """Delete these task runs in one append; those that are gone already are left out."""
    runs = [run for run in ledger.load_each([OpenTaskRun(id) for id in ids]) if run.is_there]
    keys = [key_of(run.state.flow_run_id, run.state.task_key, run.state.dynamic_key) for run in runs]
    names = ledger.load_each(keys) if keys else []
    for run in runs:
        run.delete()
    freed = [name for name in names if name.holder in set(ids)]
    for name in freed:
        name.free()
    ledger.commit(*runs, *freed)
    return len(runs)
