"""Reading what was appended before: a list is answered when the views contain it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from ledger import Ledger
from ledger.log.sql import Statements

from ..engine.projector import Projector

SQL: Final = Statements(__package__, "waiting")
VIEWS: Final = ("flow_runs", "task_runs", "run_records")
"""The views that lists are read from."""
LONGEST: Final = 1.0
"""Seconds to wait, at most."""
PAUSE: Final = 0.005
"""Seconds between two looks at views that another process follows."""


def wait_for(
    log: Ledger,
    position: int | None = None,
    *,
    views: Sequence[str] = VIEWS,
    projector: Projector | None = None,
    seconds: float = LONGEST,
) -> bool:
    """Wait until the views contain the events up to a position; False where the time is over before.

    position: by default of the last event that is recorded now. projector: the one of this process that
    follows the views: it tells when they have moved; without it they are looked at again and again.
    """
    deadline = time.monotonic() + seconds
    last, reached = _places(log, views)
    wanted = last if position is None else position
    while reached < wanted:
        left = deadline - time.monotonic()
        if left <= 0 or reached < 0:
            return False
        if projector is not None:
            return projector.wait_until(lambda: _is_at(projector, views, wanted), left)
        threading.Event().wait(min(PAUSE, left))
        _, reached = _places(log, views)
    return True


def _places(log: Ledger, views: Sequence[str]) -> tuple[int, int]:
    """The last event that is recorded, and the one up to which all views contain what they want."""
    ((last, reached),) = log.query(SQL.places, views=list(views))
    return last, reached


def _is_at(projector: Projector, views: Sequence[str], position: int) -> bool:
    return all(projector.positions.get(view, -1) >= position for view in views)
