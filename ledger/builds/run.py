"""
A run of a build: one stream, written stage by stage while it goes on, so that a crash loses nothing (W4-12).

    (nothing) ──started──▶ in_progress ──ended──▶ completed | failed | interrupted ──dropped──▶ dropped
    any ──recorded─▶ in_progress | completed | failed    as a whole, by its manifest

The head of the stream keeps counts only: its state stays small however many stages a run has. The manifest
(spec S4-31) is the fold of all facts, `evolve_manifest`. Runs are ordered by the position of their first
event, not by their ids (W4-11). A dropped run is no longer listed; its events stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream
from .manifests import RunManifest, StageRunRecord, StageStatus


class RunStatus(StrEnum):
    """The statuses of a run."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"


_ENDS = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED})
MOVES: Final = Moves(
    {
        None: {RunStatus.IN_PROGRESS},
        RunStatus.IN_PROGRESS: _ENDS,
        **dict.fromkeys(_ENDS, frozenset({RunStatus.DROPPED})),
    }
)

# Facts: what happened, and the status it leads to.


class Decided(NamedTuple):
    """A stage that a run skipped. tier: which comparison decided; reason: in the words of spec S4-40."""

    stage: str
    tier: str | None
    reason: str
    input_hash: str | None = None


class StageOfRun(NamedTuple):
    """A stage in a run that was recorded as a whole; as StageRunRecord."""

    status: StageStatus
    reason: str = ""
    input_hash: str | None = None
    duration_ms: int = 0


class RunFact(Event):
    """A fact of a run."""


class RunStarted(RunFact, topic="build.run_started", to=RunStatus.IN_PROGRESS):
    """A runner began it. targets: the stages that were asked for; none: all. order: of execution."""

    targets: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    runner: str | None = None
    forced: bool = False


class StagesDecided(RunFact, topic="build.stages_decided"):
    """These stages were skipped; many in one event."""

    stages: tuple[Decided, ...]


class StageStarted(RunFact, topic="build.stage_started"):
    """A stage began to run. reason: why it runs, in the words of spec S4-40."""

    stage: str
    reason: str = ""
    input_hash: str | None = None


class StageFinished(RunFact, topic="build.stage_finished"):
    """A stage that had begun is over: it ran, failed, or was skipped because its outputs were restored."""

    stage: str
    status: StageStatus
    reason: str = ""
    tier: str | None = None
    input_hash: str | None = None
    duration_ms: int = 0


class RunEnded(RunFact, topic="build.run_ended", to_field="status"):
    """It is over. status: completed, failed (a stage failed) or interrupted."""

    status: RunStatus = RunStatus.COMPLETED


OF_STAGES: Final = (StagesDecided, StageStarted, StageFinished, RunEnded)
"""The facts of a run that goes on."""


class RunRecorded(RunFact, topic="build.run_recorded", to_field="status"):
    """It was recorded as a whole, in place of what was recorded of it before (spec S4-17).

    started_at, ended_at: as its manifest claims, ISO 8601.
    """

    status: RunStatus = RunStatus.COMPLETED
    started_at: str
    ended_at: str | None = None
    targets: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    stages: dict[str, StageOfRun] = {}


class RunDropped(RunFact, topic="build.run_dropped", to=RunStatus.DROPPED):
    """Retention dropped it, with the entries of the run cache that name it.

    reason: why. retention: how many runs were kept. ran, skipped, failed: what it had done.
    """

    reason: str
    retention: int | None = None
    ran: int = 0
    skipped: int = 0
    failed: int = 0


class CacheDropped(RunFact, topic="build.cache_dropped"):
    """The entries of the run cache that name this run were dropped (spec S4-18). entries: how many."""

    entries: int
    reason: str = ""


# State: what is true now, small.


@dataclass(frozen=True, slots=True)
class Run:
    """The state of a run. total: the number of stages in its order. ran, skipped, failed: how many so far.

    running: how many are under way. duration_ms: the sum over its stages. Times are the database's.
    """

    status: str | None = None
    runner: str | None = None
    forced: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    total: int = 0
    running: int = 0
    ran: int = 0
    skipped: int = 0
    failed: int = 0
    duration_ms: int = 0


def evolve(run: Run, event: Event, at: datetime, /) -> Run:
    """Apply a fact. It applies no rules."""
    match event:
        case RunStarted():
            return Run(str(event.to), event.runner, event.forced, at, total=len(event.order))
        case StagesDecided():
            return changed(run, skipped=run.skipped + len(event.stages))
        case StageStarted():
            return changed(run, running=run.running + 1)
        case StageFinished():
            return _finished(run, event)
        case RunEnded():
            return changed(run, status=str(event.status), ended_at=at, running=0)
        case RunRecorded():
            return _recorded(event, at)
        case RunDropped():
            return changed(run, status=str(event.to))
        case _:
            return run


def _finished(run: Run, event: StageFinished) -> Run:
    counted = {str(event.status): getattr(run, event.status) + 1} if event.status in _COUNTED else {}
    return changed(
        run, running=max(0, run.running - 1), duration_ms=run.duration_ms + event.duration_ms, **counted
    )


def _recorded(event: RunRecorded, at: datetime) -> Run:
    stages = event.stages.values()
    statuses = [stage.status for stage in stages]
    run = Run(str(event.status), None, False, at, None if event.ended_at is None else at, len(event.order))
    counted = {name: statuses.count(StageStatus(name)) for name in _COUNTED}
    return changed(run, duration_ms=sum(stage.duration_ms for stage in stages), **counted)


