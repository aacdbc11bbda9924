"""Making a past: apply events to heads and views, fold states, then grant readers access."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from ledger import Ledger, NoPermission
from ledger.domain.known import KNOWN
from ledger.domain.names import split_name
from ledger.domain.state import dump
from ledger.log import install, read
from ledger.log.sql import Statement, Statements, run

from ..audit.moments import AsOf
from ..engine.apply import Applier, conditions
from ..engine.copies import SQL as COPIES
from ..engine.copies import Connection, Copies, Copy
from ..engine.view import View, filled
from .past import Past, dropped, found, text_of

SQL = Statements(__package__, "make")


BATCH: Final = 50_000
"""Events at once."""


@dataclass(frozen=True, slots=True)
class Making:
    """The progress. what: `events` are applied up to a position, then `states` are folded."""

    what: str
    done: int
    total: int


class Maker:
    """One past in the making."""

    def __init__(
        self,
        ledger: Ledger,
        connection: Connection,
        meant: AsOf,
        views: Sequence[View],
        batch: int,
        tell: Callable[[Making], None],
    ) -> None:
        self.ledger, self.connection, self.schema = ledger, connection, ledger.schema
        self.position, self.time, self.beyond = meant.position, meant.time, meant.beyond
        self.views, self.batch, self.tell = views, batch, tell
        self.name = f"{ledger.schema}_as_of_{meant.position}"
        self._made = False

    def make(self) -> Past:
        """Make the past, unless it exists and would be made the same."""
        while True:
            declared = self._declared()
            if (there := self._there(declared)) is not None:
                return there
            dropped(self.connection, self.schema, self.position)
            self._make_schema()
            events = self._fill()
            unfolded = self._fold()
            if self._declared() == declared:  # else the meaning of topics changed meanwhile
                self._finish(events, unfolded, declared)

    def _declared(self) -> int:
        ((declared,),) = run(self.connection, self.schema, COPIES.last_announced)
        return int(declared)

    def _there(self, declared: int) -> Past | None:
        """The existing past, if it is complete and would be made the same."""
        for past, (by, definitions) in found(self.connection, self.schema, self.position):
            same = all(definitions.get(view.name) == view.definition for view in self.views)
            if past.whole and by == declared and same:
                return replace(past, new=self._made, beyond=self.beyond)
        return None

    def _make_schema(self) -> None:
        for again in (True, False):
            try:
                run(self.connection, self.schema, SQL.make_past, position=self.position)
                break
            except psycopg.errors.InsufficientPrivilege as error:
                if not (again and self._let()):
                    raise self._not_allowed() from error
        self._run(SQL.make_past_tables)
        for view in self.views:
            self.connection.execute(filled(view.tables, self._names(view)))

    def _let(self) -> bool:
        """Grant what `pledger init` granted, which a copy of a database lost, if the login may."""
        with self.ledger.reader() as connection:
            return install.let_make_schemas(connection, self.schema)

    def _not_allowed(self) -> NoPermission:
        database = sql.Identifier(self.connection.info.dbname).as_string(self.connection)
        return NoPermission(
            f"the ledger's owner may not create schemas in {database}: let an administrator run "
            f"`pledger init`, or GRANT CREATE ON DATABASE {database} TO {self.schema}_owner;"
        )

    # Filling

    def _fill(self) -> int:
        """Apply the events up to the position to heads and views; returns how many they are."""
        appliers = [_PastApplier(self, view) for view in self.views]
        after = events = 0
        while True:
            ((upto, many),) = run(
                self.connection, self.schema, SQL.past_next, after=after, upto=self.position, limit=self.batch
            )
            if upto is None:
                break
            with self.connection.transaction():
                self._rows(SQL.past_heads, after=after, upto=upto)
                for applier in appliers:
                    applier.fill(after, upto)
            after, events = upto, events + many
            self.tell(Making("events", after, self.position))
        for view in self.views:
            if view.indexes:
                self.connection.execute(filled(view.indexes, self._names(view)))
        return events

    def _fold(self) -> int:
        """Set the states; returns how many could not be folded."""
        known = {
            "categories": list(KNOWN.streams),
            "state_schemas": [kind.state_schema() for kind in KNOWN.streams.values()],
        }
        self._rows(SQL.past_states, **known)
        self._run(SQL.past_analyse)
        last, seen, unfolded = "", 0, 0
        while rows := self._rows(SQL.past_unfolded, after=last, **known):
            last, seen = rows[-1][0], seen + len(rows)
            folded = [state for row in rows if (state := _folded(*row)) is not None]
            unfolded += len(rows) - len(folded)
            names, states, marks = ([state[nth] for state in folded] for nth in range(3))
            self._rows(SQL.past_fold, streams=names, states=states, folded_by=marks)
            self.tell(Making("states", seen, 0))
        return unfolded

    def _finish(self, events: int, unfolded: int, declared: int) -> None:
        definitions = Jsonb({view.name: view.definition for view in self.views})
        with self.connection.transaction():
            for view in self.views:
                if view.reads:
                    self.connection.execute(filled(view.reads, self._names(view)))
            self._run(
                SQL.finish_past, log=self.schema, asked_for=self.time, events=events, unfolded=unfolded,
                declared=declared, definitions=definitions,
            )  # fmt: skip
        self._made = True

    # Names

    def _names(self, view: View) -> dict[str, sql.Composable]:
        """What stands for the names in a view's statements."""
        return {
            "ledger": sql.Identifier(self.schema),
            "views": sql.Identifier(self.name),
            "reader": sql.Identifier(f"{self.schema}_reader"),
            **{table: sql.Identifier(self.name, table) for table in view.table_names},
        }

    def _run(self, statement: Statement, **values: Any) -> None:
        """Run several statements at once, with values filled in as literals."""
        literals = {key: sql.Literal(value) for key, value in values.items()}
        self.connection.execute(text_of(statement, self.schema, self.position, **literals))

    def _rows(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.execute(text_of(statement, self.schema, self.position), parameters or None)
        return cursor.fetchall() if cursor.description else []


class _PastApplier(Applier):
    """Applies ranges of the log to a view of a past; parked streams are recorded in the past."""

    def __init__(self, maker: Maker, view: View) -> None:
        feed = SQL.past_batch.named(
            ledger=sql.Identifier(maker.schema), past=sql.Identifier(maker.name), view=sql.Literal(view.name),
            only=conditions(view),
        )  # fmt: skip
        copy = Copy(view.name, 0, 0, 0, view.definition, building=True, indexed=False, inline=False)
        super().__init__(_PastCopies(maker), view, copy, feed=feed)
        self._maker = maker

    def _send(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._maker._rows(SQL[f"past_{statement.name}"], view=self.view.name, **parameters)


class _PastCopies(Copies):
    """The names of a past's tables."""

    def __init__(self, maker: Maker) -> None:
        super().__init__(maker.connection, maker.schema)
        self._maker = maker

    def names(self, view: View, number: int | None = None) -> dict[str, sql.Composable]:
        """What stands for the names in a view's statements."""
        return self._maker._names(view)


def _folded(stream: str, version: int, state: str | None, tail: str | None) -> tuple[str, str, int] | None:
    """Name, state as text, and the mark of the code that folded it; None if an event cannot be read."""
    kind = KNOWN.streams[stream.partition("/")[0]]
    try:
        opened = kind(*split_name(stream)[1])
        read.fill(opened, version, state, json.loads(tail or "[]"))
        return stream, dump(opened.state), kind.state_schema()
    except Exception:  # a name that is no key, a body that does not fit its topic, or a user's evolve
        return None
