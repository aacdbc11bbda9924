"""Shared parts of the commands of runs: runs by their ids, how states are shown, the views of lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import Misuse, NotThere
from ..freshness import make_missing, say_how_fresh
from ..output import is_terminal
from ..session import Session

if TYPE_CHECKING:
    from datetime import timedelta

    from ledger import Ledger

SHORTEST: Final = 4
"""Minimum number of hexadecimal digits of an id."""
DIGITS: Final = 32
"""Hexadecimal digits of a whole id."""
NAMED: Final = 3
"""Maximum number of runs that are named if the beginning of an id fits several."""
STATES: Final = {
    "Completed": "green", "Cached": "green", "Running": "yellow", "Retrying": "yellow", "Failed": "red",
    "Crashed": "bold red", "Late": "red", "Cancelled": "magenta", "Cancelling": "magenta",
    "Scheduled": "dim", "Pending": "dim", "Paused": "cyan", "Suspended": "cyan", "refused": "red",
}  # fmt: skip
"""Names of states, and their styles."""
KEEPER: Final = "run `pledger serve --prefect`"
"""What keeps the views up to date."""

One = Annotated[str, typer.Argument(metavar="ID", help="The run's id, or its first digits, at least 4.")]
Many = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of flow runs, or the first digits of each, at least 4.")
]


@contextmanager
def viewed(session: Session) -> Iterator[Ledger]:
    """The ledger with the views of runs, made if missing; at the end stderr shows how far they are behind.

    Raises SchemaMismatch if one is missing and the login may not make it.
    """
    from projections.runs.waiting import VIEWS

    import_module("projections.runs.views")  # views that are not imported are looked for in all domains
    with session.ledger() as log:
        make_missing(session, log, VIEWS, KEEPER)
        yield log
        say_how_fresh(session, log, VIEWS, KEEPER)


def found(log: Ledger, given: str, *categories: str) -> tuple[str, str]:
    """The category and the whole id of a run. Raises Misuse for an invalid or ambiguous id; NotThere."""
    start = _spelled(given)
    wanted = categories or ("flow_run", "task_run")
    names = [
        info.stream for category in wanted for info in log.streams(f"{category}/{start}", limit=NAMED + 1)
    ]
    if not names:
        what = " or ".join(category.replace("_", " ") for category in wanted)
        raise NotThere(
            f"no {what} has an id that begins with {given}: `pledger runs list` lists them", id=given
        )
    if len(names) > 1:
        more = " and others" if len(names) > NAMED else ""
        raise Misuse(f"{given} may be {', '.join(names[:NAMED])}{more}: give more digits")
    category, _, id = names[0].partition("/")
    return category, id


def _spelled(given: str) -> str:
    """An id, or the beginning of one, with dashes in their places. Raises Misuse."""
    digits = re.sub("^(flow_run|task_run)/", "", given.strip().lower()).replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{SHORTEST},{DIGITS}}}", digits):
        raise Misuse(f"{given!r} is not a run's id: give a UUID, or at least its first {SHORTEST} digits")
    ends = (0, 8, 12, 16, 20, DIGITS)
    return "-".join(part for start, end in pairwise(ends) if (part := digits[start:end]))


def short(id: str | None) -> str:
    """An id for display: its first digits at a terminal, else the whole id."""
    return (id or "")[:8] if is_terminal() else id or ""


def seconds(span: timedelta) -> str:
    """A span in seconds; empty for none."""
    return f"{span.total_seconds():.1f}" if span else ""
