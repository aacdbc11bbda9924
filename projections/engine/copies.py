"""Copies of views: tables by one definition, filled up to one position. Readers see one copy of each view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from ledger import BeingBuilt, DefinitionChanged, FedFromElsewhere, Ledger, TablesMissing, ViewFailed
from ledger.domain.canonical_json import digest
from ledger.log.connection import refuse_proxy
from ledger.log.install import views_schema
from ledger.log.pool import connect_when_ready
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statement as NamedStatement
from ledger.log.sql import Statements, run

from .view import View, filled

SQL = Statements(__package__, "copies")


Connection = psycopg.Connection[Any]
SHORT_MS: Final = 200
"""How long a change that can be deferred waits for a lock: later readers wait too."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a view. position: the last event it contains; events: how many were read."""

    view: str
    number: int
    position: int
    events: int
    definition: str
    building: bool
    indexed: bool
    inline: bool


def missing_tables(connection: Connection, schema: str, view: View, number: int) -> list[str]:
    """The missing tables of a copy of a view; names in the schema of views."""
    place = views_schema(schema)
    leaves = {sql.Identifier(place, f"{t}_{number}").as_string(): f"{t}_{number}" for t in view.table_names}
    return [leaves[name] for (name,) in run(connection, schema, SQL.missing_tables, tables=list(leaves))]


@contextmanager
def projecting(ledger: Ledger) -> Iterator[Connection]:
    """A separate connection for writing views, in autocommit. Its commits need not wait for the disk.

    What a crash removes from a view it removes together with the position, so it is applied again. Raises
    NoPermission if the login is not a member of the projector's role.
    """
    with ledger_errors():
        connection = connect_when_ready(
            ledger.address.conninfo, ledger.pool.timeout, application_name="pledger views"
        )
    with connection, ledger_errors():
        refuse_proxy(connection, "to write views")
        run(connection, ledger.schema, SQL.act_as_projector)
        run(connection, ledger.schema, SQL.projecting_session)
        yield connection


@contextmanager
def open_copies(ledger: Ledger) -> Iterator[Copies]:
    """The copies of all views, on a connection of `projecting`."""
    with projecting(ledger) as connection:
        yield Copies(connection, ledger.schema)


