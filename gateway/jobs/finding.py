"""A job by its id, or by the beginning of it; and what is said where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..codes import Misuse, NotThere
from ..printing import is_terminal
from ..session import Session

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.jobs import Jobs

SHORTEST: Final = 4
"""Hexadecimal digits that must be given of an id."""
DIGITS: Final = 32
"""Hexadecimal digits of a whole id."""
WHICH: Final = "`pledger jobs list` shows which there are"
TOLD: Final = 3
"""Jobs that are named where the beginning of an id fits several."""

One = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, or at least 4 digits that only its id begins with.")
]
Many = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of jobs, or at least the first 4 digits of each.")
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is recorded.")]


@contextmanager
def jobs_of(session: Session) -> Iterator[Jobs]:
    """The jobs of the ledger, for one command. Raises NotThere for a job that is not there."""
    with session.ledger() as log:
        from ledger.errors import StreamNotFound
        from ledger.jobs import Jobs

        try:
            yield Jobs(log)
        except StreamNotFound as error:
            category, _, id = error.stream.partition("/")
            if category not in ("job", "batch"):
                raise
            raise NotThere(f"there is no {category} {id}; {WHICH}", id=id) from None


def found(log: Ledger, given: str) -> str:
    """The whole id of a job that is meant. Raises Misuse for no id, or one of several; NotThere."""
    start = _spelled(given)
    if len(start) == DIGITS + 4:
        return start
    ids = [info.stream.partition("/")[2] for info in log.streams(f"job/{start}", limit=TOLD + 1)]
    if not ids:
        raise NotThere(f"no job's id begins with {given}; {WHICH}", id=given)
    if len(ids) > 1:
        more = " and others" if len(ids) > TOLD else ""
        raise Misuse(f"{given} may be {', '.join(ids[:TOLD])}{more}: give more digits")
    return ids[0]


def each_found(log: Ledger, given: list[str]) -> list[str]:
    """The whole ids, each once, in the order given; all are looked for before one is used."""
    return list(dict.fromkeys(found(log, one) for one in given))


def _spelled(given: str) -> str:
    """An id, or the beginning of one, with dashes where they belong. Raises Misuse."""
    digits = given.strip().lower().removeprefix("job/").replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{SHORTEST},{DIGITS}}}", digits):
        raise Misuse(f"{given!r} is no id of a job: give a UUID, or at least its first {SHORTEST} digits")
    ends = (0, 8, 12, 16, 20, DIGITS)
    parts = [digits[start:end] for start, end in pairwise(ends)]
    return "-".join(part for part in parts if part)


def short(id: str | None) -> str:
    """An id for the eye: its first digits at a terminal, else the whole."""
    return (id or "")[:8] if is_terminal() else id or ""
