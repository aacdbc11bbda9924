"""The services of a worker, in threads of its process: fan-in, cascade, scheduler, reaper, views."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from consumers.election import Candidate
from consumers.service import Act, Service
from ledger import Ledger
from ledger.jobs.leases import Leases
from projections.engine.projector import Projector, views_named
from projections.shipped import load

from .signal import Signal

MAX_WAIT: Final = 0.02
"""Seconds between two reads of a quiet log for the view `work`, by which a job may start later."""
GATHER: Final = 0.025
"""Seconds between two batches of the view `work` under load: one event costs as much as ten."""
LISTED: Final = 0.25
"""Maximum seconds until lists show an event."""

NAME: Final = "services"
"""The office for which workers stand: the elected one runs the services."""
MAX_SECONDS: Final = 10.0
"""Maximum seconds without a renewal; then another worker is elected."""


class WorkProjector(Service):
    """Keeps the view `work`, unless another projector does; sets `signal` when it moved."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__("projector", self._make)
        self.ledger, self.signal = ledger, Signal()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.signal.close()

    def _moved(self, _view: str) -> None:
        self.signal.set()

    def _make(self) -> Act:
        load()
        views = views_named(["work"])
        projector = Projector(self.ledger, views, longest_pause=MAX_WAIT, gather=GATHER, moved=self._moved)
        return projector.run


def candidate_for_services(ledger: Ledger, worker: str, lease_seconds: float) -> Candidate:
    """A worker's part in the election of who runs the services."""
    return Candidate(Leases(ledger), NAME, min(lease_seconds, MAX_SECONDS), worker)


def background_services(
    ledger: Ledger, lease_seconds: float, election: Candidate | None = None, *, projecting: bool = True
) -> list[Service]:
    """The fan-in, the cascade, the scheduler, the reaper, and the projector of the view `jobs`.

    projecting: whether the view is kept, which needs the projector's role. With an election only the elected
    worker runs them, except the reaper: every worker runs one, three times in `lease_seconds`, at least every
    five seconds.
    """

    def reactor(module: str) -> Service:
        return Service(module, lambda: _of(module, module)(ledger).run, election)

    every = min(5.0, lease_seconds / 3)
    lists = [Service("jobs", lambda: _list_projector(ledger), election)] if projecting else []
    return [
        reactor("fan_in"),
        reactor("cascade"),
        Service("scheduler", lambda: _of("scheduler", "Scheduler")(ledger).run, election),
        Service("reaper", lambda: _of("reaper", "Reaper")(ledger, every=every).run),
        *lists,
    ]  # fmt: skip


def _list_projector(ledger: Ledger) -> Act:
    """Keeps the view `jobs`, from which lists of jobs are read."""
    load()
    return Projector(ledger, views_named(["jobs"]), longest_pause=LISTED, gather=LISTED).run


def _of(module: str, name: str) -> Any:
    return getattr(import_module(f".{module}", __package__), name)
