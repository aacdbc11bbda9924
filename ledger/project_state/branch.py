"""An open item with children: what all levels but the last have, and how their children are reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from ..errors import BadInput
from ..frozen import FrozenDict
from ..names import checked_id
from .ident import Ident
from .item import I, children_name
from .open_item import OpenItem

if TYPE_CHECKING:
    from .tree import Tree

C = TypeVar("C", bound=OpenItem[Any])


class Children(Mapping[int, C]):
    """The children of an open item that show, by id, in order; follows what the scope changes."""

    def __init__(self, tree: Tree, parent: OpenItem[Any]) -> None:
        self._tree, self._parent = tree, parent

    def __getitem__(self, child_id: int) -> C:
        child = self._tree.below(self._parent)[child_id]
        if not self._tree.shows(child):
            raise KeyError(child_id)
        return child  # type: ignore[return-value]

    def __iter__(self) -> Iterator[int]:
        below = self._tree.below(self._parent)
        return iter([child_id for child_id in sorted(below) if self._tree.shows(below[child_id])])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Below(Generic[C]):
    """The children of an open item: `strips = Below[LSMStripState]()`, named as in the view."""

    @overload
    def __get__(self, item: None, owner: type) -> Self: ...
    @overload
    def __get__(self, item: OpenBranch[Any, C], owner: type) -> Mapping[int, C]: ...
    def __get__(self, item: OpenBranch[Any, C] | None, owner: type) -> Self | Mapping[int, C]:
        return self if item is None else item.children


class OpenBranch(OpenItem[I], Generic[I, C]):
    """An open item with children."""

    @property
    def children(self) -> Mapping[int, C]:
        """Its children; read, with all that is below the opened item, when they are first asked for."""
        return Children(self.siblings, self)

    def get_or_create(self, child_id: int) -> C:
        """The child of this id, created where there is none; the same object every time (spec S0-32)."""
        return self.siblings.get_or_create(self, child_id)  # type: ignore[return-value]

    def find(self, ident: Ident) -> Any:
        """This item, or one below it; None where there is none. Raises WrongIdent for one elsewhere."""
        return self.siblings.find(self, ident)

    def find_or_create(self, ident: Ident) -> Any:
        """The same, created where there is none, with what is missing above it."""
        item: Any = self
        for child_id in self.siblings.way_to(self, ident):
            item = item.get_or_create(child_id)
        return item

    def delete(self, ident: Ident) -> bool:
        """Delete an item below this one, with all below it; False where there is none (spec S0-33)."""
        found = self.siblings.find(self, ident)
        if found is self:
            raise BadInput(f"{ident} is what is open here; open what is above it to delete it")
        return self.siblings.delete(found)

    def to_view(self) -> I:
        """A detached snapshot of the item and all below it, deeply immutable (spec S0-13)."""
        views = {child_id: child.to_view() for child_id, child in self.children.items()}
        below: dict[str, Any] = {children_name(self.STATE) or "": FrozenDict(views)}
        return replace(self.state, **below)

    @property
    def siblings(self) -> Tree:
        """The tree that it was opened in."""
        if self.tree is None:
            raise BadInput(
                f"{self.name} was opened alone; open it with the service to reach what is below it"
            )
        return self.tree


def every(children: Mapping[int, Any], total: int, quality: str) -> bool:
    """Whether the children 1 … total are all there and have the quality; True for 0 (spec S0-31)."""
    ids = range(1, checked_id("the total", total) + 1)
    return all((child := children.get(i)) is not None and getattr(child, quality) for i in ids)
