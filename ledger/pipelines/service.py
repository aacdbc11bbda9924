"""
The service of a pipeline's project state: `open_*` to change, `read_*` and `peek_*` to read (spec 1.5).

    service = LSMStateService(log)
    with service.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
        strip.set_uploaded(True)

Its methods are made from the declaration: six for each level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from inspect import Parameter
from types import new_class
from typing import Any, ClassVar

from ..errors import BadInput
from ..log.ledger import Ledger
from ..log.scope_locks import Locks
from .declaration import Method, Pipeline, parameter
from .ident import Ident
from .open_item import OpenItem
from .store import ProjectStore

Kind = type[OpenItem[Any]]
Ids = Mapping[str, int | None]
"""Ids by the fields of the ident; None where a caller gave none."""


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

    # What the methods call

    def _open(
        self, kind: Kind, given: Ident | str, ids: Ids, timeout: float | None
    ) -> AbstractContextManager[Any]:
        ident, computed = self._meant(kind, given, ids)
        scope = self.store.open_item(ident, timeout_seconds=timeout)
        return self._checked(scope) if computed else scope

    def _read(self, kind: Kind, given: Ident | str, ids: Ids, timeout: float | None) -> Any:
        ident, computed = self._meant(kind, given, ids)
        return self._found(self.store.read_item(ident, timeout_seconds=timeout), ident, computed)

    def _peek(self, kind: Kind, given: Ident | str, ids: Ids) -> Any:
        ident, computed = self._meant(kind, given, ids)
        return self._found(self.store.peek_item(ident), ident, computed)

    def _found(self, view: Any, ident: Ident, computed: bool) -> Any:
        """The view that was found; for None, check first that the item is not below another parent."""
        if view is None and len(ident.key) == 1:
            return self.store.blank(ident)
        if view is None and computed:
            self._check(self.ledger.load(self.LEVELS[0], ident.project_name).state)
        return view

    def _meant(self, kind: Kind, given: Ident | str, ids: Ids) -> tuple[Ident, bool]:
        """The ident for an ident of this level or below it, or for a project's name and ids.

        Also whether the id of a parent was computed because the caller gave none.
        """
        filled, computed = dict(ids), False
        if type(given) is kind.IDENT and {*ids.values()} <= {None}:
            return given, False  # the usual case
        if not isinstance(given, Ident):
            parent, child = (
                self.LEVELS.levels[self.LEVELS.counted - 1],
                self.LEVELS.levels[self.LEVELS.counted],
            )
            child_id = filled.get(child.id)
            if child.parent_of is not None and child_id is not None and filled[parent.id] is None:
                filled[parent.id] = child.parent_of(child_id, self._number)
                computed = True
            for level in self.LEVELS.levels[1 : len(ids)]:  # those above the item
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
