"""
Applying events to a copy of a view: effects and position in one transaction, each event once.

An event that fails is parked with its stream: it and the later events of that stream are left out of this
copy, all others go on. Halving the batch in savepoints finds the event that fails. An error that no event
caused, such as a missing table, stops the view instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ledger import DamagedLedger, LedgerError, Recorded, ServerUnavailable, ViewFailed
from ledger.log.read import recorded
from ledger.log.server_errors import translated
from ledger.log.sql import Statement as NamedStatement
from ledger.log.sql import Statements

from .copies import Copies, Copy
from .view import Batch, Statement, View, filled

SQL = Statements(__package__, "apply", "copies")


SMALL: Final = 2000
"""Up to so many events in a batch, a statement is planned once for all batches. Such a plan expects few
events: with 50,000 it joined each with each, and a rebuild of a million took five times as long."""

MOST_PARKED: Final = 1000
"""Maximum parked streams of one copy. With more, the view is at fault, not the events."""

MOST_TEXTS: Final = 100
"""Statement texts cached with their names filled in: `apply` may return other texts each time."""
MOST_AT_ONCE: Final = 50_000
"""Events that are applied at once to a copy that does not move."""
LONGEST_ERROR: Final = 1000
"""Characters of an error that are stored with a parked stream."""

_EVENTS: Final = ("21", "22", "23", "38", "39", "44", "54", "P0", "LG001")
"""Classes of SQLSTATE that an event's content can cause."""


class CopyMoved(Exception):
    """Another process moved the copy meanwhile: read its position again."""


class NewStatuses(Exception):
    """Statuses of topics, or sets, were announced that the copy does not contain."""


