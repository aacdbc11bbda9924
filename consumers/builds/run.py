"""
A run of a build: stages are decided, skipped in groups, and executed in parallel as far as the graph allows.

    run_build(log, Path("pledger-build.toml"), jobs=4)

At first all stages are decided at once, in one snapshot; those that only skipped stages come before are
settled with that. Each other one is decided when all that it needs is over. What is decided and what comes of
it is recorded as it happens, in `build_run/PROJECT/RUN`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final

from ledger import Ledger, LedgerError
from ledger.builds.completion import record
from ledger.builds.manifests import StageStatus
from ledger.builds.names import new_run_id
from ledger.builds.run import Decided, OpenRun, Run, RunStatus, StageFinished
from ledger.errors import GuardFailed, MoveNotAllowed

from . import progress
from .command import Stop
from .graph import Graph
from .plan import Plan, Undecided, plan
from .presence import Presence, crashed_runs
from .project import Project, opened
from .stage_jobs import StageJobs
from .stage_run import Done, StageRunner

QUEUED: Final = 32
"""How many stages are jobs at once."""
GROUP: Final = 1000
"""Maximum number of skipped stages in one event."""
_ENDS: Final[dict[progress.RunOutcome, RunStatus]] = {
    "succeeded": RunStatus.COMPLETED, "failed": RunStatus.FAILED, "interrupted": RunStatus.INTERRUPTED,
}  # fmt: skip


def run_build(
    log: Ledger,
    file: Path,
    targets: Sequence[str] = (),
    *,
    jobs: int | None = None,
    force: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    queue: str | None = None,
    listener: progress.Listener | None = None,
) -> progress.RunEnded:
    """Run the stages of a build file: these targets and what they need, or all.

    jobs: how many at once, by default one for each processor. queue: have them executed by workers of this
    queue (`consumers.builds.operation`), by default 32 at once. force: execute also what is unchanged.
    keep_going: after a failure, execute what does not need the failed stage. dry_run: only say what would be
    done. listener: gets `progress` events. Ctrl-C ends commands gracefully, a second one kills them.
    Raises BadFile, BadInput, ServerUnavailable, StateDBError.
    """
    with opened(log, file) as project:
        graph = project.graph.of(targets)
        project.copy.catch_up()
        tell = listener or (lambda _: None)
        if dry_run:
            return _dry_run(project, graph, tell, force=force)
        gone = _end_crashed_runs(project)
        run = BuildRun(project, graph, targets, tell, gone, force=force, keep_going=keep_going, queue=queue)
        ended = run.execute(jobs or (os.cpu_count() or 1 if queue is None else QUEUED))
        with suppress(LedgerError):  # this run is over; the next one records it
            _end_crashed_runs(project)  # whose runners were killed so lately that their commands still ran
        return ended


class BuildRun:
    """One run. id: of the run. targets: as they were asked for. tell: gets `progress` events.

    gone: runners that are known to have ended. queue: of the jobs that execute stages; None: this process.
    """

    def __init__(
        self, project: Project, graph: Graph, targets: Sequence[str], tell: progress.Listener,
        gone: Collection[str] = (), *, force: bool, keep_going: bool,
        queue: str | None = None,
    ) -> None:  # fmt: skip
        self.project, self.graph, self.targets, self.tell, self._gone = project, graph, targets, tell, gone
        self.force, self.keep_going, self.queue = force, keep_going, queue
        self.id = new_run_id(datetime.now(UTC))
        self.stop = Stop()
        self._over: dict[str, progress.Status] = {}
        self._todo: list[Plan] = []
        self._running = 0
        self._messages: SimpleQueue[Any] = SimpleQueue()
        self._interrupted = False
        self._error: BaseException | None = None
        self._next = graph.needed_by()
        self._left: dict[str, int] = {}
        self._run_at: tuple[Run, int] = Run(), 0

    def execute(self, jobs: int) -> progress.RunEnded:
        """Execute it, so many stages at once."""
        began = monotonic()
        self.tell(progress.RunStarted(self.id, self.project.name, self.graph.order))
        facts = self._first()
        run = OpenRun(self.project.name, self.id)
        run.start(self.targets, self.graph.order, forced=self.force)
        facts(run)
        with _signals(self._messages):
            if self._todo:
                record(self.project.log, [], run)
                self._run_at = run.state, run.version
                with self._executing(jobs) as submit:
                    self._loop(jobs, submit)
                run = self._opened()
            if self._error is not None:
                with suppress(LedgerError):
                    self._ended(run, began)
                raise self._error
            return self._ended(run, began)

    # Deciding

    def _first(self) -> Callable[[OpenRun], None]:
        """Decide all stages at once; settle those before which everything is skipped."""
        plans = plan(self.project, self.graph.stages.values(), force=self.force)
        skips: list[Plan] = []
        wrong: list[Undecided] = []
        for name in self.graph.order:
            if all(self._over.get(need) == "skipped" for need in self.graph.needs[name]):
                self._sort(plans[name], skips, wrong)
        self._left = {
            name: sum(self._over.get(need) != "skipped" for need in needs)
            for name, needs in self.graph.needs.items()
        }
        return self._settled(skips, wrong)

    def _decide(self, names: Iterable[str]) -> None:
        """Decide stages all of whose needs are over, and those that are ready by that, until none is left."""
        names = [*names]
        while names:
            skips: list[Plan] = []
            wrong: list[Undecided] = []
            stages = [self.graph.stages[name] for name in names]
            for one in plan(self.project, stages, force=self.force).values():
                self._sort(one, skips, wrong)
            facts = self._settled(skips, wrong)
            if skips or wrong:
                run = self._opened()
                facts(run)
                record(self.project.log, [], run)
            names = self._ready(one.stage.name for one in skips)

    def _sort(self, one: Plan | Undecided, skips: list[Plan], wrong: list[Undecided]) -> None:
        if isinstance(one, Undecided):
            wrong.append(one)
            self._over[one.stage.name] = "failed"
        elif one.is_skip:
            skips.append(one)
            self._over[one.stage.name] = "skipped"
        else:
            self._todo.append(one)

    def _settled(self, skips: list[Plan], wrong: list[Undecided]) -> Callable[[OpenRun], None]:
        """Tell of stages that need no execution; returns what records them in the run."""
        if skips:
            self.tell(progress.StagesSkipped(tuple(
                [progress.Skipped(one.stage.name, one.decision.tier, one.decision.reason) for one in skips]
            )))  # fmt: skip
        for one in wrong:
            self.tell(progress.StageEnded(one.stage.name, "failed", one.reason))

        def facts(run: OpenRun) -> None:
            for start in range(0, len(skips), GROUP):
                run.skip([_decided(one) for one in skips[start : start + GROUP]])
            for one in wrong:
                run.finish_stage(_failed(one.stage.name, one.reason))

        return facts

    def _ready(self, names: Iterable[str]) -> list[str]:
        """The stages that are ready to be decided, since these are over and did not fail."""
        ready = []
        for name in names:
            for following in self._next[name]:
                self._left[following] -= 1
                if self._left[following] == 0 and following not in self._over:
                    ready.append(following)
        return ready

    # Executing

    @contextmanager
    def _executing(self, jobs: int) -> Iterator[Callable[[Plan], None]]:
        """The threads of a run: `submit` gives one a plan; what happens comes as messages."""
        with ExitStack() as stack:
            stages = self._executor(stack)
            pool = stack.enter_context(ThreadPoolExecutor(jobs, "stage"))
            stack.callback(self.stop.kill)  # before the threads are waited for, if an error ends the run

            def execute(plan: Plan) -> None:
                try:
                    self._messages.put(stages.execute(plan))
                except BaseException as error:
                    self._messages.put(error)

            def submit(plan: Plan) -> None:
                pool.submit(execute, plan)

            yield submit

    def _executor(self, stack: ExitStack) -> StageRunner | StageJobs:
        """What executes plans: this process, or the workers of a queue."""
        presence = Presence(self.project.build.root, self.id)
        stack.callback(presence.close)
        tell = self._messages.put
        if self.queue is not None:
            return StageJobs(self.project, self.id, self.queue, self.stop, tell, force=self.force)
        stages = StageRunner(self.project, self.id, self._run_at, presence, self.stop, tell, self._gone)
        stack.callback(stages.close)
        return stages

    def _loop(self, jobs: int, submit: Callable[[Plan], None]) -> None:
        """Execute what is to be done, until nothing is left or nothing more may begin."""
        while self._running or (self._todo and self._goes_on):
            while self._todo and self._running < jobs and self._goes_on:
                self._running += 1
                submit(self._todo.pop(0))
            done = [message for message in self._received() if isinstance(message, Done)]
            self._finish(done)

    def _received(self) -> Iterator[Any]:
        """All messages that are there, one at least; what is only to be told is told."""
        message = self._messages.get()
        while True:
            match message:
                case Done():
                    self._running -= 1
                    yield message
                case BaseException():
                    self._running -= 1
                    self._error = self._error or message
                    self.stop.ask()
                case signal.Signals():
                    (self.stop.kill if self._interrupted else self.stop.ask)()
                    self._interrupted = True
                case _:
                    self.tell(message)
            if self._messages.empty():
                return
            message = self._messages.get()

    def _finish(self, done: list[Done]) -> None:
        """Go on after stages that are over, or that must be decided again."""
        if not done:
            return
        position = max((one.position for one in done if one.position is not None), default=None)
        again = [one.stage for one in done if one.again]
        self.project.copy.catch_up(None if again else position)
        over = [one for one in done if not one.again]
        for one in over:
            self._over[one.stage] = one.status
            self.tell(progress.StageEnded(one.stage, one.status, one.reason, one.duration_ms))
        self._record_unrecorded([one for one in over if one.position is None])
        ready = self._ready(one.stage for one in over if one.status != "failed")
        if self._goes_on:
            self._decide([*again, *ready])

    def _record_unrecorded(self, done: list[Done]) -> None:
        """Record what came of stages that were not claimed: outputs were restored, or could not be."""
        if not done:
            return
        run = self._opened()
        run.skip([Decided(one.stage, one.tier, one.reason, one.input_hash) for one in done
                  if one.status == "skipped"])  # fmt: skip
        for one in done:
            if one.status == "failed":
                run.finish_stage(_failed(one.stage, one.reason))
        record(self.project.log, [], run)

    @property
    def _goes_on(self) -> bool:
        """Whether further stages may begin."""
        if self._interrupted or self._error is not None:
            return False
        return self.keep_going or "failed" not in self._over.values()

    # The end

    def _opened(self) -> OpenRun:
        """The run's stream, as of its start: it is appended to at any version."""
        run = OpenRun(self.project.name, self.id)
        run.restore(*self._run_at)
        return run

    def _ended(self, run: OpenRun, began: float) -> progress.RunEnded:
        """Record the end, and tell of it and of the stages that did not get to run."""
        statuses = [*self._over.values()]
        left = [name for name in self.graph.order if name not in self._over]
        status: progress.RunOutcome = "failed" if "failed" in statuses or left else "succeeded"
        if self._interrupted or self._error is not None:
            status = "interrupted"
        run.end(_ENDS[status])
        record(self.project.log, [], run)
        for name in left:
            self.tell(progress.StageEnded(name, "cancelled", self._why_not(name)))
        ended = progress.RunEnded(
            self.id, status, statuses.count("ran"), statuses.count("skipped"), statuses.count("failed"),
            len(left), round(1000 * (monotonic() - began)),
        )  # fmt: skip
        self.tell(ended)
        return ended

    def _why_not(self, name: str) -> str:
        """Why a stage did not get to run."""
        failed = sorted(need for need in self.graph.needs[name] if self._over.get(need) == "failed")
        if failed:
            return f"needs {', '.join(failed)}, which failed"
        left = sorted(need for need in self.graph.needs[name] if need not in self._over)
        return f"needs {', '.join(left)}, which did not run" if left else "the run ended before"


