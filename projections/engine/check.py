"""Verifying views: each is built anew beside the live copy and compared with it row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from ledger import Ledger
from ledger.log.sql import Statements, run

from ..fold import Which
from ..verify.difference import Difference, Kind, bounded, fields_between
from .copies import missing_tables
from .rebuild import Rebuilt, rebuild
from .view import View

SQL = Statements(__package__, "copies")


MOST: Final = 10_000
"""Rows of each kind that a check reports."""


class ViewCheck:
    """Compares the live copy of a view with one that is built anew for the comparison and then dropped.

    Both are compared at one position and in one snapshot, so writers cause no false alarm. Repairing is a
    rebuild: the first repair rebuilds the view, which repairs all differences.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._repaired: Rebuilt | None = None

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name

    def differences(
        self, ledger: Ledger, which: Which, report: Callable[[int], None]
    ) -> Iterator[Difference]:
        """The rows that differ, of the selected streams; none for a view that does not exist yet.

        Raises BeingBuilt, ViewFailed.
        """
        live = _live(ledger, self.view)
        if live is None:
            return
        if live[1]:
            says = f"its tables {', '.join(live[1])} are missing"
            yield Difference(Kind.VIEW, self.view.name, None, says, view=self.view.name)
            return
        seen = 0

        def progress(events: int) -> None:
            nonlocal seen
            report(events - seen)
            seen = events

        built = rebuild(
            ledger, self.view, dry_run=True, restart=True, shown=MOST, progress=lambda s: progress(s.events)
        )
        for table in built.differences:
            old, new = _by_key(table.old), _by_key(table.new)
            for key in sorted({*old, *new}):
                if _is_wanted(key, which):
                    yield self._difference(table.table, key, old.get(key), new.get(key))

    def repair(self, ledger: Ledger, difference: Difference) -> str | None:
        """Rebuild the view, once."""
        if self._repaired is None:
            self._repaired = rebuild(ledger, self.view)
        return "repaired"

    def _difference(
        self, table: str, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None
    ) -> Difference:
        row = new or old or {}
        says = "differs" if old and new else "is missing" if new else "exists without an event"
        fields = bounded(list(fields_between(old, new))) if old and new else ()
        return Difference(
            Kind.VIEW, key, row.get("version"), f"the row in {table} {says}", fields,
            position=row.get("position"), view=self.view.name,
        )  # fmt: skip


def _live(ledger: Ledger, view: View) -> tuple[int, list[str]] | None:
    """The live copy, and which of its tables are missing; None for a view that does not exist yet."""
    with ledger.reader() as connection:
        rows = run(connection, ledger.schema, SQL.live_copy, view=view.name)
        return (rows[0][1], missing_tables(connection, ledger.schema, view, rows[0][1])) if rows else None


def _by_key(rows: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """The rows by their subject: the stream, if they name one."""
    return {_key(row): row for row in rows}


def _key(row: dict[str, Any]) -> str:
    for name in ("stream", "unit", "parent"):
        if name in row:
            return str(row[name])
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    return json.dumps(texts or row, sort_keys=True, ensure_ascii=False)


def _is_wanted(key: str, which: Which) -> bool:
    return key.startswith(which.prefix)