class Applier:
    """Applies ranges of the log to one copy of one view, on one connection."""

    def __init__(self, copies: Copies, view: View, copy: Copy, *, feed: sql.Composable | None = None) -> None:
        self.copies, self.view, self.number = copies, view, copy.number
        self.connection, self.schema = copies.connection, copies.schema
        self.parked, self.live, self._prepared = 0, not copy.building, False
        self._names = copies.names(view, copy.number)
        self._batch = feed or relation(self.schema, view, copy.number)
        self._texts: dict[str, bytes] = {}

    def apply(self, after: int, upto: int, many: int, **more: Any) -> None:
        """Apply the events between two positions, and move the copy, in one transaction.

        many: the number of events between them. more: parameters of the feed.
        Raises CopyMoved, NewStatuses, ViewFailed, ServerUnavailable.
        """
        values = {**self._given, "after": after, "upto": upto, **more}
        self._prepared = many <= SMALL
        try:
            with view_errors(self.view), self.connection.transaction():
                self._advance(after, upto, many)
                self._execute(values)
        except BadEvent:
            self._apply_in_parts(values, many)

    def fill(self, after: int, upto: int, **more: Any) -> None:
        """Apply the events between two positions to a copy that stays, in the caller's transaction."""
        values = {**self._given, "after": after, "upto": upto, **more}
        self._prepared = False
        while values["after"] < upto:
            end = self._end(values)
            self._divide({**values, "upto": end})
            values["after"] = end

    def _end(self, values: Mapping[str, Any]) -> int:
        """The end of the next part of a range, so that not too many events are applied at once."""
        with view_errors(self.view):
            beyond = self._rows(SQL.place_beyond, {**values, "many": MOST_AT_ONCE})
        return int(beyond[0][0]) - 1 if beyond else int(values["upto"])

    @property
    def _given(self) -> dict[str, Any]:
        given = {"topics": self.view.wanted, "categories": self.view.categories}
        return {"view": self.view.name, "copy": self.number, **given}

    def _advance(self, after: int, upto: int, many: int) -> None:
        self._send(
            SQL.advance_copy, copy=self.number, after=after, upto=upto, many=many,
            statuses=self.view.statuses, live=self.live,
        )  # fmt: skip

    def _send(self, statement: NamedStatement, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.copies.run(statement, view=self.view.name, **parameters)

    def _execute(self, values: Mapping[str, Any]) -> None:
        """Run the view's statements for a batch."""
        send = partial(self._rows_of, values)
        for statement in self._statements(
            Batch(values["after"], values["upto"], partial(self._events, values), send)
        ):
            send(statement)

    def _rows_of(self, values: Mapping[str, Any], statement: Statement) -> list[tuple[Any, ...]]:
        """Execute a statement of the view; returns its rows, if any."""
        if taken := sorted(values.keys() & statement.parameters.keys()):
            raise ViewFailed(
                self.view.name, f"the parameter name {taken[0]!r} is used by the engine: choose another name"
            )
        text = self._text(statement)
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        try:
            parameters = {**values, **statement.parameters}
            cursor.execute(text, parameters, prepare=None if self._prepared else False)
        except (psycopg.Error, LedgerError):
            raise
        except Exception as error:  # a value that cannot be sent
            raise BadEvent(_message_of(error)) from error
        return cursor.fetchall() if cursor.description else []

    def _statements(self, batch: Batch) -> list[Statement]:
        """The view's statements for a batch. Raises BadEvent if the view's own code raises."""
        try:
            made: Any = self.view.apply(batch)
            statements: list[Any] = [] if made is None else list(made)
        except (psycopg.Error, ServerUnavailable):
            raise
        except Exception as error:
            raise BadEvent(_message_of(error)) from error
        if made is None or not all(isinstance(statement, Statement) for statement in statements):
            raise ViewFailed(
                self.view.name, "apply must return Statements, an empty list if there is nothing to do"
            )
        return statements

    def _text(self, statement: Statement) -> bytes:
        text = self._texts.get(statement.text)
        if text is None:
            try:
                text = filled(statement.text, {"batch": self._batch, **self._names}).as_bytes()
            except (TypeError, ValueError) as error:
                raise ViewFailed(self.view.name, str(error)) from error
            if len(self._texts) < MOST_TEXTS:
                self._texts[statement.text] = text
        return text

    def _events(self, values: Mapping[str, Any]) -> Sequence[Recorded]:
        """The events of a batch, for a view that needs them in Python."""
        return [recorded(row) for row in self._rows(SQL.events_of, values)]

    def _places(self, values: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Position and stream of the events in a range, without those of parked streams."""
        return self._rows(SQL.places_of, values)

    def _rows(self, statement: NamedStatement, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        wanted = statement.named(batch=self._batch)
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        return cursor.execute(wanted, values, binary=True).fetchall()

    # When an event fails

    def _apply_in_parts(self, values: Mapping[str, Any], many: int) -> None:
        """Apply the range in parts, so that only the events that fail are left out."""
        try:
            with view_errors(self.view), self.connection.transaction():
                self._advance(values["after"], values["upto"], many)
                self._send(SQL.check_at_once)
                self._divide(values)
        except BadEvent as error:  # at the end of the transaction, so the event is unknown
            raise ViewFailed(self.view.name, str(error)) from error

    def _divide(self, values: Mapping[str, Any], places: Sequence[tuple[int, str]] | None = None) -> None:
        """Apply a range, in halves if it fails. places: those of its events, if known."""
        error = self._try(values)
        if error is None:
            return
        places = self._places(values) if places is None else places
        if not places:
            raise ViewFailed(self.view.name, f"{error}, without any event") from error
        if len(places) == 1:
            self._park(places[0], error)
            return
        half = len(places) // 2
        middle = places[half - 1][0]
        self._divide({**values, "upto": middle}, places[:half])
        self._divide({**values, "after": middle})  # without the streams that were parked meanwhile

    def _try(self, values: Mapping[str, Any]) -> BadEvent | None:
        """Apply a range in a savepoint; returns the error of an event, if one failed."""
        try:
            with view_errors(self.view), self.connection.transaction():
                self._execute(values)
        except BadEvent as error:
            return error
        return None

    def _park(self, place: tuple[int, str], error: Exception) -> None:
        position, stream = place
        ((parked,),) = self._send(SQL.parked_in, copy=self.number)
        if parked >= MOST_PARKED:
            raise ViewFailed(
                self.view.name, f"{parked} streams are parked, and another one fails: {_message_of(error)}"
            ) from error
        self._send(
            SQL.park_event, copy=self.number, stream=stream, position=position, error=_message_of(error)
        )
        self.parked += 1


class BadEvent(Exception):
    """The content of an event made a statement fail."""


@contextmanager
def view_errors(view: View) -> Iterator[None]:
    """Raise the error for what went wrong: an event, the order of events, the server, or the view itself."""
    try:
        yield
    except psycopg.errors.PipelineAborted as error:
        raise ServerUnavailable(f"earlier statements were refused ({error})") from error
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if state == "LG007":
            raise CopyMoved from error
        if state == "LG008":
            raise NewStatuses from error
        if state.startswith(_EVENTS) or (not state and isinstance(error, psycopg.DataError)):
            raise BadEvent(_message_of(error)) from error
        ours = translated(error) if not state.startswith("42") else None
        if isinstance(ours, ServerUnavailable | DamagedLedger):
            raise ours from error
        raise ViewFailed(view.name, _message_of(error)) from error


def _message_of(error: BaseException) -> str:
    """The message of an error, in a form that can be stored."""
    if isinstance(error, psycopg.Error):
        text = error.diag.message_primary or str(error)
    else:
        text = str(error) if isinstance(error, BadEvent) else f"{type(error).__name__}: {error}"
    whole = text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return whole if len(whole) <= LONGEST_ERROR else f"{whole[:LONGEST_ERROR]}…"


def relation(
    schema: str, view: View, number: int, source: sql.Composable | None = None, *only: str
) -> sql.Composed:
    """The relation of a batch, from the log or a source with its columns; `only`: conditions, by name."""
    return SQL.batch.named(
        source=source or sql.Identifier(schema, "events"), ledger=sql.Identifier(schema),
        view=sql.Literal(view.name), copy=sql.Literal(number), only=conditions(view, *only),
    )  # fmt: skip


def conditions(view: View, *only: str) -> sql.Composed:
    """The conditions that select a view's events, and others by name."""
    wanted = () if view.topics is None else ("of_topics",)
    names = (*only, *(wanted if view.categories is None else ("of_categories",)))
    return sql.SQL(" ").join(SQL[name].named() for name in names)
