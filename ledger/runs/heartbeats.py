"""
Heartbeats of flow runs: a run whose client has sent some, and sends no more, is nominated as crashed.

    Heartbeats(log).received({flow_run_id: occurred})

A client does not say how often it sends one. So the interval is the longest between two that came while the
run was in the same state, by the client's own clock: a late delivery does not make it shorter, nor does
another attempt, which may be another process with another interval. Until there are two, the interval is what
the job variables of the run set for its process, if they do. The lease of a run lasts three intervals (spec
W3-01).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from ..log.ledger import Ledger
from .flow_run import FlowRun, OpenFlowRun
from .leases import SQL, LeaseKind, RunLeases
from .records import open_class

INTERVALS: Final = 3.0
"""How many intervals a lease of a flow run lasts."""
SHORTEST: Final = 30.0
"""Seconds: clients send no heartbeats more often (Prefect's MINIMUM_HEARTBEAT_INTERVAL)."""
DEFAULT: Final = 180.0
"""Seconds between heartbeats of a client that is told nothing else."""
UNKNOWN: Final = 600.0
"""Seconds that count as the interval while nothing is known of it."""
VARIABLES: Final = ("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "PREFECT_RUNNER_HEARTBEAT_FREQUENCY")
"""The variables of the environment that set the interval of a client: its name, and its older name."""


class Heartbeats:
    """The heartbeats of flow runs. Needs the writer's role."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._leases = ledger, RunLeases(ledger)

    def received(self, last: Mapping[str, datetime]) -> None:
        """Renew the leases of flow runs: the time of the last heartbeat of each, by its client's clock."""
        if not last:
            return
        rows = self.ledger.query(
            SQL.beat,
            kind=LeaseKind.FLOW_RUN.value,
            keys=list(last),
            occurred=list(last.values()),
            first=INTERVALS * UNKNOWN,
            intervals=INTERVALS,
            shortest=SHORTEST,
        )
        self._expect(key for key, is_unknown in rows if is_unknown)

    def expected(self, runs: Iterable[str]) -> None:
        """Put leases on flow runs that lost theirs; those that have one keep it."""
        leases: dict[str, dict[str, Any]] = {run: {} for run in runs}
        self._expect(self._leases.put_if_absent(LeaseKind.FLOW_RUN, leases, INTERVALS * UNKNOWN))

    def _expect(self, runs: Iterable[str]) -> None:
        """Let the leases of runs whose interval is set last three of it."""
        for id in runs:
            run = self.ledger.load(OpenFlowRun, id).state
            if (interval := interval_set(self.ledger, run)) is not None:
                self._leases.renew_held(LeaseKind.FLOW_RUN, id, INTERVALS * max(interval, DEFAULT))


def interval_set(ledger: Ledger, run: FlowRun) -> float | None:
    """The longest interval in seconds that the job variables of a run, its deployment or its pool set.

    None where none does, or where it is not certain that they reach the process: the template of the pool
    must pass the environment on.
    """
    template = _at(_record(ledger, "work_pool", run.work_pool_id), "base_job_template")
    if not _PASSED_ON.fullmatch(str(_at(template, "job_configuration", "env"))):
        return None
    by_default = {"env": _at(template, "variables", "properties", "env", "default")}
    deployment = _at(_record(ledger, "deployment", run.deployment_id), "job_variables")
    found = [
        value for variables in (by_default, deployment, run.job_variables) for value in _set_in(variables)
    ]
    if not found or not all(_SECONDS.fullmatch(value) for value in found):
        return None
    return float(max(map(int, found)))


_PASSED_ON: Final = re.compile(r"\{\{\s*env\s*\}\}")
_SECONDS: Final = re.compile("[0-9]{1,8}")


def _record(ledger: Ledger, kind: str, id: str | None) -> Any:
    return None if id is None else ledger.load(open_class(kind), id).state.fields


def _set_in(variables: Any) -> list[str]:
    """What job variables set for the interval: in `env`, or as `env.NAME`."""
    places = [place for name in VARIABLES for place in (("env", name), (f"env.{name}",))]
    return [str(value) for place in places if (value := _at(variables, *place)) is not None]


def _at(value: Any, *path: str) -> Any:
    """What is at a path of a client's JSON; None where there is nothing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
