"""
Why a stage ran or was skipped in a run, from the log alone: what the run decided, and what had changed.

A stage that ran, or was restored, is compared with its completion before: its code, parameters, dependencies
and paths of outputs. A dependency that is an output of another stage is shown with the run that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger import Ledger, Recorded, StreamNotFound
from ledger.builds.completion import output_key
from ledger.builds.manifests import StageStatus
from ledger.builds.output import OpenOutput, OutputChanged
from ledger.builds.run import OpenRun, RunRecorded, StageFinished, StagesDecided, StageStarted
from ledger.builds.stage import Dep, OpenStage, StageCompleted
from ledger.domain.names import split_name, stream_name

PAGE: Final = 500
"""Events that are read at once."""
OF_STAGES: Final = [kind.topic for kind in (StagesDecided, StageStarted, StageFinished, RunRecorded)]
"""The topics of a run that say something of its stages."""


class Changed(NamedTuple):
    """What differs from the completion before. what: code, parameter, dependency, output.

    old, new: None where it was not there. stage, run: which made the new content of a dependency; None for a
    source file.
    """

    what: str
    name: str
    old: Any
    new: Any
    stage: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a stage ran or was skipped in a run.

    reason: why it ran or was skipped. at: when that was recorded. failure: why it failed, None where it did
    not. before: the run of the completion that it is compared with, or on which the skip relies; None where
    there is none.
    """

    project: str
    stage: str
    run: str
    at: datetime
    status: StageStatus
    reason: str
    tier: str | None
    input_hash: str | None
    duration_ms: int | None
    failure: str | None
    before: str | None
    changes: tuple[Changed, ...]


class _Decision(NamedTuple):
    """An event of a run that says something of the stage, in the words of Why."""

    event: Recorded
    status: StageStatus
    reason: str
    tier: str | None = None
    input_hash: str | None = None
    duration_ms: int | None = None


def why(ledger: Ledger, project: str, stage: str, run: str | None = None) -> Why:
    """Why a stage ran or was skipped in a run, by default in the last one that decided about it.

    Raises StreamNotFound where there is no such run, or no run decided about the stage.
    """
    name = run or _last_run(ledger, project, stage)
    told = [found for event in ledger.read(OpenRun.name_of(project, name)) if (found := _told(event, stage))]
    if not told:
        raise StreamNotFound(OpenStage.name_of(project, stage))
    last = told[-1]
    failed = last.status == StageStatus.FAILED
    completions = _completions(ledger, project, stage, name, last.event.position)
    before = next(completions, None)
    changes: tuple[Changed, ...] = ()
    if before is not None and before.run == name and not failed:
        now, before = before, next(completions, None)
        changes = () if before is None else tuple(_changes(ledger, project, before, now))
    reason = told[-2].reason if told[1:] else last.reason
    return Why(
        project, stage, name, last.event.recorded_at, last.status, reason, last.tier, last.input_hash,
        last.duration_ms, last.reason if failed else None,
        before.run if before else None, changes,
    )  # fmt: skip


def _last_run(ledger: Ledger, project: str, stage: str) -> str:
    """The last run that decided about a stage. Raises StreamNotFound."""
    bound, prefix = ledger.bound(), stream_name(OpenRun.CATEGORY, project) + "/"
    while page := ledger.last(PAGE, bound, topics=OF_STAGES, prefix=prefix):
        for event in reversed(page):
            if _told(event, stage):
                return split_name(event.stream)[1][-1]
        bound = page[0].position - 1
    raise StreamNotFound(OpenStage.name_of(project, stage))


def _told(event: Recorded, stage: str) -> _Decision | None:
    """What an event of a run says of a stage."""
    match event.event:
        case StagesDecided(stages=stages):
            for one in stages:
                if one.stage == stage:
                    return _Decision(event, StageStatus.SKIPPED, one.reason, one.tier, one.input_hash)
        case StageStarted(stage=name, reason=reason, input_hash=hash) if name == stage:
            return _Decision(event, StageStatus.IN_PROGRESS, reason, None, hash)
        case StageFinished(stage=name) as fact if name == stage:
            return _Decision(event, fact.status, fact.reason, fact.tier, fact.input_hash, fact.duration_ms)
        case RunRecorded(stages=stages) if stage in stages:
            had = stages[stage]
            return _Decision(event, had.status, had.reason, None, had.input_hash, had.duration_ms)
    return None


def _completions(ledger: Ledger, project: str, stage: str, run: str, upto: int) -> Iterator[StageCompleted]:
    """The completions of a stage in a run, or recorded before a position, the last first."""
    name, version = OpenStage.name_of(project, stage), None
    if ledger.head(name) is None:
        return
    while events := ledger.read(name, upto=version, limit=PAGE, backwards=True):
        for event in events:
            fact = event.event
            if isinstance(fact, StageCompleted) and (event.position < upto or fact.run == run):
                yield fact
        version = events[-1].version - 1


def _changes(ledger: Ledger, project: str, old: StageCompleted, new: StageCompleted) -> Iterator[Changed]:
    """What differs between two completions."""
    for what, was, present in (
        ("code", old.code, new.code),
        ("parameter", old.params, new.params),
        ("dependency", _hashes(old.deps), _hashes(new.deps)),
        ("output", {out.path: out.path for out in old.outs}, {out.path: out.path for out in new.outs}),
    ):
        for name in sorted({*was, *present}):
            change = Changed(what, name, was.get(name), present.get(name))
            if change.old != change.new:
                yield _with_maker(ledger, project, change) if what == "dependency" else change


def _hashes(deps: Mapping[str, Dep]) -> dict[str, str | None]:
    return {path: dep.hash for path, dep in deps.items()}


def _with_maker(ledger: Ledger, project: str, change: Changed) -> Changed:
    """The change of a dependency, with the stage and the run that made its new content, if one did."""
    stream = OpenOutput.name_of(project, output_key(change.name))
    if change.new is None or ledger.head(stream) is None:
        return change
    for event in ledger.read(stream, backwards=True):
        made = event.event
        if isinstance(made, OutputChanged) and made.hash == change.new:
            return change._replace(stage=made.stage, run=made.run)
    return change
