"""
One stage at work: it is claimed, its command runs or its outputs are restored, and its end is one append.

In this order, so that a crash at any moment leaves all of a completion or nothing of it: the lease, a last
look at the dependencies, the claim, the command, the outputs into the content cache, the append. Outputs that
a crash left behind are recorded nowhere; the next run does not trust them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from ledger.builds.completion import Known, record
from ledger.builds.inputs import consumed
from ledger.builds.manifests import StageStatus
from ledger.builds.run import OpenRun, Run, StageFinished
from ledger.builds.skip import OUTPUTS_MISSING, Action, Decision
from ledger.builds.stage import How, OpenStage, Out, StageCompleted
from ledger.errors import ClaimLost, StreamConflict

from . import progress
from .command import Command, Ended, Stop
from .content_cache import remove
from .hashing import Identity
from .paths import bare
from .plan import Plan, deps_now, generations_of
from .presence import Presence
from .project import Project
from .stage_leases import StageLease, StageLeases

_NONE: Final[Known] = {}
LOST: Final = "another runner has taken the stage over"


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a plan. again: nothing, decide again.

    position: of what was recorded; None where nothing was, and tier and input_hash are still to be.
    """

    stage: str
    status: progress.Status = "ran"
    reason: str = ""
    duration_ms: int = 0
    position: int | None = None
    again: bool = False
    tier: str | None = None
    input_hash: str | None = None


class _Failed(Exception):
    """The stage failed, with the reason."""


