"""
The state of one pipeline's projects: `ProjectStore` for any pipeline, and the service with its typed methods.

    service = LSMStateService(log)
    with service.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
        strip.set_uploaded(True)

    store = ProjectStore(PLATES)                       # a pipeline
    with store.locked("run_7") as project:             # the whole project, open for change
        project.find_or_create(WellId("run_7", 1, 2)).mark_completed()
    store.update("run_7", lambda project: project.plan(wells_per_plate=96))
    done = store.read("run_7", lambda project: project.finished)

Every change runs under the lock and is appended at once at the end; an exception stores nothing
(spec S0-05). Reads return a frozen view and never write (W0-01).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from inspect import Parameter
from itertools import pairwise
from threading import Lock
from types import new_class
from typing import Any, ClassVar, TypeVar

from ..errors import BadInput, WrongIdent, shown
from ..log.ledger import Ledger, connect
from ..log.read import Unread
from ..log.retry import retry_conflicts
from ..log.scope_locks import HeldLock, Locks
from .ident import Ident
from .item import OpenItem
from .pipeline import Method, Pipeline, parameter
from .tree import opened, path_of, view_of

R = TypeVar("R")
Kind = type[OpenItem[Any]]
Ids = Mapping[str, int | None]
"""Ids by the fields of the ident; None where a caller gave none."""


class ProjectStore:
    """The state of one pipeline's projects in a ledger: a given one, or that of `connect()` at first use.

    The generic layer below the services (spec S0-04). Methods by project lock all of it; those by ident,
    `open_item`, `update_item`, `read_item` and `peek_item`, reach one item, and lock only that.
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

    # Whole projects

    def locked(self, project: str, timeout_seconds: float | None = None) -> AbstractContextManager[Any]:
        """The project, open for change, under its lock."""
        return self.open_item(self._project(project), timeout_seconds=timeout_seconds)

    def read(self, project: str, reader: Callable[[Any], R], timeout_seconds: float | None = None) -> R:
        """The result of `reader` on the project's view; no scope changes the project meanwhile."""
        ident = self._project(project)
        with self._shared(ident, timeout_seconds):
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
        return opened(self.ledger, self._locks, self.levels.kinds, self._checked(ident), timeout_seconds)

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
        with self._shared(ident, timeout_seconds):
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

    def _shared(self, ident: Ident, timeout_seconds: float | None) -> AbstractContextManager[HeldLock]:
        """No scope changes the item, or what is above it, while the block runs."""
        locks = self.ledger.locks if self._locks is None else self._locks
        path = path_of(self.levels.kinds, self._checked(ident).key)
        return locks.shared(path, timeout_seconds=timeout_seconds)

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


class StateService:
    """The state of one pipeline's projects: `open_*` to change, `read_*` and `peek_*` to read (spec 1.5).

    open_* creates what is missing on the path, and appends all that was recorded in the block at once at
    its end. It waits for scopes on the same item, above it and below it, for `timeout_seconds` at most (None:
    without limit). After an exception in the block, or a StreamConflict at its end, nothing is stored.
    read_* waits for scopes on the item and above it, then returns one snapshot with every append that was
    committed before; peek_* does not wait. Neither creates anything: both return None for what is missing,
    and an empty view for a project that was never created. Each takes an ident, or a project's name and ids;
    the `_by_parts` methods take the name and ids only.

    Where the ids of a level are unique in the whole project, the id of its parent may be left out. It is
    computed by the one rule of the declaration (W0-09) with the number of the service, without
    a query; an id that is given always wins. A project's plan may have another number. The service never uses
    the wrong parent silently: where the id was computed, `open_*` raises BadInput, and so do `read_*` and
    `peek_*` instead of returning None; only this case costs a query.

    Raises LockTimeout, AlreadyOpen (a nested open of the same path in one thread), StreamConflict, LockLost.
    """

    LEVELS: ClassVar[Pipeline]

    def __init__(
        self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None, **numbers: int
    ) -> None:
        """ledger: a ledger or a store; by default what `ledger.connect()` finds at first use.

        numbers: of a level whose ids are unique in the whole project, such as `mosaics_per_slice=3`.
        """
        if isinstance(ledger, ProjectStore):
            if locks is not None or ledger.levels is not self.LEVELS:
                raise BadInput("a store brings its own locks, and must be of the levels of this service")
            self.store = ledger
        else:
            self.store = ProjectStore(self.LEVELS, ledger, locks=locks)
        self._count(numbers)

    def _count(self, numbers: dict[str, int]) -> None:
        """Set the number of children that the service computes parents with."""
        child = self.LEVELS.levels[self.LEVELS.counted]
        if child.parent_of is not None and child.total is not None:
            self._counted_by = child.total.name
            self._number = numbers.pop(child.total.name, child.total.unplanned or 1)
            setattr(self, child.total.name, self._number)
            child.parent_of(1, self._number)  # checks the number
        if numbers:
            raise TypeError(f"{type(self).__name__} has no argument {next(iter(numbers))!r}")

    @property
    def ledger(self) -> Ledger:
        """The ledger behind this service."""
        return self.store.ledger

    # What the methods call; ids: by the fields of the ident, None where the caller gave none.

    def _open(
        self, kind: Kind, given: Ident | str, ids: Ids, timeout_seconds: float | None
    ) -> AbstractContextManager[Any]:
        ident, computed = self._ident(kind, given, ids)
        scope = self.store.open_item(ident, timeout_seconds=timeout_seconds)
        return self._checked(scope) if computed else scope

    def _read(self, kind: Kind, given: Ident | str, ids: Ids, timeout_seconds: float | None) -> Any:
        ident, computed = self._ident(kind, given, ids)
        view = self.store.read_item(ident, timeout_seconds=timeout_seconds)
        return view if view is not None else self._missing(ident, computed)

    def _peek(self, kind: Kind, given: Ident | str, ids: Ids) -> Any:
        ident, computed = self._ident(kind, given, ids)
        view = self.store.peek_item(ident)
        return view if view is not None else self._missing(ident, computed)

    def _missing(self, ident: Ident, computed: bool) -> Any:
        """What is returned for a missing item, after a check that it is not below another parent."""
        if len(ident.key) == 1:
            return self.store.blank(ident)
        if computed:
            self._check(self.ledger.load(self.LEVELS[0], ident.project_name).state)
        return None

    def _ident(self, kind: Kind, given: Ident | str, ids: Ids) -> tuple[Ident, bool]:
        """The ident for an ident of this level or below it, or for a project's name and ids.

        Also whether the id of a parent was computed because the caller gave none.
        """
        if type(given) is kind.IDENT and {*ids.values()} <= {None}:  # mostly
            return given, False
        if isinstance(given, Ident) or not ids:
            return kind.IDENT.of(given, ids), False
        filled, computed, levels = dict(ids), False, self.LEVELS.levels[1 : len(ids) + 1]
        for parent, child in pairwise(levels):
            if child.parent_of and filled[parent.id] is None and (child_id := filled[child.id]) is not None:
                filled[parent.id], computed = child.parent_of(child_id, self._number), True
        for level in levels[:-1]:
            if filled[level.id] is None:
                filled[level.id] = level.default
        return kind.IDENT.of(given, filled), computed

    @contextmanager
    def _checked(self, scope: AbstractContextManager[Any]) -> Iterator[Any]:
        with scope as item:
            self._check(item.siblings.item(item.key[:1]).state)
            yield item

    def _check(self, project: Any) -> None:
        planned = getattr(project, self._counted_by)
        if project.exists and planned not in (None, self._number):
            parent, child = self.LEVELS.levels[self.LEVELS.counted - 1 : self.LEVELS.counted + 1]
            raise BadInput(
                f"the project {project.project_name!r} plans {planned} {child.plural} a {parent.name}, "
                f"this service counts {self._number}: give {parent.id}, "
                f"or the service {self._counted_by}={planned}"
            )


