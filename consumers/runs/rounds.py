"""What the services of runs have in common: rounds, one after another, each of which may fail alone."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from ledger import (
    Ledger,
    LedgerError,
    RecordNotFound,
    RunNotFound,
    SchemaMismatch,
    ServerUnavailable,
    StreamConflict,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Rounds(ABC):
    """A service that looks for work every so many seconds.

    Views and leases only nominate; what is done is decided on the stream, at the version that was read. So
    any number of them may run.
    """

    NAME: ClassVar[str]
    every: float
    """Seconds between two rounds."""

    def __init__(self, ledger: Ledger, *, every: float) -> None:
        self.ledger, self.every = ledger, every

    @abstractmethod
    def run_once(self) -> int:
        """One round; returns how many were changed. Raises ServerUnavailable."""

    def run(self, stop: threading.Event) -> None:
        """Rounds until `stop` is set. One that fails is logged, and the next one follows.

        Raises ServerUnavailable.
        """
        while not stop.is_set():
            try:
                self.run_once()
            except SchemaMismatch as error:  # the views are not made yet: nobody is nominated
                _log.debug("the service %s waits: %s", self.NAME, error)
            except ServerUnavailable:  # said once, and tried again, by who runs the service
                raise
            except LedgerError:
                _log.exception("a round of the service %s failed; the next is in %s s", self.NAME, self.every)
            stop.wait(self.every)

    def each(self, nominated: Iterable[T], act: Callable[[T], object]) -> int:
        """Act on each; returns for how many that changed something.

        One that another writer changed or deleted meanwhile is left to the next round; an error of one is
        logged, and the others go on.
        """
        done = 0
        for one in nominated:
            try:
                done += bool(act(one))
            except (StreamConflict, RunNotFound, RecordNotFound):
                continue
            except ServerUnavailable:
                raise
            except LedgerError:
                _log.exception("the service %s could not act on %s", self.NAME, one)
        return done
