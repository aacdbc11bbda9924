"""
What the methods of the PS-OCT service share: the slice of a mosaic is counted where a caller gives none.

There is one rule (mosaics.py; W0-09), with the `mosaics_per_slice` of the service, so that nothing is asked
of the server first; a slice_id that is given always wins. A project's plan may say another number. Then the
service never takes the wrong slice in silence: where the slice was counted, `open_*` raises BadInput, and so
do `read_*` and `peek_*` instead of saying that there is nothing; only that costs a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..errors import BadInput
from ..store.ledger import Ledger
from ..store.locks import Locks
from .ident import Ident
from .item import I
from .mosaics import MOSAICS_PER_SLICE, checked_mosaics_per_slice, slice_of_mosaic
from .open_item import OpenItem
from .service import Ids, O, StateService
from .store import ProjectStore


class SliceCounting(StateService):
    """A service whose callers may leave the slice of a mosaic out."""

    def __init__(
        self,
        ledger: Ledger | ProjectStore | None = None,
        *,
        locks: Locks | None = None,
        mosaics_per_slice: int = MOSAICS_PER_SLICE,
    ) -> None:
        """ledger: a ledger or a store; by default what `ledger.connect()` finds at first use."""
        super().__init__(ledger, locks=locks)
        self.mosaics_per_slice = checked_mosaics_per_slice(mosaics_per_slice)

    def _open(
        self, level: type[O], given: Ident | str, ids: Ids, timeout_seconds: float | None
    ) -> AbstractContextManager[O]:
        ident, counted = self._counted(level, given, ids)
        scope = self.store.open_item(ident, timeout_seconds=timeout_seconds)
        return self._checking(scope) if counted else scope

    def _read(
        self, level: type[OpenItem[I]], given: Ident | str, ids: Ids, timeout_seconds: float | None
    ) -> I | None:
        ident, counted = self._counted(level, given, ids)
        found: I | None = self.store.read_item(ident, timeout_seconds=timeout_seconds)
        return self._sure(found, ident, counted)

    def _peek(self, level: type[OpenItem[I]], given: Ident | str, ids: Ids) -> I | None:
        ident, counted = self._counted(level, given, ids)
        found: I | None = self.store.peek_item(ident)
        return self._sure(found, ident, counted)

    def _counted(self, level: type[OpenItem[Any]], given: Ident | str, ids: Ids) -> tuple[Ident, bool]:
        """Who is meant, and whether the slice was counted because nobody gave it."""
        named = dict(zip(level.IDENT.fields()[1:], ids, strict=True))
        mosaic_id = named.get("mosaic_id")
        if isinstance(given, Ident) or mosaic_id is None or named["slice_id"] is not None:
            return level.IDENT.of(given, named), False
        named["slice_id"] = slice_of_mosaic(mosaic_id, self.mosaics_per_slice)
        return level.IDENT.of(given, named), True

    @contextmanager
    def _checking(self, scope: AbstractContextManager[O]) -> Iterator[O]:
        with scope as item:
            if item.tree is not None:
                self._check(item.tree.item(item.key[:1]).state)
            yield item

    def _sure(self, found: I | None, ident: Ident, counted: bool) -> I | None:
        """What was found; where it is nothing, only if it is not to be found in another slice either."""
        if found is None and counted:
            self._check(self.ledger.load(self.LEVELS[0], ident.project_name).state)
        return found

    def _check(self, project: Any) -> None:
        planned = project.mosaics_per_slice
        if project.exists and planned not in (None, self.mosaics_per_slice):
            raise BadInput(
                f"the project {project.project_name!r} plans {planned} mosaics a slice, this service counts "
                f"{self.mosaics_per_slice}: give slice_id, or the service mosaics_per_slice={planned}"
            )