def service_of(pipeline: Pipeline) -> Any:
    """The class of the pipeline's service, such as LSMStateService, as a name of the declaring module."""
    name = f"{pipeline.prefix}StateService"
    body = {
        "__module__": pipeline.module,
        "__qualname__": name,
        "LEVELS": pipeline,
        "__doc__": f"The state of {pipeline.name} projects. {StateService.__doc__}",
        **{method.name: method.function(pipeline.module) for method in service_methods(pipeline)},
    }
    return new_class(name, (StateService,), {}, lambda names: names.update(body))


def service_methods(pipeline: Pipeline) -> Iterator[Method]:
    """The methods of a pipeline's service."""
    for depth, kind in enumerate(pipeline):
        for verb in ("open", "read", "peek"):
            yield _method(pipeline, depth, kind, verb, by_parts=False)
            yield _method(pipeline, depth, kind, verb, by_parts=True)


def _method(pipeline: Pipeline, depth: int, kind: Kind, verb: str, *, by_parts: bool) -> Method:
    level = pipeline.levels[depth]
    ids = [_id(pipeline, depth, place, by_parts) for place in range(1, depth + 1)]
    order = sorted(ids, key=lambda each: by_parts and each.default is not Parameter.empty)
    timeout = [] if verb == "peek" else [parameter("timeout_seconds", "float | None", None, only=True)]
    known = ("project_name", "str") if by_parts else ("project", f"{kind.IDENT.__name__} | str")
    view = kind.STATE.__name__ if depth == 0 else f"{kind.STATE.__name__} | None"
    missing = "None" if depth else "an empty one"
    doc = {
        "open": f"The {level.name}, open for change.",
        "read": f"The {level.name} and all below it; {missing} where there is none.",
        "peek": "The same without waiting for anybody.",
    }[verb]
    names, reach = [each.name for each in order], getattr(StateService, f"_{verb}")

    def called(service: StateService, given: Any, *values: Any) -> Any:
        return reach(service, kind, given, dict(zip(names, values, strict=False)), *values[len(names) :])

    return Method(
        f"{verb}_{level.name}{'_by_parts' if by_parts else ''}",
        (parameter(*known), *order, *timeout),
        f"AbstractContextManager[{kind.__name__}]" if verb == "open" else view,
        doc,
        called,
    )


def _id(pipeline: Pipeline, depth: int, place: int, by_parts: bool) -> Parameter:
    """The parameter of one id: required only where nothing can replace it."""
    level = pipeline.levels[place]
    computed = pipeline.counted and place == pipeline.counted - 1 and depth >= pipeline.counted
    if by_parts and place < depth and level.default is not None:
        return parameter(level.id, "int", level.default, only=True)
    if by_parts and not computed:
        return parameter(level.id, only=True)
    return parameter(level.id, "int | None", None, only=True)
