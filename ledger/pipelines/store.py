"""
The store of one pipeline's project state: the generic layer below the services (spec S0-04).

    store = ProjectStore(PLATES)                       # a pipeline
    with store.locked("run_7") as project:             # the whole project, open for change
        project.find_or_create(WellId("run_7", 1, 2)).mark_completed()
    store.update("run_7", lambda project: project.plan(wells_per_plate=96))
    done = store.read("run_7", lambda project: project.finished)

Every change runs under the lock and is appended at once at the end; an exception stores nothing
(spec S0-05). Reads return a frozen view and never write (W0-01). The same methods by ident reach one item,
and lock only that: `open_item`, `update_item`, `read_item`, `peek_item`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any, TypeVar

from ..errors import BadInput, WrongIdent, shown
from ..log.ledger import Ledger, connect
from ..log.read import Unread
from ..log.retry import retry_conflicts
from ..log.scope_locks import Locks
from .declaration import Pipeline
from .ident import Ident
from .tree import opened, path_of, view_of

R = TypeVar("R")


class ProjectStore:
    """The state of one pipeline's projects in a ledger: a given one, or that of `connect()` at first use.

    locks: how scopes wait for each other; by default the server's advisory locks.
    Raises BadInput for a value that is not a pipeline.
    """

    def __init__(self, levels: Pipeline, ledger: Ledger | None = None, *, locks: Locks | None = None) -> None:
        if not isinstance(levels, Pipeline):
            raise BadInput(f"{shown(levels)} is no pipeline; a store is of a Pipeline, such as LSM")
        self.levels = levels
        self._ledger, self._locks = ledger, locks
        self._connecting = Lock()

    @property
    def ledger(self) -> Ledger:
        """The ledger behind this store."""
        if self._ledger is None:
            with self._connecting:
                if self._ledger is None:
                    self._ledger = connect()
        return self._ledger

    @property
    def locks(self) -> Locks:
        """How its scopes wait for each other."""
        return self._locks if self._locks is not None else self.ledger.locks

    # Whole projects

    def locked(self, project: str, timeout_seconds: float | None = None) -> AbstractContextManager[Any]:
        """The project, open for change, under its lock."""
        return self.open_item(self._project(project), timeout_seconds=timeout_seconds)

    def read(self, project: str, reader: Callable[[Any], R], timeout_seconds: float | None = None) -> R:
        """The result of `reader` on the project's view; no scope changes the project meanwhile."""
        ident = self._project(project)
        with self.locks.shared(path_of(self.levels.kinds, ident.key), timeout_seconds=timeout_seconds):
            return reader(self.peek_item(ident) or self.blank(ident))

    def update(
        self, project: str, mutate: Callable[[Any], object], timeout_seconds: float | None = None
    ) -> None:
        """Let `mutate` change the project, under its lock; repeated after a conflict with another writer."""
        self.update_item(self._project(project), mutate, timeout_seconds=timeout_seconds)

    def peek(self, project: str, reader: Callable[[Any], R], *, upto: int | None = None) -> R:
        """The result of `reader` on the project's view, without waiting; as of a position, if given."""
        ident = self._project(project)
        return reader(self.peek_item(ident, upto=upto) or self.blank(ident))

    @contextmanager
    def open(
        self, project: str, getter: Callable[[Any], R], timeout_seconds: float | None = None
    ) -> Iterator[R]:
        """What `getter` selects from the project, open for change, under the project's lock (spec S0-06)."""
        with self.locked(project, timeout_seconds) as opened_project:
            yield getter(opened_project)

    edit = open

    # Single items; the rest of the project stays unlocked

    def open_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> AbstractContextManager[Any]:
        """The item, open for change; created if missing, with what is missing above it.

        Raises LockTimeout, AlreadyOpen; at the end StreamConflict, LockLost; in each case nothing is stored.
        """
        ledger = self.ledger
        locks = self._locks if self._locks is not None else ledger.locks
        return opened(ledger, locks, self.levels.kinds, self._checked(ident), timeout_seconds)

    def update_item(
        self, ident: Ident, change: Callable[[Any], R], *, timeout_seconds: float | None = None
    ) -> R:
        """Let `change` change the item; repeated, on its new state, after a conflict with another writer."""
        return retry_conflicts(lambda: self._changed(ident, change, timeout_seconds))

    def read_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> Any:
        """The view of the item and all below it; None if it does not exist.

        Waits for scopes on the item and above it, not for those below. The view has every append that was
        committed before. Raises LockTimeout.
        """
        path = path_of(self.levels.kinds, self._checked(ident).key)
        with self.locks.shared(path, timeout_seconds=timeout_seconds):
            return view_of(self.ledger, self.levels.kinds, ident)

    def peek_item(self, ident: Ident, *, upto: int | None = None, unread: Unread | None = None) -> Any:
        """The view of the item and all below it, without waiting; None if it does not exist.

        upto: as of this position (`ledger.position_at` returns that of a time), not beyond `ledger.bound()`.
        unread: called for each item that cannot be folded, which is then left out; without it the first of
        them is raised as UnreadableEvent.
        """
        if upto is not None:
            upto = min(upto, self.ledger.bound())
        return view_of(self.ledger, self.levels.kinds, self._checked(ident), upto, unread)

    def _changed(self, ident: Ident, change: Callable[[Any], R], timeout_seconds: float | None) -> R:
        with self.open_item(ident, timeout_seconds=timeout_seconds) as item:
            return change(item)

    def _project(self, project: str) -> Ident:
        return self.levels[0].IDENT.of(project, {})

    def blank(self, ident: Ident) -> Any:
        """The view of a project that was never created (spec S0-02)."""
        return self.levels[0].STATE(project_name=ident.project_name)

    def _checked(self, ident: Ident) -> Ident:
        if type(ident) not in self.levels.idents:
            wanted = ", ".join(kind.__name__ for kind in self.levels.idents)
            raise WrongIdent(f"{shown(ident)} is no ident of this pipeline; its idents: {wanted}")
        return ident