def _dry_run(project: Project, graph: Graph, tell: progress.Listener, *, force: bool) -> progress.RunEnded:
    """Say what a run would do. What depends on a stage that would run is not certain."""
    began = monotonic()
    tell(progress.RunStarted("", project.name, graph.order, dry_run=True))
    plans = plan(project, graph.stages.values(), force=force)
    skips, failed, uncertain = [], 0, set[str]()
    for name in graph.order:
        one, waits = plans[name], sorted(graph.needs[name] & uncertain)
        if waits:
            tell(progress.StagePlanned(name, f"if {', '.join(waits)} made something else", certain=False))
        elif isinstance(one, Undecided):
            failed += 1
            tell(progress.StageEnded(name, "failed", one.reason))
        elif one.is_skip:
            skips.append(progress.Skipped(name, one.decision.tier, one.decision.reason))
            continue
        else:
            tell(progress.StagePlanned(name, one.decision.reason))
        uncertain.add(name)
    if skips:
        tell(progress.StagesSkipped(tuple(skips)))
    left = len(graph.order) - len(skips) - failed
    took = round(1000 * (monotonic() - began))
    ended = progress.RunEnded("", "failed" if failed else "succeeded", 0, len(skips), failed, left, took)
    tell(ended)
    return ended


def _end_crashed_runs(project: Project) -> set[str]:
    """Record the end of runs of this folder whose runners were killed; returns those runners."""
    gone = set()
    for path, run_id in crashed_runs(project.build.root):
        if run_id:
            _end_crashed_run(project, run_id)
        path.unlink(missing_ok=True)
        gone.add(path.name)
    return gone


def _end_crashed_run(project: Project, run_id: str) -> None:
    run = project.log.load(OpenRun, project.name, run_id)
    if run.state.status == RunStatus.IN_PROGRESS:
        run.end(RunStatus.INTERRUPTED)
        with suppress(GuardFailed, MoveNotAllowed):  # another runner was faster
            record(project.log, [], run)


@contextmanager
def _signals(messages: SimpleQueue[Any]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into messages, in the main thread; elsewhere its owner decides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, lambda got, _: messages.put(signal.Signals(got))) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _decided(one: Plan) -> Decided:
    return Decided(one.stage.name, one.decision.tier, one.decision.reason, one.declared.input_hash)


def _failed(stage: str, reason: str) -> StageFinished:
    return StageFinished(stage=stage, status=StageStatus.FAILED, reason=reason)
