"""
Applying events to a copy of a view: effects and position in one transaction, each event once.

An event that fails is parked with its stream: it and the later events of that stream are left out of this
copy, all others go on. Which one fails is found by halving the batch in savepoints. What is no event's fault,
such as a missing table, stops the view instead.
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
from ledger.store.faults import translated
from ledger.store.reading import recorded

from ..sql import query, template
from .copies import Copy, Shelf
from .view import Batch, Statement, View, filled

SMALL: Final = 2000
"""Events in a batch up to which a statement is planned once for all batches. Such a plan expects few events:
of 50,000 it joined each with each, and a rebuild of a million took five times as long."""

MOST_PARKED: Final = 1000
"""Streams parked in one copy, beyond which it is the view that is wrong, not the events."""

MOST_TEXTS: Final = 100
"""Texts of statements that are remembered with their names filled in: `apply` may write others each time."""
MOST_AT_ONCE: Final = 50_000
"""Events that are applied at once where a copy is filled that does not move."""
LONGEST_ERROR: Final = 1000
"""Characters of an error that are kept with a parked stream."""

_EVENTS: Final = ("21", "22", "23", "38", "39", "44", "54", "P0", "LG001")
"""Classes of SQLSTATE that an event's content can cause."""


class Moved(Exception):
    """Somebody else moved the copy meanwhile: look again where it stands."""


class NewMoves(Exception):
    """The ledger was told of moves that the copy does not know."""


