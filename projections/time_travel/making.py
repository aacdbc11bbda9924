"""Making a past: events are applied to heads and views, states are folded; only then readers may enter."""

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
from ledger.names import split_name
from ledger.state import dump
from ledger.store import install, reading
from ledger.stream import CATEGORIES

from ..audit.moments import AsOf
from ..sql import query, template
from ..views.applying import Applier
from ..views.copies import Connection, Copy, Shelf
from ..views.view import View, filled
from .past import Past, dropped, found, text_of

BATCH: Final = 50_000
"""Events at once."""


@dataclass(frozen=True, slots=True)
class Making:
    """How far the making is. what: `events` are applied up to a position, then `states` are folded."""

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
        """Make it, unless it is there as it would be made."""
        while True:
            declared = self._declared()
            if (there := self._there(declared)) is not None:
                return there
            dropped(self.connection, self.schema, self.position)
            self._make_schema()
            events = self._fill()
            unfolded = self._fold()
            if self._declared() == declared:  # else what topics mean changed on the way
                self._finish(events, unfolded, declared)

    def _declared(self) -> int:
        ((declared,),) = query(self.connection, self.schema, "last_declared")
        return int(declared)

    def _there(self, declared: int) -> Past | None:
        """The one that is there, if it is whole and would be made the same."""
        for past, (by, definitions) in found(self.connection, self.schema, self.position):
            same = all(definitions.get(view.name) == view.definition for view in self.views)
            if past.whole and by == declared and same:
                return replace(past, new=self._made, beyond=self.beyond)
        return None

    def _make_schema(self) -> None:
        for again in (True, False):
            try:
                query(self.connection, self.schema, "make_past", position=self.position)
                break
            except psycopg.errors.InsufficientPrivilege as error:
                if not (again and self._let()):
                    raise self._not_allowed() from error
        self._run("make_past_tables")
        for view in self.views:
            self.connection.execute(filled(view.tables, self._names(view)))

    def _let(self) -> bool:
        """A database copied from another one has lost what `pledger init` granted: grant it, if we may."""
        with self.ledger.reader() as connection:
            return install.let_make_schemas(connection, self.schema)

    def _not_allowed(self) -> NoPermission:
        database = sql.Identifier(self.connection.info.dbname).as_string(self.connection)
        return NoPermission(
            f"the ledger's owner may make no schemas in {database}: let an administrator run "
            f"`pledger init`, or GRANT CREATE ON DATABASE {database} TO {self.schema}_owner;"
        )

    # Filling

    def _fill(self) -> int:
        """Apply the events up to the position to heads and views; returns how many they are."""
        appliers = [_PastApplier(self, view) for view in self.views]
        after = events = 0
        while True:
            ((upto, many),) = query(
                self.connection, self.schema, "past_next", after=after, upto=self.position, limit=self.batch
            )
            if upto is None:
                break
            with self.connection.transaction():
                self._rows("past_heads", after=after, upto=upto)
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
            "categories": list(CATEGORIES),
            "state_schemas": [kind.state_schema() for kind in CATEGORIES.values()],
        }
        self._rows("past_states", **known)
        self._run("past_analyse")
        last, seen, unfolded = "", 0, 0
        while rows := self._rows("past_unfolded", after=last, **known):
            last, seen = rows[-1][0], seen + len(rows)
            folded = [state for row in rows if (state := _folded(*row)) is not None]
            unfolded += len(rows) - len(folded)
            names, states, marks = ([state[nth] for state in folded] for nth in range(3))
            self._rows("past_fold", streams=names, states=states, folded_by=marks)
            self.tell(Making("states", seen, 0))
        return unfolded

    def _finish(self, events: int, unfolded: int, declared: int) -> None:
        definitions = Jsonb({view.name: view.definition for view in self.views})
        with self.connection.transaction():
            for view in self.views:
                if view.reads:
                    self.connection.execute(filled(view.reads, self._names(view)))
            self._run(
                "finish_past", log=self.schema, asked_for=self.time, events=events, unfolded=unfolded,
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

    def _run(self, name: str, **values: Any) -> None:
        """Several statements at once, with values that are no parameters."""
        literals = {key: sql.Literal(value) for key, value in values.items()}
        self.connection.execute(text_of(name, self.schema, self.position, **literals))

    def _rows(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.execute(text_of(name, self.schema, self.position), parameters or None)
        return cursor.fetchall() if cursor.description else []


class _PastApplier(Applier):
    """Applies ranges of the log to a view of a past; streams that it must leave out are noted there."""

    def __init__(self, maker: Maker, view: View) -> None:
        feed = sql.SQL(template("past_batch")).format(
            ledger=sql.Identifier(maker.schema), past=sql.Identifier(maker.name), view=sql.Literal(view.name),
            only=sql.SQL("" if view.topics is None else template("of_topics")),
        )  # fmt: skip
        copy = Copy(view.name, 0, 0, 0, view.definition, building=True, indexed=False, inline=False)
        super().__init__(_PastShelf(maker), view, copy, feed=feed)
        self._maker = maker

    def _send(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._maker._rows(f"past_{name}", view=self.view.name, **parameters)


class _PastShelf(Shelf):
    """Where the tables of a past are."""

    def __init__(self, maker: Maker) -> None:
        super().__init__(maker.connection, maker.schema)
        self._maker = maker

    def names(self, view: View, number: int | None = None) -> dict[str, sql.Composable]:
        """What stands for the names in a view's statements."""
        return self._maker._names(view)


def _folded(stream: str, version: int, state: str | None, tail: str | None) -> tuple[str, str, int] | None:
    """Name, state as text, and the mark of the code that folded it; None where an event cannot be read."""
    kind = CATEGORIES[stream.partition("/")[0]]
    try:
        opened = kind(*split_name(stream)[1])
        reading.fill(opened, version, state, json.loads(tail or "[]"))
        return stream, dump(opened.state), kind.state_schema()
    except Exception:  # a name that is no key, a body that is not what its topic says, or somebody's evolve
        return None
