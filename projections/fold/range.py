"""All streams of a range, each folded and paired with its head, from one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import tuple_row

from ledger.log.connection import opened, prepare_nothing_behind_a_proxy
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statement, Statements, run

from .partitions import Partition
from .processes import Place
from .stream import Fold, Folder, Row, statuses_of

SQL = Statements(__package__, "range")


MOST_ROWS: Final = 2_000
"""Rows that are fetched at once."""
MOST_TEXT: Final = 4 << 20
"""Target characters of bodies or states per fetch: fewer rows are fetched if these are large."""


class HeadRow(NamedTuple):
    """A head as it is stored."""

    stream: str
    version: int
    state_version: int
    state_schema: int | None
    status: str | None
    state: str | None
    token: int | None


class FoldSession:
    """One connection for folding, outside any pool, and its caches: statuses and events seen before."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self.schema = schema
        with ledger_errors():
            self.connection = opened(conninfo, application_name="pledger fold")
            try:
                prepare_nothing_behind_a_proxy(self.connection)
                self.connection.isolation_level = IsolationLevel.REPEATABLE_READ
                self.folder = Folder(statuses_of(self.connection, schema))
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
            self.rows(SQL.begin_fold)
            yield

    @contextmanager
    def changes(self) -> Iterator[None]:
        """A transaction in which each statement sees what was committed before it."""
        self.connection.isolation_level = IsolationLevel.READ_COMMITTED
        try:
            with ledger_errors(), self.connection.transaction():
                self.rows(SQL.begin_fold)
                yield
        finally:
            if not self.connection.closed:
                self.connection.isolation_level = IsolationLevel.REPEATABLE_READ

    def rows(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a named statement."""
        return run(self.connection, self.schema, statement, **parameters)

    def stream(
        self,
        statement: Statement,
        text: int | None = None,
        report: Callable[[int], None] = lambda _: None,
        **parameters: Any,
    ) -> Iterator[Any]:
        """The rows of a named statement, streamed in bounded memory; only in a transaction.

        text: the column whose texts may be large. report: called with the number of rows since its last call.
        """
        return chain.from_iterable(self._pages(statement, text, report, parameters))

    def _pages(
        self,
        statement: Statement,
        text: int | None,
        report: Callable[[int], None],
        parameters: dict[str, Any],
    ) -> Iterator[list[tuple[Any, ...]]]:
        with psycopg.ServerCursor(self.connection, statement.name, row_factory=tuple_row) as cursor:
            cursor.execute(statement.text(self.schema), parameters, binary=True)
            many = 50
            while rows := cursor.fetchmany(many):
                yield rows
                report(len(rows))
                many = min(MOST_ROWS, many * 2)
                if text is not None:
                    size = sum(len(row[text]) for row in rows if row[text] is not None)
                    many = max(1, min(many, MOST_TEXT * len(rows) // max(1, size)))


@dataclass(slots=True)
class SessionWork:
    """Work that has a session of its own: the base of what `in_processes` is given."""

    place: Place
    session: FoldSession = field(init=False, repr=False, compare=False)

    def open(self) -> None:
        """Connect."""
        self.session = FoldSession(*self.place)

    def close(self) -> None:
        """Close the connection."""
        self.session.connection.close()


def folds_of(
    session: FoldSession, partition: Partition, report: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[Fold, HeadRow | None]]:
    """Every stream of a range, by name: its fold (without events if there is only a head), and its head.

    report: called with the number of events since its last call. All is read from one snapshot; a caller who
    stops early must close the iterator.
    """
    with session.snapshot():
        if partition.names is None:
            events = session.stream(SQL.fold_events, 5, report, start=partition.start, below=partition.below)
            heads = session.stream(SQL.fold_heads, 5, start=partition.start, below=partition.below)
        else:
            events = session.stream(SQL.fold_events_of, 5, report, streams=list(partition.names), after=0)
            heads = session.stream(SQL.fold_heads_of, 5, streams=list(partition.names))
        yield from _joined(session.folder, events, map(HeadRow._make, heads))


def fold_one(session: FoldSession, stream: str) -> tuple[Fold, HeadRow | None]:
    """One stream, folded and paired with its head, in one snapshot."""
    found = [*folds_of(session, Partition(stream, stream, (stream,)))]
    return found[0] if found else (session.folder.fold(stream, ()), None)


def go_on(session: FoldSession, fold: Fold) -> None:
    """Add the later events to a fold; in a transaction."""
    rows = session.rows(SQL.fold_events_of, streams=[fold.stream], after=fold.version)
    session.folder.go_on(fold, rows)


def _joined(
    folder: Folder, events: Iterator[Row], heads: Iterator[HeadRow]
) -> Iterator[tuple[Fold, HeadRow | None]]:
    """Join folds and heads by name; both are in name order."""
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