class Applier:
    """Applies ranges of the log to one copy of one view, on one connection."""

    def __init__(self, shelf: Shelf, view: View, copy: Copy, *, feed: sql.Composable | None = None) -> None:
        self.shelf, self.view, self.number = shelf, view, copy.number
        self.connection, self.schema = shelf.connection, shelf.schema
        self.parked, self.live, self._prepared = 0, not copy.building, False
        self._names = shelf.names(view, copy.number)
        self._batch = feed or relation(self.schema, view, copy.number)
        self._texts: dict[str, bytes] = {}

    def apply(self, after: int, upto: int, many: int, **more: Any) -> None:
        """Apply what lies between two positions, and move the copy, in one transaction.

        many: events in the log between them, to be counted. more: parameters of the feed.
        Raises Moved, NewMoves, ViewFailed, ServerUnavailable.
        """
        values = {**self._given, "after": after, "upto": upto, **more}
        self._prepared = many <= SMALL
        try:
            with in_our_words(self.view), self.connection.transaction():
                self._advance(after, upto, many)
                self._execute(values)
        except BadEvent:
            self._apart(values, many)

    def fill(self, after: int, upto: int, **more: Any) -> None:
        """Apply what lies between two positions to a copy that stays there, in the caller's transaction."""
        values = {**self._given, "after": after, "upto": upto, **more}
        self._prepared = False
        while values["after"] < upto:
            end = self._end(values)
            self._divide({**values, "upto": end})
            values["after"] = end

    def _end(self, values: Mapping[str, Any]) -> int:
        """Where a range is cut, so that not too many events are applied at once."""
        with in_our_words(self.view):
            beyond = self._rows("place_beyond", {**values, "many": MOST_AT_ONCE})
        return int(beyond[0][0]) - 1 if beyond else int(values["upto"])

    @property
    def _given(self) -> dict[str, Any]:
        topics = None if self.view.topics is None else sorted(self.view.topics)
        return {"view": self.view.name, "copy": self.number, "topics": topics}

    def _advance(self, after: int, upto: int, many: int) -> None:
        self._send(
            "advance_copy",
            copy=self.number,
            after=after,
            upto=upto,
            many=many,
            moves=self.view.moves,
            live=self.live,
        )

    def _send(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return query(self.connection, self.schema, name, view=self.view.name, **parameters)

    def _execute(self, values: Mapping[str, Any]) -> None:
        """Run what the view makes of a batch."""
        for statement in self._statements(
            Batch(values["after"], values["upto"], partial(self._events, values))
        ):
            if taken := sorted(values.keys() & statement.parameters.keys()):
                raise ViewFailed(
                    self.view.name, f"the parameter %({taken[0]})s is the engine's: name it otherwise"
                )
            text = self._text(statement)
            try:
                parameters = {**values, **statement.parameters}
                self.connection.execute(text, parameters, prepare=None if self._prepared else False)
            except (psycopg.Error, LedgerError):
                raise
            except Exception as error:  # a value that cannot be sent
                raise BadEvent(_said(error)) from error

    def _statements(self, batch: Batch) -> list[Statement]:
        """What the view answers a batch with. Raises BadEvent for what it raises itself."""
        try:
            made: Any = self.view.apply(batch)
            statements: list[Any] = [] if made is None else list(made)
        except (psycopg.Error, ServerUnavailable):
            raise
        except Exception as error:
            raise BadEvent(_said(error)) from error
        if made is None or not all(isinstance(statement, Statement) for statement in statements):
            raise ViewFailed(
                self.view.name, "apply must return Statements: a list, empty where there is nothing to do"
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
        return [recorded(row) for row in self._rows("events_of", values)]

    def _places(self, values: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Position and stream of the events in a range, those of parked streams left out."""
        return self._rows("places_of", values)

    def _rows(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        wanted = sql.SQL(template(name)).format(batch=self._batch)
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        return cursor.execute(wanted, values, binary=True).fetchall()

    # Where an event fails

    def _apart(self, values: Mapping[str, Any], many: int) -> None:
        """Apply the range in parts, so that only what fails is left out."""
        try:
            with in_our_words(self.view), self.connection.transaction():
                self._advance(values["after"], values["upto"], many)
                self._send("check_at_once")
                self._divide(values)
        except BadEvent as error:  # where the transaction ends, so it cannot be told which one it was
            raise ViewFailed(self.view.name, str(error)) from error

    def _divide(self, values: Mapping[str, Any], places: Sequence[tuple[int, str]] | None = None) -> None:
        """Apply a range, in halves where it fails. places: those of its events, where they are known."""
        error = self._tried(values)
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

    def _tried(self, values: Mapping[str, Any]) -> BadEvent | None:
        """Apply a range in a savepoint; what was wrong with an event of it."""
        try:
            with in_our_words(self.view), self.connection.transaction():
                self._execute(values)
        except BadEvent as error:
            return error
        return None

    def _park(self, place: tuple[int, str], error: Exception) -> None:
        position, stream = place
        ((parked,),) = self._send("parked_in", copy=self.number)
        if parked >= MOST_PARKED:
            raise ViewFailed(
                self.view.name, f"{parked} streams are parked, and the next fails too: {_said(error)}"
            ) from error
        self._send("park_event", copy=self.number, stream=stream, position=position, error=_said(error))
        self.parked += 1


class BadEvent(Exception):
    """What an event holds made a statement fail."""


@contextmanager
def in_our_words(view: View) -> Iterator[None]:
    """Tell what went wrong: an event, the order of things, the server, or the view itself."""
    try:
        yield
    except psycopg.errors.PipelineAborted as error:
        raise ServerUnavailable(f"the statements before were refused ({error})") from error
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if state == "LG007":
            raise Moved from error
        if state == "LG008":
            raise NewMoves from error
        if state.startswith(_EVENTS) or (not state and isinstance(error, psycopg.DataError)):
            raise BadEvent(_said(error)) from error
        ours = translated(error) if not state.startswith("42") else None
        if isinstance(ours, ServerUnavailable | DamagedLedger):
            raise ours from error
        raise ViewFailed(view.name, _said(error)) from error


def _said(error: BaseException) -> str:
    """What an error says, as it can be stored."""
    if isinstance(error, psycopg.Error):
        said = error.diag.message_primary or str(error)
    else:
        said = str(error) if isinstance(error, BadEvent) else f"{type(error).__name__}: {error}"
    whole = said.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return whole if len(whole) <= LONGEST_ERROR else f"{whole[:LONGEST_ERROR]}…"


def relation(
    schema: str, view: View, number: int, source: sql.Composable | None = None, *only: str
) -> sql.Composed:
    """The relation of a batch: of the log or of a source with its columns; `only`: conditions, by name."""
    conditions = (*only, *(() if view.topics is None else ("of_topics",)))
    return sql.SQL(template("batch")).format(
        source=source or sql.Identifier(schema, "events"), ledger=sql.Identifier(schema),
        view=sql.Literal(view.name), copy=sql.Literal(number),
        only=sql.SQL(" ").join(sql.SQL(template(name)) for name in conditions),
    )  # fmt: skip
