"""What the services of all pipelines share: a store, which is given or made when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

from ..errors import BadInput
from ..store.ledger import Ledger
from ..store.locks import Locks
from .ident import Ident
from .item import I
from .open_item import OpenItem
from .store import ProjectStore
from .views import Levels

O = TypeVar("O", bound=OpenItem[Any])  # noqa: E741
Ids = Sequence[int | None]
"""Ids in the order of the ident; None where a caller gave none."""


class StateService:
    """The state of one pipeline's projects: `open_*` to change, `read_*` and `peek_*` to look (spec 1.5).

    open_* creates what is missing on the path, and stores all that was recorded in the block in one append at
    its end. It waits for scopes on the same item, above it and below it, for `timeout_seconds` at most (None:
    without bound). An exception in the block stores nothing, and so does a StreamConflict at its end.
    read_* waits for scopes on the item and above it, then returns one snapshot with every append that was
    committed before; peek_* waits for nobody. Neither creates anything: both return None for what is missing,
    and an empty view for a project that nobody created. Each takes an ident, or a project's name and ids;
    the `_by_parts` twins take the name and ids only.

    Raises LockTimeout, AlreadyOpen (a nested open of the same path in one thread), StreamConflict, LockLost.
    """

    LEVELS: ClassVar[Levels]

    def __init__(self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None) -> None:
        """ledger: a ledger or a store; by default what `ledger.connect()` finds at first use."""
        if isinstance(ledger, ProjectStore):
            if locks is not None or ledger.levels is not self.LEVELS:
                raise BadInput("a store brings its own locks, and must be of the levels of this service")
            self.store = ledger
        else:
            self.store = ProjectStore(self.LEVELS, ledger, locks=locks)

    @property
    def ledger(self) -> Ledger:
        """The ledger behind this service."""
        return self.store.ledger

    # What the methods of a pipeline's service are made of, typed by the level

    def _open(
        self, level: type[O], given: Ident | str, ids: Ids, timeout_seconds: float | None
    ) -> AbstractContextManager[O]:
        return self.store.open_item(self._ident(level, given, ids), timeout_seconds=timeout_seconds)

    def _read(
        self, level: type[OpenItem[I]], given: Ident | str, ids: Ids, timeout_seconds: float | None
    ) -> I | None:
        found: I | None = self.store.read_item(
            self._ident(level, given, ids), timeout_seconds=timeout_seconds
        )
        return found

    def _peek(self, level: type[OpenItem[I]], given: Ident | str, ids: Ids) -> I | None:
        found: I | None = self.store.peek_item(self._ident(level, given, ids))
        return found

    def _ident(self, level: type[OpenItem[Any]], given: Ident | str, ids: Ids) -> Ident:
        """Who is meant by an ident of this level or below it, or by a project's name and ids."""
        return level.IDENT.of(given, dict(zip(level.IDENT.fields()[1:], ids, strict=True)))
