"""
The store of one pipeline's project state: the generic layer below the services (spec S0-04).

    store = ProjectStore(PLATES)                       # the levels of a pipeline, the project first
    with store.locked("run_7") as project:             # the whole project, open for change
        project.find_or_create(WellId("run_7", 1, 2)).mark_completed()
    store.update("run_7", lambda project: project.plan(wells_per_plate=96))
    done = store.read("run_7", lambda project: project.finished)

Whatever changes runs under the lock and is appended in one piece at the end; an exception stores nothing
(spec S0-05). What only looks gets a frozen view and never writes (W0-01). The same by ident reach one item,
and lock only that: `open_item`, `update_item`, `read_item`, `peek_item`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any, Final, TypeVar

from ..errors import BadInput, StreamConflict, WrongIdent, shown
from ..store.ledger import Ledger, connect
from ..store.locks import Locks
from .declared import check_levels
from .ident import Ident
from .known import make_known
from .tree import opened
from .views import Levels, path_of, view_of

R = TypeVar("R")
TRIES: Final = 10
"""How often a change is decided again after a conflict; each time somebody else went on."""


class ProjectStore:
    """The state of one pipeline's projects in a ledger: a given one, or what `connect()` finds at first use.

    locks: how scopes wait for each other; the server's advisory locks by default.
    Raises BadInput where the levels are no pipeline.
    """

    def __init__(self, levels: Levels, ledger: Ledger | None = None, *, locks: Locks | None = None) -> None:
        check_levels(levels)
        make_known(levels)
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
        """What `reader` makes of the project's view; no scope changes the project meanwhile."""
        ident = self._project(project)
        with self.locks.shared(path_of(self.levels, ident), timeout_seconds=timeout_seconds):
            return reader(self.peek_item(ident) or self._blank(ident))

    def update(
        self, project: str, mutate: Callable[[Any], object], timeout_seconds: float | None = None
    ) -> None:
        """Let `mutate` change the project, under its lock; again where another writer came between."""
        self.update_item(self._project(project), mutate, timeout_seconds=timeout_seconds)

    def peek(self, project: str, reader: Callable[[Any], R], *, upto: int | None = None) -> R:
        """What `reader` makes of the project's view, without waiting; as of a position, if one is given."""
        ident = self._project(project)
        return reader(self.peek_item(ident, upto=upto) or self._blank(ident))

    @contextmanager
    def open(
        self, project: str, getter: Callable[[Any], R], timeout_seconds: float | None = None
    ) -> Iterator[R]:
        """What `getter` selects from the project, open for change, under the project's lock (spec S0-06)."""
        with self.locked(project, timeout_seconds) as opened_project:
            yield getter(opened_project)

    edit = open

    # Single items, which leave the rest of their project to others

    def open_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> AbstractContextManager[Any]:
        """The item, open for change; created if need be, with what is missing above it.

        Raises LockTimeout, AlreadyOpen; at the end StreamConflict, LockLost; in each case nothing is stored.
        """
        return opened(self.ledger, self.locks, self.levels, self._checked(ident), timeout_seconds)

    def update_item(
        self, ident: Ident, change: Callable[[Any], R], *, timeout_seconds: float | None = None
    ) -> R:
        """Let `change` change the item; again, with what is there then, where another writer came between."""
        return retry_conflicts(lambda: self._changed(ident, change, timeout_seconds))

    def read_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> Any:
        """The view of the item and all below it, None where there is none.

        Waits for scopes on the item and above it, not for those below, and then has every append that was
        committed before. Raises LockTimeout.
        """
        path = path_of(self.levels, self._checked(ident))
        with self.locks.shared(path, timeout_seconds=timeout_seconds):
            return view_of(self.ledger, self.levels, ident)

    def peek_item(self, ident: Ident, *, upto: int | None = None) -> Any:
        """The view of the item and all below it, None where there is none, without waiting for anybody.

        upto: as of this position (`ledger.position_at` knows that of a time), not beyond `ledger.bound()`.
        """
        if upto is not None:
            upto = min(upto, self.ledger.bound())
        return view_of(self.ledger, self.levels, self._checked(ident), upto)

    def _changed(self, ident: Ident, change: Callable[[Any], R], timeout_seconds: float | None) -> R:
        with self.open_item(ident, timeout_seconds=timeout_seconds) as item:
            return change(item)

    def _project(self, project: str) -> Ident:
        return self.levels[0].IDENT.of(project, {})

    def _blank(self, ident: Ident) -> Any:
        """The view of a project that nobody created (spec S0-02)."""
        return self.levels[0].STATE(project_name=ident.project_name)

    def _checked(self, ident: Ident) -> Ident:
        kinds = [kind.IDENT for kind in self.levels]
        if type(ident) not in kinds:
            wanted = ", ".join(kind.__name__ for kind in kinds)
            raise WrongIdent(f"{shown(ident)} is no ident of this pipeline; its idents: {wanted}")
        return ident


def retry_conflicts(work: Callable[[], R], *, tries: int = TRIES) -> R:
    """Do the work, and do it again where another writer came first; it must decide anew each time.

    Raises the last StreamConflict after so many tries.
    """
    if tries < 1:
        raise BadInput(f"tries {shown(tries)} must be 1 or more")
    for _ in range(tries - 1):
        try:
            return work()
        except StreamConflict:
            continue
    return work()