class StageRunner:
    """Runs stages of one run; each call of `execute` in a thread of its own.

    run_at: state and version of the run after its start. tell: is told what happens, from any thread. gone:
    runners that are known to have ended.
    """

    def __init__(
        self, project: Project, run: str, run_at: tuple[Run, int], presence: Presence, stop: Stop,
        tell: Callable[[progress.Progress], object], gone: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.project, self.run, self.presence, self.stop, self.tell = project, run, presence, stop, tell
        self._run_at = run_at
        self._leases = StageLeases(project.log, project.build.root, presence, gone)

    def close(self) -> None:
        """Renew no leases any more."""
        self._leases.close()

    def execute(self, plan: Plan) -> Done:
        """Do what is planned. Raises ServerUnavailable, StateDBError."""
        name, is_skip = plan.stage.name, plan.decision.action is Action.SKIP
        opened, stop = self._opened_stage(name), Stop(above=self.stop)
        if is_skip and opened.state.status != StageStatus.IN_PROGRESS:
            return self._restored(plan)
        lease = self._leases.take(opened.name, opened.version + 1, stop.kill)
        if isinstance(lease, str):
            self.tell(progress.StageWaiting(name, lease))
            self._leases.wait(opened.name, lease, self.stop)
            return Done(name, again=True)
        try:
            if is_skip:  # now nobody writes its outputs
                return self._restored(plan)
            if deps_now(self.project, plan.stage) != plan.declared.deps:
                return Done(name, again=True)
            return _Claimed(self, plan, opened, lease, stop).execute()
        finally:
            self._leases.give_back(lease)

    def hold(self, lease: StageLease) -> None:
        """Renew a lease until the end of its stage."""
        self._leases.hold(lease)

    def opened_run(self) -> OpenRun:
        """The run's stream, as of its start: it is appended to at any version."""
        run = OpenRun(self.project.name, self.run)
        run.restore(*self._run_at)
        return run

    def _opened_stage(self, name: str) -> OpenStage:
        """A stage's stream, as the local copy has it: a claim at another version is refused."""
        opened = OpenStage(self.project.name, name)
        with self.project.copy.reading() as now:
            if (found := now.stage(name)) is not None:
                version, state = found
                opened.restore(state, version)
        return opened

    def _restored(self, plan: Plan) -> Done:
        """Restore outputs of a stage that is skipped. What is not intact is decided again."""
        name = plan.stage.name
        began = monotonic()
        self.tell(progress.StageStarted(name, plan.decision.reason))
        try:
            if not all(self.put(path, content) for path, content in plan.restore.items()):
                return Done(name, again=True)
        except OSError as error:
            return Done(name, "failed", _sentence(error), _ms(began))
        return Done(
            name, "skipped", plan.decision.reason, _ms(began),
            tier=plan.decision.tier, input_hash=plan.declared.input_hash,
        )  # fmt: skip

    def put(self, path: str, content: str) -> bool:
        """Restore one output; False where it is not intact in the content cache. Raises OSError."""
        return self.project.contents.restore(content, self.project.build.root / path)


class _Claimed:
    """A stage under the claim of this runner."""

    def __init__(
        self, runner: StageRunner, plan: Plan, opened: OpenStage, lease: StageLease, lost: Stop
    ) -> None:
        self.runner, self.plan, self.opened, self.lease, self.lost = runner, plan, opened, lease, lost
        self.project, self.stage, self.name = runner.project, plan.stage, plan.stage.name
        self.decision: Decision = plan.decision
        self._began = monotonic()

    def execute(self) -> Done:
        """Claim it, and run or restore it."""
        if not self._claim():
            return Done(self.name, again=True)
        self.runner.tell(progress.StageStarted(self.name, self.decision.reason, self.plan.expected_ms))
        try:
            how = self._restore_or_run()
            return self._complete(how)
        except ClaimLost:
            return self._over(LOST)
        except _Failed as failed:
            return self._fail(str(failed))
        except OSError as error:
            return self._fail(_sentence(error))

    def _claim(self) -> bool:
        """Record the claim; False where another writer came first."""
        run = self.runner.opened_run()
        self.opened.claim(self.runner.presence.name, self.runner.run, take_over=True)
        run.start_stage(self.name, self.decision.reason, self.plan.declared.input_hash)
        try:
            record(self.project.log, [self.opened], run, command=self._command("claim"))
        except StreamConflict:
            return False
        self.runner.hold(self.lease)
        return True

    def _restore_or_run(self) -> How:
        """Restore the outputs where that was decided, else run the command. Raises _Failed, OSError."""
        if self.decision.action is Action.RESTORE:
            if all(self.runner.put(path, content) for path, content in self.plan.restore.items()):
                return How.RESTORED
            self.decision = self.decision._replace(
                action=Action.RUN, tier=None, reason=f"{self.decision.otherwise}; {OUTPUTS_MISSING}"
            )
        self._make_room()
        ended = self._run_command()
        if ended.stopped or ended.code:
            raise _Failed(ended.reason)
        return How.RAN

    def _make_room(self) -> None:
        """Delete former outputs, so that the command makes all of them; an incremental one it changes."""
        for out in self.stage.outs:
            path = self.project.build.root / out.path
            if not out.incremental:
                remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)

    def _run_command(self) -> Ended:
        runner = self.runner

        def output(text: str, error: bool) -> None:
            runner.tell(progress.StageOutput(self.name, text, error))

        root, text = self.project.build.root, self.stage.command
        return Command(text, root, runner.presence, self.lost, output).run()

    def _complete(self, how: How) -> Done:
        """Keep the outputs, and record the end. Raises _Failed, OSError, ClaimLost."""
        outs = self._outputs(store=how is How.RAN)
        deps = self.plan.declared.deps
        if deps_now(self.project, self.stage) != deps:
            raise _Failed("dependencies changed while it ran: run it again")
        with self.project.copy.reading() as now:
            known = generations_of(now, (*deps, *(out.path for out in outs)))
        declared, reason, took = self.plan.declared, self.decision.reason, _ms(self._began)
        self.opened.complete(
            StageCompleted(
                how=how, run=self.runner.run, token=self.lease.token, input_hash=declared.input_hash,
                code=dict(declared.code), params=dict(declared.params), deps=consumed(deps, known),
                outs=outs, reason=reason, duration_ms=took,
                incremental=any(out.incremental for out in self.stage.outs),
            )
        )  # fmt: skip
        outputs = {bare(out.path): known.get(out.path) for out in outs}
        status = StageStatus.RAN if how is How.RAN else StageStatus.SKIPPED
        return self._record(status, reason, took, outputs)

    def _outputs(self, *, store: bool) -> tuple[Out, ...]:
        """The outputs that are there now; those to be cached are kept. Raises _Failed, OSError."""
        looked = self.project.workspace.look(out.path for out in self.stage.outs)
        missing = [path for path, found in looked.items() if isinstance(found, FileNotFoundError)]
        if missing:
            raise _Failed(f"missing outputs: {', '.join(missing)}")
        outs = []
        for out in sorted(self.stage.outs, key=lambda out: out.path):
            found = looked[out.path]
            if not isinstance(found, Identity):
                raise _Failed(f"the output {out.path} cannot be read: {_sentence(found)}")
            if store and out.cache:
                self.project.contents.store(self.project.build.root / out.path, found)
            outs.append(Out(out.path, found.hash, out.cache))
        return tuple(outs)

    def _fail(self, reason: str) -> Done:
        """Record the failure; what was recorded of the last completion stays (spec S4-43)."""
        took = _ms(self._began)
        if self.runner.stop.asked:
            self.opened.release(self.lease.token, reason)
        else:
            self.opened.fail(self.lease.token, reason, run=self.runner.run, duration_ms=took)
        try:
            return self._record(StageStatus.FAILED, reason, took)
        except ClaimLost:
            return self._over(LOST)

    def _over(self, reason: str) -> Done:
        """Record in the run alone that nothing came of it."""
        run = self.runner.opened_run()
        run.finish_stage(self._finished(StageStatus.FAILED, reason, _ms(self._began)))
        appended = record(self.project.log, [], run)
        position = appended.last_position if appended is not None else None
        return Done(self.name, "failed", reason, _ms(self._began), position)

    def _record(self, status: StageStatus, reason: str, took: int, outputs: Known = _NONE) -> Done:
        """Append the end of the stage with that of its run. outputs: what the local copy has of them."""
        run = self.runner.opened_run()
        run.finish_stage(self._finished(status, reason, took))
        command = self._command("end")
        appended = record(self.project.log, [self.opened], run, outputs=outputs, command=command)
        assert appended is not None
        status_of: Mapping[StageStatus, progress.Status] = {
            StageStatus.RAN: "ran", StageStatus.SKIPPED: "skipped", StageStatus.FAILED: "failed",
        }  # fmt: skip
        return Done(self.name, status_of[status], reason, took, appended.last_position)

    def _finished(self, status: StageStatus, reason: str, took: int) -> StageFinished:
        return StageFinished(
            stage=self.name, status=status, reason=reason, tier=self.decision.tier,
            input_hash=self.plan.declared.input_hash, duration_ms=took,
        )  # fmt: skip

    def _command(self, what: str) -> str:
        """The command id of an append: a repeat after a lost answer records nothing twice."""
        return f"build {self.runner.run} {self.name} {self.lease.token} {what}"


def _ms(began: float) -> int:
    return round(1000 * (monotonic() - began))


def _sentence(error: OSError) -> str:
    """An error of the system in words."""
    place = f"{error.filename}: " if error.filename else ""
    full = "; free some space and run it again" if error.errno == errno.ENOSPC else ""
    return f"{place}{error.strerror or error}{full}"
