"""Stages as jobs: each is submitted to a queue, and a worker on any machine that has the folders runs it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from ledger.errors import JobUnsuccessful
from ledger.jobs import Jobs

from . import progress
from .command import Stop
from .plan import Plan
from .project import Project
from .stage_run import Done

OPERATION: Final = "build_stage"
"""The name of the operation, in `consumers.builds.operation:registry`."""
_LOOKED: Final = 0.5
"""Seconds between two looks at whether the run must stop."""


class StageJobs:
    """Runs stages of one run as jobs of a queue."""

    def __init__(
        self, project: Project, run: str, queue: str, stop: Stop, tell: Callable[[progress.Progress], object],
        *, force: bool,
    ) -> None:  # fmt: skip
        self.project, self.run, self.queue, self.stop, self.tell = project, run, queue, stop, tell
        self.force = force
        self._jobs = Jobs(project.log)

    def execute(self, plan: Plan) -> Done:
        """Submit a job for the stage, and wait until it is over. Raises ServerUnavailable."""
        stage, began = plan.stage.name, monotonic()
        payload = {
            "file": str(self.project.build.path), "stage": stage, "run": self.run, "force": self.force,
        }  # fmt: skip
        job = self._jobs.submit(OPERATION, payload, queue=self.queue, description=f"stage {stage}")
        self.tell(progress.StageStarted(stage, plan.decision.reason, plan.expected_ms))
        while not self._is_over(job):
            if self.stop.asked:
                self._jobs.cancel(job, "the run was interrupted")
        try:
            return Done(**self._jobs.result(job))
        except JobUnsuccessful as error:
            return Done(stage, "failed", str(error), round(1000 * (monotonic() - began)))

    def _is_over(self, job: str) -> bool:
        return self._jobs.wait(job, seconds=_LOOKED)[job] in ("succeeded", "failed", "cancelled")
