"""Copies of views: the tables of one definition, filled up to one position; of each view one copy is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from ledger import BeingBuilt, DefinitionChanged, Ledger, ViewFailed
from ledger.canon import digest
from ledger.store.connections import reach
from ledger.store.faults import ledger_errors
from ledger.store.install import views_schema

from ..sql import query, template
from .view import View, filled

Connection = psycopg.Connection[Any]
SHORT_MS: Final = 200
"""How long what can wait waits for a lock: whoever comes after it would wait too."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a view. position: the last event that is in; events: how many were looked at."""

    view: str
    number: int
    position: int
    events: int
    definition: str
    building: bool
    indexed: bool
    inline: bool


@contextmanager
def projecting(ledger: Ledger) -> Iterator[Connection]:
    """A connection of its own to write views on, in autocommit. Its commits need not wait for the disk.

    What a crash takes from a view it takes together with the position, and it is applied again. Raises
    NoPermission for who is not a member of the projector's role.
    """
    with ledger_errors():
        connection = reach(
            ledger.target.conninfo, ledger.connections.patience, application_name="pledger views"
        )
    with connection, ledger_errors():
        query(connection, ledger.schema, "act_as_projector")
        query(connection, ledger.schema, "projecting_session")
        yield connection


class Shelf:
    """The copies of all views of a ledger, seen on one connection."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection, self.schema = connection, schema

    def live(self, view: View) -> Copy | None:
        """The copy that is read; None where there is none yet."""
        rows = query(self.connection, self.schema, "live_copy", view=view.name)
        return Copy(*rows[0]) if rows else None

    def copy(self, view: View, number: int) -> Copy | None:
        """One copy."""
        rows = query(self.connection, self.schema, "copy", view=view.name, copy=number)
        return Copy(*rows[0]) if rows else None

    def copies(self, view: View) -> list[Copy]:
        """All copies, by number."""
        return [Copy(*row) for row in query(self.connection, self.schema, "copies_of", view=view.name)]

    def followed(self, view: View) -> Copy:
        """The copy that is read, made where there is none. Raises DefinitionChanged for one of other code."""
        copy = self.live(view)
        if copy is None:
            with self.connection.transaction():
                ((live, _, _),) = query(self.connection, self.schema, "know_view", view=view.name)
                if live is None:
                    number = self._make(view)
                    self._index(view, number)
                    self.finish(view, number)
                    self.show(view, number)
                    query(self.connection, self.schema, "switch", view=view.name, copy=number)
            copy = self.live(view)
            assert copy is not None
        if copy.definition != view.definition:
            raise DefinitionChanged(view.name, copy.number)
        self._freshen(view, copy.number)
        return copy

    def _freshen(self, view: View, number: int) -> None:
        """Make anew what readers read by, where only that changed; later, where somebody reads it now."""
        with suppress(psycopg.errors.LockNotAvailable), self.connection.transaction():
            query(self.connection, self.schema, "short_lock", ms=SHORT_MS)
            self.show(view, number)

    def begin(self, view: View) -> Copy:
        """A new copy, empty, that nobody reads."""
        with self.connection.transaction():
            query(self.connection, self.schema, "know_view", view=view.name)
            number = self._make(view)
        copy = self.copy(view, number)
        assert copy is not None
        return copy

    def kept(self, view: View) -> Copy | None:
        """The copy that was read before the present one; None where there is none."""
        rows = query(self.connection, self.schema, "kept_copy", view=view.name)
        return self.copy(view, rows[0][0]) if rows and rows[0][0] is not None else None

    def finish(self, view: View, number: int) -> None:
        """The copy is filled, and may be read. Raises BeingBuilt where another builder dropped it."""
        if not query(self.connection, self.schema, "finish_copy", view=view.name, copy=number):
            raise BeingBuilt(view.name)

    def index(self, view: View, number: int) -> None:
        """Make the indexes that a first filling does without."""
        with self.connection.transaction():
            self._index(view, number)

    def look_over(self, view: View, number: int) -> None:
        """Let the server learn what the tables of all copies hold, which it does by itself for a copy's only.

        Without that it takes a table of a million streams for one of two hundred.
        """
        for table in view.table_names:
            place = {"shown": self._identifier(table), "leaf": self._identifier(f"{table}_{number}")}
            names = {name: one.as_string() for name, one in place.items()}
            for _, whole in query(self.connection, self.schema, "shown", **names):
                self.connection.execute(sql.SQL(template("analyze")).format(table=self._identifier(whole)))

    def drop(self, view: View, number: int, *, patience_ms: int = SHORT_MS) -> bool:
        """Drop a copy that is neither read nor kept; False where somebody still reads it, so try later.

        It waits for a lock no longer than that, since whoever reads the view next would wait behind it. The
        row goes first: a builder who was killed while his switch is being committed holds it, and is seen.
        """
        try:
            with self.connection.transaction():
                query(self.connection, self.schema, "short_lock", ms=patience_ms)
                query(self.connection, self.schema, "remove_copy", view=view.name, copy=number)
                if query(self.connection, self.schema, "is_wanted", view=view.name, copy=number):
                    raise psycopg.Rollback
                for table in reversed(view.table_names):
                    self.connection.execute(
                        sql.SQL(template("drop_table")).format(table=self._identifier(f"{table}_{number}"))
                    )
        except psycopg.errors.LockNotAvailable:
            return False
        return self.copy(view, number) is None

    def names(self, view: View, number: int | None = None) -> dict[str, sql.Composable]:
        """What stands for the names in a view's statements: its tables, of a copy or as they are read."""
        mark = "" if number is None else f"_{number}"
        tables: Mapping[str, sql.Composable] = {
            table: self._identifier(f"{table}{mark}") for table in view.table_names
        }
        return {
            "ledger": sql.Identifier(self.schema),
            "views": sql.Identifier(views_schema(self.schema)),
            "reader": sql.Identifier(f"{self.schema}_reader"),
            **tables,
        }

    def _make(self, view: View) -> int:
        """The tables of a new copy, each a part of the table of all copies, so that it can be read."""
        ((number,),) = query(
            self.connection, self.schema, "add_copy", view=view.name, definition=view.definition
        )
        self._run(view, view.tables, number)
        for table in view.table_names:
            self._take_in(view, table, number)
        return int(number)

    def _index(self, view: View, number: int) -> None:
        self._run(view, view.indexes, number)
        query(self.connection, self.schema, "index_copy", view=view.name, copy=number)

    def _run(self, view: View, text: Any, number: int | None) -> None:
        if not text:
            return
        try:
            self.connection.execute(filled(text, self.names(view, number)))
        except psycopg.errors.ProgrammingError as error:
            raise ViewFailed(view.name, error.diag.message_primary or str(error)) from error

    def _take_in(self, view: View, table: str, number: int) -> None:
        """Attach a copy's table to that of all copies of its shape. Who reads them does not wait for it."""
        leaf = self._identifier(f"{table}_{number}")
        columns = query(self.connection, self.schema, "columns", table=leaf.as_string())
        whole = self._whole(table, columns) or self._identifier(f"{table}_{number}_copies")
        parts = {"leaf": leaf, "whole": whole, "number": sql.Literal(number)}
        parts |= {"check": sql.Identifier(f"{table}_{number}_copy")}
        parts |= {"reader": sql.Identifier(f"{self.schema}_reader")}
        for name in ("number_copy", "check_copy", "make_whole", "take_in", "open_copy"):
            self.connection.execute(sql.SQL(template(name)).format(**parts))

    def _whole(self, table: str, columns: list[tuple[Any, ...]]) -> sql.Identifier | None:
        """The table of all copies of one shape; None where there is none of that shape yet."""
        for (name,) in query(
            self.connection, self.schema, "wholes", views=views_schema(self.schema), table=table
        ):
            whole = self._identifier(name)
            known = query(self.connection, self.schema, "columns", table=whole.as_string())
            if known[:-1] == columns:
                return whole
        return None

    def show(self, view: View, number: int) -> None:
        """Let readers see a copy's tables by name, and what they are read by; in the caller's transaction.

        Where the columns stay, nothing is changed but the row that says which copy is live. Raises ViewFailed
        where other columns would break views of the user's own.
        """
        mark = digest(view.definition, view.reads).hex()[:16]
        stale = []
        for table in view.table_names:
            shown, leaf = self._identifier(table), self._identifier(f"{table}_{number}")
            ((comment, whole),) = query(
                self.connection, self.schema, "shown", shown=shown.as_string(), leaf=leaf.as_string()
            )
            if comment != f"{whole} {mark}":
                self._show(view, table, number, self._identifier(whole))
                stale.append((shown, sql.Literal(f"{whole} {mark}")))
        if stale:
            self._run(view, view.reads, None)
        for shown, note in stale:
            self.connection.execute(sql.SQL(template("note_shown")).format(shown=shown, note=note))

    def _show(self, view: View, table: str, number: int, whole: sql.Identifier) -> None:
        leaf = self._identifier(f"{table}_{number}")
        columns = query(self.connection, self.schema, "columns", table=leaf.as_string())
        parts = {
            "shown": self._identifier(table), "whole": whole, "view": sql.Literal(view.name),
            "names": sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in columns if name != "copy"),
            "ledger": sql.Identifier(self.schema),
            "reader": sql.Identifier(f"{self.schema}_reader"),
        }  # fmt: skip
        create, drop, grant = (
            sql.SQL(template(name)).format(**parts) for name in ("show", "unshow", "open_shown")
        )
        try:
            with self.connection.transaction():
                self.connection.execute(create)
        except psycopg.errors.InvalidTableDefinition:  # a column went, or is another
            self._refuse_shown_elsewhere(view, table)
            self.connection.execute(drop)
            self.connection.execute(create)
        self.connection.execute(grant)

    def _refuse_shown_elsewhere(self, view: View, table: str) -> None:
        place = {"shown": self._identifier(table).as_string(), "views": views_schema(self.schema)}
        if others := query(self.connection, self.schema, "shown_elsewhere", **place):
            names = ", ".join(name for (name,) in others)
            raise ViewFailed(view.name, f"columns of its table {table} change that {names} shows")

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(views_schema(self.schema), name)
