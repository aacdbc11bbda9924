"""Cleaning a project up: old runs leave the lists, and outputs and hashes that nothing needs are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledger import Ledger
from ledger.builds.retention import RETENTION, beyond, drop_runs
from ledger.builds.run import RunStatus
from projections.builds.history import runs

from .content_cache import Collected
from .project import opened


class Cleaned(NamedTuple):
    """What was dropped, or would be.

    runs: their ids, the newest first; their events stay in the log. contents: of the content cache; None
    where it lies outside of the project, since other projects may use it. hashes: of files that are gone or
    have changed.
    """

    runs: tuple[str, ...]
    contents: Collected | None
    hashes: int


def clean(log: Ledger, file: Path, retention: int = RETENTION, *, dry_run: bool = False) -> Cleaned:
    """Drop the runs beyond the newest `retention`, then what only they needed. Raises BadInput, BadFile.

    An output is kept as long as the run cache, or the last completion of a stage, names its content. A run
    that goes on is never dropped. dry_run: say which runs would be dropped; the rest as if they were kept.
    """
    with opened(log, file) as project:
        over = [run for run, state in runs(log, project.name) if state.status != RunStatus.IN_PROGRESS]
        dropped = tuple(beyond(over, retention))
        if dropped and not dry_run:
            drop_runs(log, project.name, dropped, retention)
        project.copy.catch_up()
        contents = None
        if project.build.cache.is_relative_to(project.build.root):
            with project.copy.reading() as now:
                needed = now.contents()
            contents = project.contents.collect(needed, dry_run=dry_run)
        hashes = 0 if dry_run else project.copy.gc(project.build.root)
        return Cleaned(dropped, contents, hashes)
