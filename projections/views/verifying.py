"""Verifying views: each is built anew beside the live copy, and compared with it row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from ledger import Ledger

from ..folding import Which
from ..sql import query
from ..verify.difference import Difference, Kind, bounded, fields_between
from .built import Rebuilt
from .rebuilding import rebuild
from .view import View

MOST: Final = 10_000
"""Rows of each kind that a check names."""


class ViewCheck:
    """Compares the live copy of a view with one that is built anew for that, and thrown away.

    Both are compared at one position and in one snapshot, so writers cause no false alarm. Mending is a
    rebuild: the first difference is mended by it, and with it all others.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._mended: Rebuilt | None = None

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name

    def differences(self, ledger: Ledger, which: Which, told: Callable[[int], None]) -> Iterator[Difference]:
        """The rows that differ, of the streams that are wanted; none of a view that nobody made yet.

        Raises BeingBuilt, ViewFailed.
        """
        if not _is_made(ledger, self.view):
            return
        seen = 0

        def progress(events: int) -> None:
            nonlocal seen
            told(events - seen)
            seen = events

        built = rebuild(
            ledger, self.view, dry_run=True, restart=True, shown=MOST, progress=lambda s: progress(s.events)
        )
        for table in built.differences:
            old, new = _by_key(table.old), _by_key(table.new)
            for key in sorted({*old, *new}):
                if _is_wanted(key, which):
                    yield self._difference(table.table, key, old.get(key), new.get(key))

    def mend(self, ledger: Ledger, difference: Difference) -> str | None:
        """Rebuild the view, once."""
        if self._mended is None:
            self._mended = rebuild(ledger, self.view)
        return "mended"

    def _difference(
        self, table: str, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None
    ) -> Difference:
        row = new or old or {}
        says = "differs" if old and new else "is missing" if new else "is there, and no event says so"
        fields = bounded(list(fields_between(old, new))) if old and new else ()
        return Difference(
            Kind.VIEW, key, row.get("version"), f"the row in {table} {says}", fields,
            position=row.get("position"), view=self.view.name,
        )  # fmt: skip


def _is_made(ledger: Ledger, view: View) -> bool:
    with ledger.reader() as connection:
        return bool(query(connection, ledger.schema, "live_copy", view=view.name))


def _by_key(rows: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """The rows by what they are about: a stream, where they name one."""
    return {_key(row): row for row in rows}


def _key(row: dict[str, Any]) -> str:
    for name in ("stream", "unit", "parent"):
        if name in row:
            return str(row[name])
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    return json.dumps(texts or row, sort_keys=True, ensure_ascii=False)


def _is_wanted(key: str, which: Which) -> bool:
    return key.startswith(which.prefix)
