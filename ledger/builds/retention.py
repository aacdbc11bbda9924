"""
Retention: which runs leave the lists, with their entries of the run cache. Their events stay in the log.

One append drops all of them, each with an audit of what it was (W4-05): `why` and `blame` still answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..errors import BadInput, shown
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .run import OpenRun

RETENTION: Final = 100
"""How many runs are kept by default (spec S4-35)."""
_PROTECTED: Final = "__"
"""What run ids of the run cache start with that are never dropped (spec S4-18)."""


def beyond(newest_first: Sequence[str], retention: int = RETENTION) -> list[str]:
    """The run ids that are not among the newest `retention`. Raises BadInput unless that is above 0."""
    if type(retention) is not int or retention < 1:
        raise BadInput(f"retention {shown(retention)} must be an integer, 1 or more")
    return [*newest_first[retention:]]


class Dropped(NamedTuple):
    """How many runs or entries were dropped, and the position of the last event; None without one."""

    number: int
    position: int | None


def drop_runs(ledger: Ledger, project: str, run_ids: Iterable[str], retention: int | None = None) -> Dropped:
    """Drop runs that are over, and their entries of the run cache, in one append; counts the runs."""
    wanted = [*run_ids]

    def drop() -> Dropped:
        runs = ledger.load_each([OpenRun(project, run_id) for run_id in wanted])
        dropped = sum([run.drop("retention", retention) for run in runs])
        appended = ledger.commit(*runs)
        return Dropped(dropped, appended and appended.last_position)

    return retry_conflicts(drop)


def orphans(entries: Mapping[str, int], valid_run_ids: Iterable[str]) -> dict[str, int]:
    """The run ids of the run cache that are not valid, with their numbers of entries (spec S4-18)."""
    valid = set(valid_run_ids)
    return {
        run: count for run, count in entries.items() if run not in valid and not run.startswith(_PROTECTED)
    }


def drop_cache(ledger: Ledger, project: str, entries: Mapping[str, int]) -> Dropped:
    """Drop the entries of the run cache that name these runs, in one append; counts the entries.

    entries: how many, by run id.
    """

    def drop() -> Dropped:
        runs = ledger.load_each([OpenRun(project, run_id) for run_id in entries])
        for run in runs:
            run.drop_cache(entries[run.run_id], "orphaned")
        appended = ledger.commit(*runs)
        return Dropped(sum(entries.values()), appended and appended.last_position)

    return retry_conflicts(drop)
