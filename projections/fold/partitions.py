"""Which streams are folded, and ranges of their names with about equally many events."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

import psycopg

from ledger.errors import BadInput
from ledger.log.sql import Statements, run

SQL = Statements(__package__, "partitions")


LAST: Final = "\U0010ffff"
"""Sorts after every character that a stream's name can have."""
PER_PARTITION: Final = 15_000
"""Approximate events of a range: enough that its snapshot and messages cost little, and soon done."""
MOST: Final = 4_000
"""Maximum number of ranges."""
PLACES: Final = 8
"""Places of the log that are sampled for each range."""
NAMES_AT_ONCE: Final = 500
"""Streams by name in one range."""


class Which(NamedTuple):
    """Which streams: all, those whose names start with a prefix, or a random sample of these."""

    prefix: str = ""
    sample: int | None = None

    @property
    def everything(self) -> bool:
        """Whether that is the whole ledger."""
        return self == ALL

    @classmethod
    def of(cls, prefix: str | None = None, category: str | None = None, sample: int | None = None) -> Which:
        """From a prefix or a category. Raises BadInput for both, and for a sample of less than one."""
        if prefix is not None and category is not None:
            raise BadInput("give a prefix of streams or a category, not both")
        if sample is not None and sample < 1:
            raise BadInput(f"a sample must have 1 stream or more, not {sample}")
        return cls(prefix or "" if category is None else f"{category}/", sample)


ALL: Final = Which()


class Partition(NamedTuple):
    """The streams from one name up to another (exclusive); or those of `names`, if given."""

    start: str
    below: str
    names: tuple[str, ...] | None = None


def partitions(
    connection: psycopg.Connection[Any], schema: str, which: Which = ALL, *, per: int = PER_PARTITION
) -> tuple[list[Partition], int]:
    """Ranges that hold every stream once, by name, and how many events they have; of a sample 0, unknown."""
    bounds = {"start": which.prefix, "below": which.prefix + LAST}
    if which.sample is not None:
        rows = run(connection, schema, SQL.fold_sample, many=which.sample, **bounds)
        names = sorted(name for (name,) in rows)
        chunks = [tuple(names[i : i + NAMES_AT_ONCE]) for i in range(0, len(names), NAMES_AT_ONCE)]
        return [Partition(chunk[0], chunk[-1], chunk) for chunk in chunks], 0
    ((total,),) = run(connection, schema, SQL.fold_total, **bounds)
    wanted = min(MOST, -(-total // per))
    if wanted <= 1:
        return [Partition(which.prefix, which.prefix + LAST)], total
    places = [name for (name,) in run(connection, schema, SQL.fold_places, places=wanted * PLACES, **bounds)]
    cuts = (
        sorted({places[len(places) * nth // wanted] for nth in range(1, wanted)} - {which.prefix})
        if places
        else []
    )
    ends = [which.prefix, *cuts, which.prefix + LAST]
    return [Partition(*pair) for pair in pairwise(ends)], total
