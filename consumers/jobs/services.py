"""What goes on beside a worker, in threads of its process: closes parents, passes cancels on, rescues."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Self

from ledger import Ledger
from projections.shipped import load
from projections.views.projector import Projector, views_named

from .election import Election

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds until a service that ended with an error is begun anew; doubled each time that it ends at once."""
LONGEST_WAIT: Final = 0.02
"""Seconds between two looks of the view `work` at a log that stands still: so much later a job begins."""
GATHER: Final = 0.015
"""Seconds between two batches of the view `work` under load: events by ones cost as much as by tens."""
LISTED: Final = 0.25
"""Seconds after which lists show what happened, at most, and what waits for it."""

Act = Callable[[threading.Event], object]
"""Serves until the event is set; made anew for each beginning."""

_log = logging.getLogger(__name__)


class Service:
    """Something that runs in a thread for ever: an error is logged, and it is begun anew.

    election: it runs only where and as long as this worker is elected; always without one. begun: how often.
    error: the last one.
    """

    def __init__(self, name: str, make: Callable[[], Act], election: Election | None = None) -> None:
        self.name, self.make, self.election = name, make, election
        self.begun = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while (ending := self._wanted()) is not None:
            self.begun += 1
            began = time.monotonic()
            try:
                self.make()(ending)
            except BaseException as error:
                self.error = error
                if time.monotonic() > began + LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                _log.exception("the service %s ended, and begins again in %s s", self.name, pause)
            if self._stop.wait(pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE)

    def _wanted(self) -> threading.Event | None:
        """Wait until it shall run: what is set when it shall not any more; None at the end."""
        if self.election is not None:
            return self.election.term(self._stop)
        return None if self._stop.is_set() else self._stop


class KeepingWork(Service):
    """Keeps the view `work`, unless another projector does; to be waited for with pipes: it moved."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__("projector", self._made)
        self.ledger = ledger
        self._news, self._tells = socket.socketpair()
        for end in (self._news, self._tells):
            end.setblocking(False)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._news.close()
        self._tells.close()

    def fileno(self) -> int:
        """Of what can be read once the view moved."""
        return self._news.fileno()

    def seen(self) -> None:
        """Note that it moved: from then on it is waited for anew."""
        with suppress(BlockingIOError):
            self._news.recv(4096)

    def _moved(self, _view: str) -> None:
        with suppress(OSError):  # full: it was told already; closed: nobody listens
            self._tells.send(b".")

    def _made(self) -> Act:
        load()
        views = views_named(["work"])
        projector = Projector(
            self.ledger, views, longest_pause=LONGEST_WAIT, gather=GATHER, moved=self._moved
        )
        return projector.run


def serving(ledger: Ledger, lease_seconds: float, election: Election | None = None) -> list[Service]:
    """What closes parents (fan_in), passes cancels on (cascade), submits on schedule, rescues, keeps lists.

    With an election only the elected worker runs them, but for what rescues: that all do, as often as leases
    of `lease_seconds` are worth it, and at least every five seconds.
    """

    def answering(module: str) -> Service:
        return Service(module, lambda: _of(module, module)(ledger).run, election)

    every = min(5.0, lease_seconds / 3)
    return [
        answering("fan_in"),
        answering("cascade"),
        Service("scheduler", lambda: _of("scheduler", "Scheduler")(ledger).run, election),
        Service("reaper", lambda: _of("reaper", "Reaper")(ledger, every=every).run),
        Service("jobs", lambda: _listing(ledger), election),
    ]  # fmt: skip


def _listing(ledger: Ledger) -> Act:
    """Keeps the view `jobs`, which lists of jobs ask."""
    load()
    return Projector(ledger, views_named(["jobs"]), longest_pause=LISTED, gather=LISTED).run


def _of(module: str, name: str) -> Any:
    return getattr(import_module(f".{module}", __package__), name)
