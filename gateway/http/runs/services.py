"""What the routes work with, made once for a server: the services of the ledger, and the views of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from ledger import Ledger
from ledger.runs.flow_runs import FlowRuns
from ledger.runs.records import Records
from ledger.runs.task_runs import TaskRuns
from projections import Projector
from projections.engine.projector import views_named
from projections.runs import wait_for

FRESH: Final = 1.0
"""Seconds that a list waits, at most, until the views contain what was recorded before it was asked for."""
VIEWS: Final = ("flow_runs", "task_runs", "run_records")


@dataclass(frozen=True, slots=True)
class PrefectSettings:
    """How the Prefect-compatible API is served.

    version: the version of Prefect that it names; None: that of the client. services: also run the services
    of runs (scheduler, late runs, …) in this process.
    """

    version: str | None = None
    services: bool = True


class Services:
    """The services of runs on one ledger; while the block runs, the views of runs are followed."""

    def __init__(self, ledger: Ledger, settings: PrefectSettings) -> None:
        self.ledger, self.settings = ledger, settings
        self.flow_runs, self.task_runs, self.records = FlowRuns(ledger), TaskRuns(ledger), Records(ledger)
        self._projector = Projector(ledger, views_named(VIEWS))

    def __enter__(self) -> Self:
        """Begin to follow the views, and to run the services."""
        self._projector.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop both."""
        self._projector.__exit__(*error)

    def settle(self) -> None:
        """Wait until the views contain all that is recorded by now, so that a client reads its own writes.

        After a second a list is answered as it is.
        """
        wait_for(self.ledger, self.ledger.bound(), views=VIEWS, projector=self._projector, seconds=FRESH)
