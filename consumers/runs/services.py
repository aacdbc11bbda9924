"""
The services of runs in threads of a process; of any number of processes, one is elected and runs them.

    with RunServices(ledger): …              # while a server serves, or until a program is told to stop

The election saves work; nothing depends on it: what a service does is decided at the version that it read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Self

from consumers.election import Candidate
from consumers.service import Act, Service
from ledger import Ledger
from ledger.jobs.leases import Leases

NAME: Final = "run_services"
"""The office for which processes stand."""
SECONDS: Final = 10.0
"""Seconds without a renewal after which another process is elected."""


@dataclass(frozen=True, slots=True)
class RunServiceSettings:
    """How the services work. late_after: seconds after its time when a run is late (Prefect's default).

    cancelling_timeout: seconds that a run may be CANCELLING. log_days: days for which log lines are kept; 0
    for ever.
    """

    late_after: float = 15.0
    cancelling_timeout: float = 300.0
    log_days: float = 90.0


_SERVICES: Final[Mapping[str, tuple[str, Callable[[RunServiceSettings], dict[str, Any]]]]] = {
    "deployment_scheduler": ("DeploymentScheduler", lambda _: {}),
    "late_runs": ("LateRuns", lambda settings: {"after": settings.late_after}),
    "pause_expiry": ("PauseExpiry", lambda _: {}),
    "slot_leases": ("SlotLeases", lambda _: {}),
    "worker_status": ("WorkerStatus", lambda _: {}),
    "cancellations": ("Cancellations", lambda settings: {"timeout": settings.cancelling_timeout}),
    "crashes": ("Crashes", lambda _: {}),
    "log_retention": ("LogRetention", lambda settings: {"days": settings.log_days}),
}
"""By the module: the class of each service, and what it gets of the settings."""


class RunServices:
    """Runs the services while the block runs, whenever this process is elected."""

    def __init__(self, ledger: Ledger, settings: RunServiceSettings | None = None) -> None:
        self.ledger, self.settings = ledger, settings or RunServiceSettings()
        self.election = Candidate(Leases(ledger), NAME, SECONDS)
        self.services = [Service(name, self._maker(name), self.election) for name in _SERVICES]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for service in self.services:
                starting.enter_context(service)
            starting.enter_context(self.election.standing())  # ended first: that stops what runs
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.services:
            service.end()
        self._running.close()

    def _maker(self, module: str) -> Callable[[], Act]:
        name, given = _SERVICES[module]

        def make() -> Act:
            kind = getattr(import_module(f".{module}", __package__), name)
            act: Act = kind(self.ledger, **given(self.settings)).run
            return act

        return make