_COUNTED: Final = ("ran", "skipped", "failed")
"""The statuses of stages that are counted, each in the field of its name."""


# The manifest: the fold of all facts of a run.


def evolve_manifest(
    manifest: RunManifest | None, run_id: str, event: Event, at: datetime
) -> RunManifest | None:
    """The manifest after a fact: None before the run began, and after it was dropped.

    The manifest is changed in place: a run of 10,000 stages has as many facts.
    """
    match event:
        case RunStarted():
            return RunManifest(
                run_id=run_id, started_at=at.isoformat(), ended_at=None, targeted_stages=[*event.targets],
                execution_order=[*event.order], stages={},
            )  # fmt: skip
        case RunRecorded():
            return _manifest_of(run_id, event)
        case RunDropped():
            return None
        case _:
            if manifest is not None:
                _note(manifest, event, at)
            return manifest


def _note(manifest: RunManifest, event: Event, at: datetime) -> None:
    stages = manifest["stages"]
    match event:
        case StagesDecided():
            for one in event.stages:
                stages[one.stage] = _record(one.input_hash, StageStatus.SKIPPED, one.reason)
        case StageStarted():
            stages[event.stage] = _record(event.input_hash, StageStatus.IN_PROGRESS, event.reason)
        case StageFinished():
            stages[event.stage] = _record(event.input_hash, event.status, event.reason, event.duration_ms)
        case RunEnded():
            manifest["ended_at"] = at.isoformat()


def _record(input_hash: str | None, status: StageStatus, reason: str, duration_ms: int = 0) -> StageRunRecord:
    return StageRunRecord(input_hash=input_hash, status=status, reason=reason, duration_ms=duration_ms)


def _manifest_of(run_id: str, event: RunRecorded) -> RunManifest:
    return RunManifest(
        run_id=run_id, started_at=event.started_at, ended_at=event.ended_at,
        targeted_stages=[*event.targets], execution_order=[*event.order],
        stages={
            name: _record(one.input_hash, one.status, one.reason, one.duration_ms)
            for name, one in event.stages.items()
        },
    )  # fmt: skip


def manifest_of(run_id: str, events: Iterable[tuple[Event, datetime]]) -> RunManifest | None:
    """The manifest of a run from its facts and their times; None where it never began, or was dropped."""
    manifest: RunManifest | None = None
    for event, at in events:
        manifest = evolve_manifest(manifest, run_id, event, at)
    return manifest


# Decisions: what may happen next.


class OpenRun(Stream[Run, Event]):
    """A run open for change; its key is the project and the run id."""

    CATEGORY, MOVES, STATE = "build_run", MOVES, Run
    evolve = staticmethod(evolve)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self.key[1])

    def record(self, event: Event) -> None:
        """As in Stream; also checks the status in which a run ends. Raises MoveNotAllowed."""
        if isinstance(event, RunEnded):
            self.MOVES.check(self.state.status, event.status)
        super().record(event)

    def start(
        self,
        targets: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        runner: str | None = None,
        forced: bool = False,
    ) -> None:
        """Begin it. Raises MoveNotAllowed where it has begun."""
        self.record(RunStarted(targets=tuple(targets), order=tuple(order), runner=runner, forced=forced))

    def skip(self, stages: Iterable[Decided]) -> None:
        """Record stages that are skipped; nothing where there are none."""
        if decided := tuple(stages):
            self.record(StagesDecided(stages=decided))

    def start_stage(self, stage: str, reason: str = "", input_hash: str | None = None) -> None:
        """Record that a stage begins to run."""
        self.record(StageStarted(stage=stage, reason=reason, input_hash=input_hash))

    def finish_stage(self, fact: StageFinished) -> None:
        """Record that a stage that had begun is over."""
        self.record(fact)

    def end(self, status: RunStatus | None = None) -> None:
        """End it; by default failed if a stage failed, else completed. Raises MoveNotAllowed."""
        found = RunStatus.FAILED if self.state.failed else RunStatus.COMPLETED
        self.record(RunEnded(status=status or found))

    def write(self, manifest: RunManifest) -> None:
        """Record it as a whole, in place of what was recorded before (spec S4-17)."""
        stages = {
            name: StageOfRun(StageStatus(one["status"]), one["reason"], one["input_hash"], one["duration_ms"])
            for name, one in manifest["stages"].items()
        }
        self.record(
            RunRecorded(
                status=_status_of(manifest["ended_at"], stages),
                started_at=manifest["started_at"],
                ended_at=manifest["ended_at"],
                targets=tuple(manifest["targeted_stages"]),
                order=tuple(manifest["execution_order"]),
                stages=stages,
            )
        )

    def drop(self, reason: str, retention: int | None = None) -> bool:
        """Drop it from the lists, with its entries of the run cache; False unless it is over and listed."""
        now = self.state
        if now.status not in _ENDS:
            return False
        self.record(
            RunDropped(
                reason=reason, retention=retention, ran=now.ran, skipped=now.skipped, failed=now.failed
            )
        )
        return True

    def drop_cache(self, entries: int, reason: str = "") -> None:
        """Drop the entries of the run cache that name it."""
        self.record(CacheDropped(entries=entries, reason=reason))


def _status_of(ended_at: str | None, stages: Mapping[str, StageOfRun]) -> RunStatus:
    if ended_at is None:
        return RunStatus.IN_PROGRESS
    failed = any(stage.status == StageStatus.FAILED for stage in stages.values())
    return RunStatus.FAILED if failed else RunStatus.COMPLETED
