"""All streams of a range, each folded beside its head, out of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import tuple_row

from ledger.store.connections import TEXT
from ledger.store.faults import ledger_errors

from ..sql import query, statement
from .fold import Fold, Folder, Row
from .moves import moves_of
from .partitions import Partition

MOST_ROWS: Final = 2_000
"""Rows that are fetched at once."""
MOST_TEXT: Final = 4 << 20
"""Characters of bodies or states that are aimed at in one fetch: large ones come in smaller pieces."""


class HeadRow(NamedTuple):
    """A head as it is kept."""

    stream: str
    version: int
    state_version: int
    state_schema: int | None
    status: str | None
    state: str | None
    token: int | None


class Session:
    """One connection for folding, outside any pool, and what was learned on it: moves, events seen before."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self.schema = schema
        with ledger_errors():
            self.connection = psycopg.connect(
                conninfo, autocommit=True, application_name="pledger fold", **TEXT
            )
            try:
                self.connection.isolation_level = IsolationLevel.REPEATABLE_READ
                self.folder = Folder(moves_of(self.connection, schema))
            except BaseException:
                self.connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One snapshot for all that is read in the block. Raises the ledger's errors."""
        with ledger_errors(), self.connection.transaction():
            self.rows("begin_fold")
            yield

    @contextmanager
    def changes(self) -> Iterator[None]:
        """A transaction in which each statement sees what was committed before it."""
        self.connection.isolation_level = IsolationLevel.READ_COMMITTED
        try:
            with ledger_errors(), self.connection.transaction():
                self.rows("begin_fold")
                yield
        finally:
            if not self.connection.closed:
                self.connection.isolation_level = IsolationLevel.REPEATABLE_READ

    def rows(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a named statement."""
        return query(self.connection, self.schema, name, **parameters)

    def stream(
        self,
        name: str,
        text: int | None = None,
        told: Callable[[int], None] = lambda _: None,
        **parameters: Any,
    ) -> Iterator[Any]:
        """The rows of a named statement one after the other, in bounded memory; only in a transaction.

        text: the column whose texts may be large. told: is given the number of rows since it was last called.
        """
        return chain.from_iterable(self._pages(name, text, told, parameters))

    def _pages(
        self, name: str, text: int | None, told: Callable[[int], None], parameters: dict[str, Any]
    ) -> Iterator[list[tuple[Any, ...]]]:
        with psycopg.ServerCursor(self.connection, name, row_factory=tuple_row) as cursor:
            cursor.execute(statement(name, self.schema), parameters, binary=True)
            many = 50
            while rows := cursor.fetchmany(many):
                yield rows
                told(len(rows))
                many = min(MOST_ROWS, many * 2)
                if text is not None:
                    size = sum(len(row[text]) for row in rows if row[text] is not None)
                    many = max(1, min(many, MOST_TEXT * len(rows) // max(1, size)))


def folds_of(
    session: Session, partition: Partition, told: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[Fold, HeadRow | None]]:
    """Every stream of a range, by name: its fold, of no events where there is only a head, and its head.

    told: is given the number of events since it was last called. All is read from one snapshot; whoever does
    not read to the end closes the iterator.
    """
    with session.snapshot():
        if partition.names is None:
            events = session.stream("fold_events", 5, told, start=partition.start, below=partition.below)
            heads = session.stream("fold_heads", 5, start=partition.start, below=partition.below)
        else:
            events = session.stream("fold_events_of", 5, told, streams=list(partition.names), after=0)
            heads = session.stream("fold_heads_of", 5, streams=list(partition.names))
        yield from _beside(session.folder, events, map(HeadRow._make, heads))


def fold_one(session: Session, stream: str) -> tuple[Fold, HeadRow | None]:
    """One stream, folded beside its head, in one snapshot."""
    found = [*folds_of(session, Partition(stream, stream, (stream,)))]
    return found[0] if found else (session.folder.fold(stream, ()), None)


def go_on(session: Session, fold: Fold) -> None:
    """Take the events into a fold that came since; in a transaction."""
    rows = session.rows("fold_events_of", streams=[fold.stream], after=fold.version)
    session.folder.go_on(fold, rows)


def _beside(
    folder: Folder, events: Iterator[Row], heads: Iterator[HeadRow]
) -> Iterator[tuple[Fold, HeadRow | None]]:
    """Join folds and heads by name; both come in its order."""
    head = next(heads, None)
    for stream, rows in groupby(events, itemgetter(0)):
        while head is not None and head.stream < stream:
            yield folder.fold(head.stream, ()), head
            head = next(heads, None)
        if head is not None and head.stream == stream:
            yield folder.fold(stream, rows, head.state_version), head
            head = next(heads, None)
        else:
            yield folder.fold(stream, rows), None
    while head is not None:
        yield folder.fold(head.stream, ()), head
        head = next(heads, None)
