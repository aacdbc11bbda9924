"""What happens in a run, as it happens: the events that a listener gets, in order, in the run's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["ran", "skipped", "failed", "cancelled"]
RunOutcome = Literal["succeeded", "failed", "interrupted"]


class Skipped(NamedTuple):
    """A stage that is skipped. tier: which comparison decided it."""

    stage: str
    tier: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins. stages: in the order in which they would run one by one."""

    run: str
    project: str
    stages: tuple[str, ...]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class StagesSkipped:
    """Stages whose outputs fit their inputs, as they are."""

    stages: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class StagePlanned:
    """In a dry run: this stage would run. certain: False where that depends on what runs before it."""

    stage: str
    reason: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class StageWaiting:
    """Another runner is at this stage: its result is waited for."""

    stage: str
    holder: str


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins. expected_ms: how long it took last time, None where that is not known."""

    stage: str
    reason: str
    expected_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StageOutput:
    """Text that the command of a stage wrote, whole lines where it wrote lines. error: to standard error."""

    stage: str
    text: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class StageEnded:
    """A stage is over. skipped: its outputs were restored. cancelled: it did not get to run."""

    stage: str
    status: Status
    reason: str
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over: how, and how many stages ran, were skipped, failed, and did not get to run."""

    run: str
    status: RunOutcome
    ran: int = 0
    skipped: int = 0
    failed: int = 0
    not_run: int = 0
    duration_ms: int = 0


Progress = (
    RunStarted
    | StagesSkipped
    | StagePlanned
    | StageWaiting
    | StageStarted
    | StageOutput
    | StageEnded
    | RunEnded
)
Listener = Callable[[Progress], object]
