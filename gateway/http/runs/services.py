"""What the routes work with, made once for a server: the services of the ledger, and the views of runs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

from consumers.runs import Listening, RunServices
from consumers.runs.deployment_scheduler import DeploymentScheduler
from ledger import Ledger
from ledger.runs.artifacts import Artifacts
from ledger.runs.blocks import Blocks
from ledger.runs.default_storage import DefaultStorage
from ledger.runs.deployments import Deployments
from ledger.runs.flow_runs import FlowRuns
from ledger.runs.limits import Limits
from ledger.runs.records import Records
from ledger.runs.run_logs import RunLogs
from ledger.runs.task_runs import TaskRuns
from ledger.runs.work_pools import WorkPools
from projections import Projector
from projections.engine.projector import views_named
from projections.runs import wait_for
from projections.runs.lists import scheduled_of
from projections.runs.prefect_events import PrefectEvents

from .events_intake import Intake

FRESH: Final = 1.0
"""Seconds that a list waits, at most, until the views contain what was recorded before it was asked for."""
MADE: Final = 10.0
"""Seconds that the start waits, at most, until the views are made; then lists answer 503 until they are."""
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
    """The services of runs on one ledger; while the block runs, the views of runs are followed.

    intake: records the events that clients send; the sockets of the server bring it.
    """

    def __init__(self, ledger: Ledger, settings: PrefectSettings) -> None:
        self.ledger, self.settings = ledger, settings
        self.flow_runs, self.task_runs, self.records = FlowRuns(ledger), TaskRuns(ledger), Records(ledger)
        self.deployments = Deployments(ledger, nominate=self._scheduled)
        self.work_pools = WorkPools(ledger)
        self.blocks, self.artifacts = Blocks(ledger), Artifacts(ledger)
        self.limits, self.logs = Limits(ledger), RunLogs(ledger)
        self.default_storage, self.scheduler = DefaultStorage(ledger), DeploymentScheduler(ledger)
        self.events = PrefectEvents(ledger)
        self.intake: Intake
        self._projector = Projector(ledger, views_named(VIEWS))
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Begin to follow the views, and to run the services."""
        with ExitStack() as starting:
            starting.enter_context(self._projector)
            starting.enter_context(Listening(self.ledger))
            if self.settings.services:
                starting.enter_context(RunServices(self.ledger))
            self._projector.wait_for(0, MADE)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop both."""
        self._running.__exit__(*error)

    def settle(self) -> bool:
        """Wait until the views contain all that is recorded by now, so that a client reads its own writes.

        After a second a list is answered as it is; False then.
        """
        return wait_for(self.ledger, views=VIEWS, projector=self._projector, seconds=FRESH)

    def _scheduled(self, deployment: str) -> list[str] | None:
        """The scheduled runs of a deployment, by the view; None where the view is behind."""
        return scheduled_of(self.ledger, deployment) if self.settle() else None

    def queue_of(self, pool: str | None, queue: str | None) -> dict[str, Any]:
        """The fields of a flow run that name its pool and queue; by default the pool's first queue.

        Raises RecordNotFound.
        """
        if pool is None:
            return {} if queue is None else {"work_queue_name": queue}
        found = self.work_pools.queue_of(pool, queue)
        return {
            "work_pool_id": found["work_pool_id"], "work_pool_name": pool, "work_queue_id": found.id,
            "work_queue_name": found["name"],
        }  # fmt: skip
