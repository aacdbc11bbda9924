"""Dead letters in numbers: which are meant, and redriving or discarding each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.jobs import Dead, JobQueries

MOST: Final = 10_000
"""Maximum number of dead letters in one command (W1-19)."""
USUAL: Final = 1_000
PAGE: Final = 500

Act = Callable[["Ledger", str, "str | None"], None]
"""What is done with a dead letter: of its stream, with a reason. Raises Refused."""


def pages(queries: JobQueries, after: int | None = None, **filters: Any) -> Iterator[Dead]:
    """The dead letters, the latest failure first; filters: as of `JobQueries.dead`."""
    while page := queries.dead(**filters, after=after, limit=PAGE):
        yield from page
        after = page[-1].position
        if len(page) < PAGE:
            return


def foresee(log: Ledger, stream: str, _: str | None = None) -> None:
    """Raise Refused if it cannot be redriven; changes nothing."""
    from ledger.errors import Refused
    from ledger.jobs.dead_letters import dead_letter, why_not

    if why := why_not(log, dead_letter(log, stream)):
        raise Refused(why)


def nothing(log: Ledger, stream: str, _: str | None = None) -> None:
    """Accept: any dead letter may be discarded."""


def acted(
    log: Ledger, chosen: Sequence[Dead], act: Act, reason: str | None, *, with_jobs: bool
) -> Iterator[tuple[Dead, str | None]]:
    """Each, and why it was refused. with_jobs: the action on a job applies to its batches too."""
    from ledger.errors import Refused

    jobs = set[str]()
    for one in chosen:
        try:
            if one.nr is None or one.job not in jobs:
                act(log, one.stream, reason)
            if one.nr is None and with_jobs:
                jobs.add(one.job)
            yield one, None
        except Refused as error:
            yield one, str(error)
