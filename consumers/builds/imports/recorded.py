"""Imported stages as facts: one append of completions, their outputs, and a run that names the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ledger import Ledger
from ledger.builds.completion import record
from ledger.builds.inputs import OutSpec, input_hash
from ledger.builds.manifests import RunManifest, StageRunRecord, StageStatus
from ledger.builds.names import new_run_id
from ledger.builds.run import OpenRun
from ledger.builds.stage import Dep, How, OpenStage, Out, StageCompleted

from .declared import command
from .locked import LockedPath, LockedStage
from .verified import Checked, Spot


class Imported(NamedTuple):
    """An imported stage. recorded: False where the ledger knew the stage already and was left as it is.

    differ: its paths whose content is not there, or is not that of the lock file: it will run once.
    """

    stage: str
    recorded: bool
    differ: tuple[str, ...]


def record_stages(
    ledger: Ledger, project: str, root: Path, stages: Sequence[LockedStage], found: Mapping[Spot, Checked],
    source: str,
) -> tuple[str | None, list[Imported]]:  # fmt: skip
    """Record the stages that the ledger does not know yet; returns their run, None where all are known.

    found: what is recorded of each path (`verified.check`). source: the name of the file they come from.
    Raises BadBody for parameters that are not JSON, StreamConflict where another writer came first.
    """
    now = datetime.now(UTC)
    run = OpenRun(project, new_run_id(now))
    opened = {
        stage.stage: stage for stage in ledger.load_each(OpenStage(project, one.name) for one in stages)
    }
    new = [stage for stage in stages if opened[stage.name].state.input_hash is None]
    told = []
    for stage in stages:
        paths = {path: found[Spot(stage.place(path), path)] for path in (*stage.deps, *stage.outs)}
        if stage in new:
            opened[stage.name].complete(_fact(root, stage, paths, run.run_id, f"imported from {source}"))
        differ = sorted({stage.identity(root, path) for path, checked in paths.items() if not checked.agrees})
        told.append(Imported(stage.name, stage in new, tuple(differ)))
    if not new:
        return None, told
    run.write(_manifest(run.run_id, now, opened, [stage.name for stage in new]))
    record(ledger, [opened[stage.name] for stage in new], run)
    return run.run_id, told


def _fact(
    root: Path, stage: LockedStage, paths: Mapping[LockedPath, Checked], run: str, reason: str
) -> StageCompleted:
    """The completion of a stage. Its outputs are not in the content cache of this project."""
    code = stage.code if stage.command is None else {"command": command(root, stage)}
    deps = {stage.identity(root, path): paths[path].hash for path in stage.deps}
    outs = [(stage.identity(root, path), path) for path in stage.outs]
    specs = [OutSpec(name, path.cached) for name, path in outs]
    return StageCompleted(
        how=How.IMPORTED, run=run, input_hash=input_hash(code, stage.params, deps, specs), code=dict(code),
        params=dict(stage.params), deps={path: Dep(hash) for path, hash in sorted(deps.items())},
        outs=tuple(Out(name, paths[path].hash, cached=False) for name, path in sorted(outs)), reason=reason,
    )  # fmt: skip


def _manifest(run: str, now: datetime, opened: Mapping[str, OpenStage], names: Sequence[str]) -> RunManifest:
    stages = {
        name: StageRunRecord(
            input_hash=opened[name].state.input_hash, status=StageStatus.COMPLETED,
            reason=opened[name].state.reason, duration_ms=0,
        )
        for name in names
    }  # fmt: skip
    at = now.isoformat()
    return RunManifest(
        run_id=run, started_at=at, ended_at=at, targeted_stages=[], execution_order=[*names], stages=stages
    )
