"""Cleaning a project up: old runs leave the lists, and outputs and hashes that nothing needs are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger import Ledger
from ledger.builds.retention import RETENTION, beyond, drop_runs
from ledger.builds.run import RunStatus
from projections.builds.history import runs

from .project import opened

_GOES_ON: Final = (RunStatus.IN_PROGRESS,)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was dropped, or would be.

    runs: their ids, the newest first; their events stay in the log. contents, bytes: outputs deleted from the
    content cache; kept: those left; None where the cache lies outside of the project, since others may use
    it. hashes: entries of files that are gone or have changed.
    """

    runs: tuple[str, ...]
    contents: int | None
    bytes: int | None
    kept: int | None
    hashes: int


def clean(log: Ledger, file: Path, retention: int = RETENTION, *, dry_run: bool = False) -> Cleaned:
    """Drop the runs beyond the newest `retention`, then what only they needed. Raises BadInput, BadFile.

    An output is kept as long as the run cache, or the last completion of a stage, names its content. A run that
    goes on is never dropped. dry_run: only say what would be dropped of the runs.
    """
    with opened(log, file) as project:
        over = [run for run, state in runs(log, project.name) if state.status not in _GOES_ON]
        dropped = beyond(over, retention)
        if not dry_run and dropped:
            drop_runs(log, project.name, dropped, retention)
        project.copy.catch_up()
        counts: tuple[int | None, ...] = (None, None, None)
        if project.build.cache.is_relative_to(project.build.root):
            with project.copy.reading() as now:
                needed = now.contents()
            counts = project.contents.collect(needed, dry_run=dry_run)
        hashes = 0 if dry_run else project.copy.gc(project.build.root)
        return Cleaned(tuple(dropped), *counts, hashes)
