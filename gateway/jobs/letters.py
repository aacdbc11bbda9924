"""Dead letters by what was asked for: their filters, and the pages of the view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ..codes import Misuse
from .finding import found

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.jobs import Dead, JobQueries

MOST: Final = 10_000
"""Letters of one command at most (W1-19)."""
USUAL: Final = 1_000
PAGE: Final = 500

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Only of these jobs, with their batches; JOB/NR: only this batch."),
]
Operation = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this operation.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Only from this queue.")]
Error = Annotated[str | None, typer.Option("--error", metavar="CODE", help="Only with this error code.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=MOST, help="At most so many.")]


class Filters(NamedTuple):
    """Which dead letters are meant."""

    ids: Sequence[str]
    operation: str | None
    queue: str | None
    error_code: str | None


def letters(
    log: Ledger, queries: JobQueries, filters: Filters, limit: int, after: int | None = None
) -> list[Dead]:
    """The dead letters, the newest first; one more than the limit where there are more.

    Raises Misuse, NotThere for what is no id of a job.
    """
    wanted = [target(log, id) for id in filters.ids]
    given = {"operation": filters.operation, "queue": filters.queue, "error_code": filters.error_code}
    if not wanted:
        return [*islice(_pages(queries, given, after), limit + 1)]
    chosen: dict[str, Dead] = {}
    for job, nr in wanted:
        of_it = [one for one in _pages(queries, {**given, "job": job}, after) if nr in (None, one.nr)]
        chosen |= {one.stream: one for one in of_it}
    return sorted(chosen.values(), key=lambda one: -one.position)[: limit + 1]


def _pages(queries: JobQueries, given: dict[str, Any], after: int | None) -> Iterator[Dead]:
    while page := queries.dead(**given, after=after, limit=PAGE):
        yield from page
        after = page[-1].position
        if len(page) < PAGE:
            return


def target(log: Ledger, given: str) -> tuple[str, str | None]:
    """The id of a job, and the number of its batch where one is meant. Raises Misuse, NotThere."""
    job, slash, nr = given.strip().removeprefix("job/").removeprefix("batch/").partition("/")
    if slash and not nr:
        raise Misuse(f"{given!r} must be the id of a job, or JOB/NR for one of its batches")
    return found(log, job), nr or None