class Copies:
    """The copies of all views of a ledger, on one connection."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection, self.schema = connection, schema

    def run(self, statement: NamedStatement, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a named statement on this connection."""
        return run(self.connection, self.schema, statement, **parameters)

    def execute(self, statement: NamedStatement, /, **names: sql.Composable) -> None:
        """Run a named statement, with these names in it."""
        self.connection.execute(statement.named(**names))

    def live(self, view: View) -> Copy | None:
        """The copy that is read; None if there is none yet."""
        rows = self.run(SQL.live_copy, view=view.name)
        return Copy(*rows[0]) if rows else None

    def copy(self, view: View, number: int) -> Copy | None:
        """One copy."""
        rows = self.run(SQL.copy, view=view.name, copy=number)
        return Copy(*rows[0]) if rows else None

    def all_of(self, view: View) -> list[Copy]:
        """All copies, by number."""
        return [Copy(*row) for row in self.run(SQL.copies_of, view=view.name)]

    def followed(self, view: View) -> Copy:
        """The copy that is read, created if there is none.

        Raises DefinitionChanged if other code built it, TablesMissing if its tables are gone.
        """
        copy = self.live(view)
        if copy is None:
            with self.connection.transaction():
                ((live, _, _),) = self.run(SQL.know_view, view=view.name)
                if live is None:
                    number = self._make(view)
                    self._index(view, number)
                    self.switch(view, number)
            copy = self.live(view)
            assert copy is not None
        if copy.definition != view.definition:
            raise DefinitionChanged(view.name, copy.number)
        if missing := self.missing(view, copy.number):
            raise TablesMissing(view.name, missing)
        self._freshen(view, copy.number)
        return copy

    def refuse_fed(self, view: View, number: int) -> None:
        """Raise FedFromElsewhere if a copy contains events of another ledger, which are not in this log."""
        if self.run(SQL.has_fed_from, views=views_schema(self.schema)) == [(True,)]:
            for (source,) in self.run(SQL.fed_elsewhere, view=view.name, copy=number):
                raise FedFromElsewhere(view.name, source)

    def left_over(self, view: View, *, restart: bool = False) -> Copy | None:
        """The copy that a killed builder of this definition left; drops other leftovers, all to restart."""
        found = None
        for copy in self.all_of(view):
            if copy.building:
                lost = self.missing(view, copy.number)
                if copy.definition == view.definition and not restart and not lost:
                    found = copy
                else:
                    self.drop(view, copy.number)
        return found

    def switch(self, view: View, number: int) -> None:
        """Let readers see a copy, in the caller's transaction; the one that they saw is kept."""
        self.show(view, number)
        self.finish(view, number)
        self.run(SQL.switch, view=view.name, copy=number)

    def sweep(self, view: View) -> None:
        """Drop copies that are neither live nor kept, unless they are still being read."""
        live, kept = self.live(view), self.kept(view)
        for copy in self.all_of(view):
            if copy.number not in {live and live.number, kept and kept.number}:
                self.drop(view, copy.number)

    def missing(self, view: View, number: int) -> list[str]:
        """The missing tables of a copy that is registered."""
        return missing_tables(self.connection, self.schema, view, number)

    def _freshen(self, view: View, number: int) -> None:
        """Recreate what readers use (`reads`) if only that changed; later, if it is being read now."""
        with suppress(psycopg.errors.LockNotAvailable), self.connection.transaction():
            self.run(SQL.short_lock, ms=SHORT_MS)
            self.show(view, number)

    def begin(self, view: View) -> Copy:
        """Create a new, empty copy, which is not read yet."""
        with self.connection.transaction():
            self.run(SQL.know_view, view=view.name)
            number = self._make(view)
        copy = self.copy(view, number)
        assert copy is not None
        return copy

    def kept(self, view: View) -> Copy | None:
        """The copy that was read before the present one; None if there is none."""
        rows = self.run(SQL.kept_copy, view=view.name)
        return self.copy(view, rows[0][0]) if rows and rows[0][0] is not None else None

    def finish(self, view: View, number: int) -> None:
        """Mark the copy as filled and readable. Raises BeingBuilt if another builder dropped it."""
        if not self.run(SQL.finish_copy, view=view.name, copy=number):
            raise BeingBuilt(view.name)

    def index(self, view: View, number: int) -> None:
        """Create the indexes, which the first filling does without."""
        with self.connection.transaction():
            self._index(view, number)

    def analyze(self, view: View, number: int) -> None:
        """Analyze the tables of all copies; autovacuum does so only for the tables of single copies.

        Without that the planner estimates a table of a million streams at two hundred.
        """
        for table in view.table_names:
            place = {"shown": self._identifier(table), "leaf": self._identifier(f"{table}_{number}")}
            names = {name: one.as_string() for name, one in place.items()}
            for _, whole in self.run(SQL.shown, **names):
                self._analyze(self._identifier(whole))

    def _analyze(self, table: sql.Identifier) -> None:
        """Analyze a table without its documents: no plan uses them, comparing them is slow."""
        columns = self.run(SQL.columns, table=table.as_string())
        plain = sql.SQL(", ").join(sql.Identifier(name) for name, kind, _ in columns if kind != "jsonb")
        self.execute(SQL.analyze, table=table, columns=plain)

    def forget(self, view: View, number: int) -> None:
        """Drop what is left of a copy that was read before and whose tables are missing."""
        self.run(SQL.forget_kept, view=view.name, copy=number)
        self.drop(view, number)

    def drop(self, view: View, number: int) -> bool:
        """Drop a copy that is neither live nor kept; False if it is still being read, so try later.

        It waits only briefly for a lock, because the next readers of the view would wait behind it. The row
        is deleted first: a builder that was killed while its switch is being committed holds it, and is
        noticed.
        """
        try:
            with self.connection.transaction():
                self.run(SQL.short_lock, ms=SHORT_MS)
                self.run(SQL.remove_copy, view=view.name, copy=number)
                if self.run(SQL.is_wanted, view=view.name, copy=number):
                    raise psycopg.Rollback
                for table in reversed(view.table_names):
                    self.execute(SQL.drop_table, table=self._identifier(f"{table}_{number}"))
        except psycopg.errors.LockNotAvailable:
            return False
        return self.copy(view, number) is None

    def names(self, view: View, number: int | None = None) -> dict[str, sql.Composable]:
        """The values of the names in a view's statements: its tables, of one copy or as readers see them."""
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
        """Create the tables of a new copy as partitions of the table of all copies, for readers."""
        ((number,),) = self.run(SQL.add_copy, view=view.name, definition=view.definition)
        self._run(view, view.tables, number)
        for table in view.table_names:
            self._take_in(view, table, number)
        return int(number)

    def _index(self, view: View, number: int) -> None:
        self._run(view, view.indexes, number)
        self.run(SQL.index_copy, view=view.name, copy=number)

    def _run(self, view: View, text: Any, number: int | None) -> None:
        if not text:
            return
        try:
            self.connection.execute(filled(text, self.names(view, number)))
        except psycopg.errors.ProgrammingError as error:
            raise ViewFailed(view.name, error.diag.message_primary or str(error)) from error

    def _take_in(self, view: View, table: str, number: int) -> None:
        """Attach a copy's table to that of all copies of its shape. Readers do not wait for it."""
        leaf = self._identifier(f"{table}_{number}")
        columns = self.run(SQL.columns, table=leaf.as_string())
        whole = self._whole(table, columns) or self._identifier(f"{table}_{number}_copies")
        parts = {"leaf": leaf, "whole": whole, "number": sql.Literal(number)}
        parts |= {"check": sql.Identifier(f"{table}_{number}_copy")}
        parts |= {"reader": sql.Identifier(f"{self.schema}_reader")}
        for name in ("number_copy", "check_copy", "make_whole", "take_in", "open_copy"):
            self.execute(SQL[name], **parts)

    def _whole(self, table: str, columns: list[tuple[Any, ...]]) -> sql.Identifier | None:
        """The table of all copies of one shape; None if there is none yet."""
        for (name,) in self.run(SQL.wholes, views=views_schema(self.schema), table=table):
            whole = self._identifier(name)
            known = self.run(SQL.columns, table=whole.as_string())
            if known[:-1] == columns:
                return whole
        return None

    def show(self, view: View, number: int) -> None:
        """Show a copy's tables to readers by name, with the view's `reads`; in the caller's transaction.

        If the columns stay, only the row that names the live copy changes. Raises ViewFailed if other columns
        would break views of a user.
        """
        mark = digest(view.definition, view.reads).hex()[:16]
        stale = []
        for table in view.table_names:
            shown, leaf = self._identifier(table), self._identifier(f"{table}_{number}")
            ((comment, whole),) = self.run(SQL.shown, shown=shown.as_string(), leaf=leaf.as_string())
            if comment != f"{whole} {mark}":
                self._show(view, table, number, self._identifier(whole))
                stale.append((shown, sql.Literal(f"{whole} {mark}")))
        if stale:
            self._run(view, view.reads, None)
        for shown, note in stale:
            self.execute(SQL.note_shown, shown=shown, note=note)

    def _show(self, view: View, table: str, number: int, whole: sql.Identifier) -> None:
        leaf = self._identifier(f"{table}_{number}")
        columns = self.run(SQL.columns, table=leaf.as_string())
        parts = {
            "shown": self._identifier(table), "whole": whole, "view": sql.Literal(view.name),
            "names": sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in columns if name != "copy"),
            "ledger": sql.Identifier(self.schema),
            "reader": sql.Identifier(f"{self.schema}_reader"),
        }  # fmt: skip
        try:
            with self.connection.transaction():
                self.execute(SQL.show, **parts)
        except psycopg.errors.InvalidTableDefinition:  # a column was removed or changed
            self._refuse_shown_elsewhere(view, table)
            self.execute(SQL.unshow, **parts)
            self.execute(SQL.show, **parts)
        self.execute(SQL.open_shown, **parts)

    def _refuse_shown_elsewhere(self, view: View, table: str) -> None:
        place = {"shown": self._identifier(table).as_string(), "views": views_schema(self.schema)}
        if others := self.run(SQL.shown_elsewhere, **place):
            names = ", ".join(name for (name,) in others)
            raise ViewFailed(view.name, f"columns of its table {table} change that {names} shows")

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(views_schema(self.schema), name)
