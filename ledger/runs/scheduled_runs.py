"""
The runs of a deployment that have not begun: deleted when its schedules change (as Prefect does).

A query nominates them; whether one is deleted is decided on its stream. They are committed together with the
change of the deployment, so that no run of an old schedule stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

from ..domain.stream import Stream
from ..log.ledger import Ledger
from ..log.sql import Statements
from .flow_run import OpenFlowRun
from .json_values import time_text
from .names import OpenName
from .records import Record
from .states import StateType

SQL = Statements(__package__, "scheduled_runs")
WAITING_FOR_SLOT: Final = "AwaitingConcurrencySlot"
"""The name of the state of runs that have begun once, and wait for a slot: they stay."""
Nominate: TypeAlias = Callable[[str], Sequence[str] | None]
"""Finds the ids of all scheduled runs of a deployment, faster than by all heads; None where it cannot now."""


class Which(Enum):
    """Which runs are meant."""

    FUTURE = "those that a schedule made and whose time has not come"
    MADE_BY_SCHEDULES = "those that a schedule made, late ones too"
    ALL = "those that a person made, too"


def key_of(deployment_id: str, schedule_id: str, at: datetime) -> str:
    """The idempotency key of the run of an instant of a schedule."""
    return f"scheduled {deployment_id} {schedule_id} {time_text(at)}"


def deleted_runs(
    ledger: Ledger, deployment: Record, which: Which, now: datetime, nominate: Nominate | None = None
) -> list[Stream[Any, Any]]:
    """The runs, deleted and not appended, with the names of their keys, freed.

    deployment: as it was before the change, with the schedules that made them. nominate: for Which.ALL.
    """
    nominated = _nominated(ledger, deployment, which, now, nominate)
    changed: list[Stream[Any, Any]] = []
    for run in ledger.load_each([OpenFlowRun(id) for id in nominated]):
        if _has_not_begun(run, deployment.id, which, now):
            run.delete()
            changed.append(run)
    keys = [(run.state.flow_id, run.state.idempotency_key) for run in changed]
    names = [OpenName("flow_run", flow, key) for flow, key in keys if key is not None]
    for name in ledger.load_each(names) if names else []:
        if name.holder is not None:
            name.free()
            changed.append(name)
    return changed


def _nominated(
    ledger: Ledger, deployment: Record, which: Which, now: datetime, nominate: Nominate | None
) -> Iterable[str]:
    if which is Which.ALL:
        found = None if nominate is None else nominate(deployment.id)
        if found is None:
            found = [id for (id,) in ledger.query(SQL.by_deployment, deployment=deployment.id)]
        return found
    start = OpenName.name_of("flow_run", deployment["flow_id"], f"scheduled {deployment.id} ")
    if which is Which.MADE_BY_SCHEDULES:
        ranges = [(start, _end(start))]
    else:
        starts = [f"{start}{schedule['id']} " for schedule in deployment["schedules"]]
        ranges = [(f"{one}{time_text(now)[:19]}", _end(one)) for one in starts]
    if not ranges:
        return []
    rows = ledger.query(SQL.by_keys, starts=[one for one, _ in ranges], ends=[end for _, end in ranges])
    return [id for (id,) in rows]


def _end(start: str) -> str:
    """The first text after all that begin with this one, which ends with a space."""
    return start[:-1] + "!"


def _has_not_begun(run: OpenFlowRun, deployment_id: str, which: Which, now: datetime) -> bool:
    now_is = run.state
    if not run.is_there or now_is.deployment_id != deployment_id or now_is.state is None:
        return False
    if now_is.state.type is not StateType.SCHEDULED or now_is.state.name == WAITING_FOR_SLOT:
        return False
    if now_is.run_count or (which is not Which.ALL and not now_is.auto_scheduled):
        return False
    at = now_is.next_scheduled_start_time
    return which is not Which.FUTURE or (at is not None and at > now)
