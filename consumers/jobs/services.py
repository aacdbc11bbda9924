"""The services of a worker, in threads of its process: fan-in, cascade, scheduler, reaper, views."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Self

from consumers.election import Candidate
from ledger import Ledger, NoPermission, ServerUnavailable
from ledger.jobs.leases import Leases
from projections.engine.projector import Projector, views_named
from projections.shipped import load

from .signal import Signal

FIRST_PAUSE: Final = 0.5
MAX_PAUSE: Final = 30.0
"""Seconds until a service that failed is started again; doubled each time that it fails at once."""
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

Act = Callable[[threading.Event], object]
"""Runs until the event is set; made anew for each start."""

_log = logging.getLogger(__name__)


class Service:
    """Runs in a thread for ever: an error is logged, and it starts again.

    election: it runs only while this worker is elected; without one, always. begun: how often it started.
    error: the last one.
    """

    def __init__(self, name: str, make: Callable[[], Act], election: Candidate | None = None) -> None:
        self.name, self.make, self.election = name, make, election
        self.begun = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Stop it, without waiting."""
        self._stop.set()

    def _run(self) -> None:
        pause, last_error = FIRST_PAUSE, ""
        while (term := self._wanted()) is not None:
            self.begun += 1
            began = time.monotonic()
            try:
                self.make()(term)
            except ServerUnavailable as error:  # start again as soon as it is back
                self.error = error
                pause = pause if isinstance(error, NoPermission) else FIRST_PAUSE
                if last_error != str(error):
                    last_error = str(error)
                    _log.warning("the service %s tries again: %s", self.name, error)
            except BaseException as error:
                self.error = error
                if time.monotonic() > began + MAX_PAUSE:
                    pause = FIRST_PAUSE
                _log.exception("the service %s ended and starts again in %s s", self.name, pause)
            if self._stop.wait(pause):
                return
            pause = min(pause * 2, MAX_PAUSE)

    def _wanted(self) -> threading.Event | None:
        """Wait until it may run: an event that is set when it must stop; None at the end."""
        if self.election is not None:
            return self.election.term(self._stop)
        return None if self._stop.is_set() else self._stop


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
