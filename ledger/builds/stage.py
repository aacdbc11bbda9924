"""
A stage of a build: claimed by one runner under a lease, run or restored, recorded with its inputs.

    (nothing) | ready | completed | failed ──claimed──▶ in_progress
    in_progress ──claimed──▶ in_progress      the lease of the last runner ran out
    in_progress ──completed─▶ completed       also without a claim: a commit, an import
    in_progress ──failed────▶ failed
    in_progress ──released──▶ ready           the runner gave it back without a result

The token of a claim is the version of its fact. It fences: once the claim is over, the guard of the
completion refuses (`under_lease`), and nothing of the completion is stored (W4-14). A failure changes nothing
of what was recorded of the last completion (spec S4-43).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..errors import ClaimLost, StageAlreadyRunningError
from ..log.append import Append, Guard, append_of
from .manifests import RunCacheEntry, StageStatus

Json = dict[str, JsonValue]


class How(StrEnum):
    """How a stage came to its completion."""

    RAN = "ran"
    RESTORED = "restored"
    COMMITTED = "committed"
    IMPORTED = "imported"


class Dep(NamedTuple):
    """A dependency as it was consumed.

    hash: of its content; None where only the generation is known. generation: of the output with exactly this
    content; None for a source file, and where the output had other content by then (W4-04).
    """

    hash: str | None
    generation: int | None = None


class Out(NamedTuple):
    """An output as a stage left it. hash: None for one that is not hashed. cached: in the content cache."""

    path: str
    hash: str | None
    cached: bool = True


class FileEntry(NamedTuple):
    """A file of an output that is a directory; as DirManifestEntry."""

    relpath: str
    hash: str
    size: int
    isexec: bool = False


READY, IN_PROGRESS, COMPLETED, FAILED = (
    StageStatus.READY,
    StageStatus.IN_PROGRESS,
    StageStatus.COMPLETED,
    StageStatus.FAILED,
)
MOVES: Final = Moves(
    {
        **dict.fromkeys([None, READY, COMPLETED, FAILED], frozenset({IN_PROGRESS, COMPLETED})),
        IN_PROGRESS: {IN_PROGRESS, COMPLETED, FAILED, READY},
    }
)

# Facts: what happened, and the status it leads to.


class StageFact(Event):
    """A fact of a stage."""


class StageClaimed(StageFact, topic="build.stage_claimed", to=IN_PROGRESS):
    """A runner claimed it. token: the version of this fact; after: that of a claim that it takes over."""

    token: int
    runner: str
    run: str | None = None
    after: int | None = None


class StageReleased(StageFact, topic="build.stage_released", to=READY):
    """Its runner gave it back without a result."""

    token: int
    reason: str = ""


class StageCompleted(StageFact, topic="build.stage_completed", to=COMPLETED):
    """Its outputs fit its inputs now; an entry of the run cache for (stage, input_hash).

    input_hash: SHA-256, all 64 hexadecimal digits (W4-13). code: the manifest of its code. deps, outs: by
    path, sorted. manifests: the files of each output that is a directory, if they are not in the content
    cache. token: of its claim, if it had one. incremental: an output builds on the former one, so that no
    run-cache entry is made.
    """

    how: How
    run: str | None = None
    token: int | None = None
    input_hash: str
    code: Json = {}
    params: Json = {}
    deps: dict[str, Dep] = {}
    outs: tuple[Out, ...] = ()
    manifests: dict[str, tuple[FileEntry, ...]] = {}
    reason: str = ""
    duration_ms: int = 0
    incremental: bool = False


class StageFailed(StageFact, topic="build.stage_failed", to=FAILED):
    """It failed, or missed an output; with the reason (spec S4-43)."""

    run: str | None = None
    token: int
    reason: str
    duration_ms: int = 0


class DepsRecorded(StageFact, topic="build.deps_recorded"):
    """All records of dependency generations were replaced, without a completion (spec S4-13)."""

    generations: dict[str, int]


class CacheEntryWritten(StageFact, topic="build.cache_entry_written"):
    """An entry of the run cache was written, without a completion (spec S4-18); as RunCacheEntry."""

    input_hash: str
    run: str
    outs: tuple[Out, ...] = ()
    manifests: dict[str, tuple[FileEntry, ...]] = {}


_ENDS: Final = (StageReleased, StageCompleted, StageFailed)
"""The facts that end a claim; each has its token."""

# State: what is true now.


@dataclass(frozen=True, slots=True)
class Stage:
    """The state of a stage: its claim, and what its last completion recorded (the stage lock of spec S4-41).

    run, runner, token, since: of the present claim, None without one. input_hash: None before the first
    completion. generations: the recorded generation of each dependency. completed_in: the run. reason: of the
    last completion or failure.
    """

    status: str | None = None
    run: str | None = None
    runner: str | None = None
    token: int | None = None
    since: datetime | None = None
    how: str | None = None
    input_hash: str | None = None
    code: Mapping[str, Any] = field(default_factory=FrozenDict)
    params: Mapping[str, Any] = field(default_factory=FrozenDict)
    deps: Mapping[str, str | None] = field(default_factory=FrozenDict)
    generations: Mapping[str, int] = field(default_factory=FrozenDict)
    outs: tuple[Out, ...] = ()
    completed_in: str | None = None
    completed_at: datetime | None = None
    reason: str = ""
    duration_ms: int = 0


def evolve(stage: Stage, event: Event, at: datetime, /) -> Stage:
    """Apply a fact. It applies no rules."""
    match event:
        case StageClaimed():
            return changed(
                stage, status=event.to, run=event.run, runner=event.runner, token=event.token, since=at
            )
        case StageReleased():
            return _free(stage, event)
        case StageCompleted():
            return _completed(stage, event, at)
        case StageFailed():
            return changed(_free(stage, event), reason=event.reason, duration_ms=event.duration_ms)
        case DepsRecorded():
            return changed(stage, generations=FrozenDict(event.generations))
        case _:
            return stage


def _free(stage: Stage, event: Event) -> Stage:
    return changed(stage, status=event.to, run=None, runner=None, token=None, since=None)


def _completed(stage: Stage, event: StageCompleted, at: datetime) -> Stage:
    generations = {path: dep.generation for path, dep in event.deps.items() if dep.generation is not None}
    return changed(
        _free(stage, event), how=event.how, input_hash=event.input_hash, code=event.code, params=event.params,
        deps=FrozenDict({path: dep.hash for path, dep in event.deps.items()}),
        generations=FrozenDict(generations), outs=event.outs, completed_in=event.run, completed_at=at,
        reason=event.reason, duration_ms=event.duration_ms,
    )  # fmt: skip


# Decisions: what may happen next.


class OpenStage(Stream[Stage, Event]):
    """A stage open for change; its key is the project and its name."""

    CATEGORY, MOVES, STATE = "build_stage", MOVES, Stage
    evolve = staticmethod(evolve)

    @property
    def project(self) -> str:
        """The name of its project."""
        return str(self.key[0])

    @property
    def stage(self) -> str:
        """The name of the stage."""
        return str(self.key[1])

    _leased = False

    def record(self, event: Event) -> None:
        """As in Stream; notes that the claim changes."""
        before = self.state.token
        super().record(event)
        self._leased |= self.state.token != before

    def settle(self, at: datetime) -> None:
        super().settle(at)
        self._leased = False

    def lease(self) -> int | None:
        return (self.state.token or 0) if self._leased else None

    @classmethod
    def token_in(cls, state: Stage) -> int | None:
        return state.token or 0

    def claim(self, runner: str, run: str | None = None, *, take_over: bool = False) -> int:
        """Claim it for a runner; returns the token of the claim.

        take_over: also where a claim holds, because its lease ran out. Raises StageAlreadyRunningError.
        """
        now = self.state
        if now.token is not None and not take_over:
            raise StageAlreadyRunningError(self.stage, now.runner or "another runner", now.token)
        token = self.version + len(self.news) + 1
        self.record(StageClaimed(token=token, runner=runner, run=run, after=now.token))
        return token

    def release(self, token: int, reason: str = "") -> None:
        """Give the claim back without a result. Raises ClaimLost."""
        self._check(token)
        self.record(StageReleased(token=token, reason=reason))

    def complete(self, fact: StageCompleted) -> None:
        """Record a completion; `fact.token` is that of the claim, None without one.

        Raises ClaimLost where that claim is over, StageAlreadyRunningError where another runner has one.
        """
        now = self.state
        if fact.token is not None:
            self._check(fact.token)
        elif now.token is not None:
            raise StageAlreadyRunningError(self.stage, now.runner or "another runner", now.token)
        self.record(fact)

    def fail(self, token: int, reason: str, *, run: str | None = None, duration_ms: int = 0) -> None:
        """Record that it failed; what its last completion recorded stays. Raises ClaimLost."""
        self._check(token)
        self.record(StageFailed(token=token, run=run, reason=reason, duration_ms=duration_ms))

    def record_generations(self, generations: Mapping[str, int]) -> bool:
        """Replace all records of dependency generations (spec S4-13); False where they are these already."""
        if self.state.generations == generations:
            return False
        self.record(DepsRecorded(generations=dict(generations)))
        return True

    def write_cache_entry(self, input_hash: str, entry: RunCacheEntry) -> None:
        """Write an entry of the run cache without a completion (spec S4-18)."""
        outputs = entry["output_hashes"]
        files = {output["path"]: output.get("manifest") for output in outputs}
        self.record(
            CacheEntryWritten(
                input_hash=input_hash,
                run=entry["run_id"],
                outs=tuple(Out(output["path"], output["hash"]) for output in outputs),
                manifests={
                    path: tuple(FileEntry(**file) for file in found)
                    for path, found in files.items()
                    if found is not None
                },
            )
        )

    def under_lease(self, token: int) -> Append:
        """The append of the news, guarded by a claim: refused once the claim is over."""
        return append_of(self)._replace(expected=Guard(frozenset({IN_PROGRESS}), token))

    @property
    def ended_claim(self) -> int | None:
        """The token of the recorded claim that the news end; None where they end none."""
        tokens = (fact.token for fact in self.news if isinstance(fact, _ENDS))
        return next((token for token in tokens if token is not None and token <= self.version), None)

    def _check(self, token: int) -> None:
        if self.state.token != token:
            raise ClaimLost(self.name, f"the claim with token {token}")
