"""A service of a process: what runs in a thread for ever, or while the process is elected."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Self

from consumers.election import Candidate
from ledger import NoPermission, ServerUnavailable

FIRST_PAUSE: Final = 0.5
MAX_PAUSE: Final = 30.0
"""Seconds until a service that failed is started again; doubled each time that it fails at once."""

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
