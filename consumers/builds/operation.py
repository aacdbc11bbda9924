"""
The operation that runs one stage of a build, so that the stages of a run are shared by many machines.

    pledger worker run --operations consumers.builds.operation:registry --queue builds
    pledger builds run --queue builds

The machines share the folder of the project and its content cache, under the same paths; commands see the
same files as on one machine. Each machine keeps a local copy of its own, since LMDB is not for network
folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from consumers.jobs import OperationContext, OperationResult, Payload, Registry
from consumers.jobs.operation import Emit
from ledger import Ledger
from ledger.builds.run import OpenRun

from . import progress
from .command import Stop
from .plan import Undecided, plan
from .presence import Presence
from .project import Project, opened
from .stage_jobs import OPERATION
from .stage_run import Done, StageRunner

registry = Registry()


class BuildStage(Payload):
    """A stage of a run. file: the build file, as all machines see it."""

    file: str
    stage: str
    run: str
    force: bool = False


@registry.operation(OPERATION, BuildStage, summarize=lambda payload: f"stage {payload['stage']}")
def build_stage(session: OperationContext, payload: BuildStage, *, emit: Emit) -> OperationResult:
    """Run a stage of a build, restore its outputs, or find that another runner has done it."""
    file = Path(payload.file)
    with opened(session.ledger, file, copy=own_copy(session.ledger, file)) as project:
        with _runner(session, project, payload.run) as stages:
            done = _done(project, stages, payload)
    session.check()
    return OperationResult(asdict(done))


def _done(project: Project, stages: StageRunner, payload: BuildStage) -> Done:
    """Decide about the stage, and do what is decided, until something came of it."""
    stage = project.build.stages[payload.stage]
    while True:
        project.copy.catch_up()
        one = plan(project, [stage], force=payload.force)[stage.name]
        if isinstance(one, Undecided):
            return Done(stage.name, "failed", one.reason)
        if one.is_skip:
            decision, inputs = one.decision, one.declared.input_hash
            return Done(stage.name, "skipped", decision.reason, tier=decision.tier, input_hash=inputs)
        done = stages.execute(one)
        if not done.again:
            return done


def own_copy(log: Ledger, file: Path) -> Path:
    """The folder of this machine's local copy of a project."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = sha256(f"{log.identity.ledger}\0{file}".encode()).hexdigest()[:20]
    return cache / "pledger" / "builds" / name


@contextmanager
def _runner(session: OperationContext, project: Project, run_id: str) -> Iterator[StageRunner]:
    """A runner of stages in this process, for a run that another one began."""
    run = session.ledger.load(OpenRun, project.name, run_id)
    presence = Presence(project.build.root, "")
    try:
        stages = StageRunner(project, run_id, (run.state, run.version), presence, _ClaimStop(session), _tell)
        try:
            yield stages
        finally:
            stages.close()
    finally:
        presence.close()


class _ClaimStop(Stop):
    """Asks the command to end once the job is cancelled or given to another worker."""

    def __init__(self, session: OperationContext) -> None:
        super().__init__()
        self._session = session

    @property
    def asked(self) -> bool:
        return self._session.stopped is not None


def _tell(event: progress.Progress) -> None:
    """What a command writes is the output of the job."""
    if isinstance(event, progress.StageOutput):
        print(event.text, end="", file=sys.stderr, flush=True)
