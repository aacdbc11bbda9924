"""
Items that are opened or read together: the path from the project down to one of them, and all below it.

An item shows if it exists, and was created under the present life of its parent, and the parent shows. So a
deleted item hides what is below it, also what another process created there before it saw the deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from ..append import Append
from ..errors import BadInput, MoveNotAllowed, StreamConflict
from ..expected import Exact
from ..frozen import FrozenDict
from ..names import checked_id, stream_name
from ..store.ledger import Ledger
from .facts import Created, Status
from .ident import Ident
from .item import I, Item
from .open_item import OpenItem

C = TypeVar("C", bound=OpenItem[Any])
Key = tuple[str | int, ...]
Levels = Sequence[type[OpenItem[Any]]]
"""The levels of a pipeline, the project first."""

GIVE_WAY: Final = 10
"""How often a commit gives way to others that create the same path; each time somebody else went on."""


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


class OpenBranch(OpenItem[I], Generic[I, C]):
    """An open item with children. CHILDREN: the field of the view that holds them."""

    CHILDREN: ClassVar[str]

    @property
    def children(self) -> Mapping[int, C]:
        """Its children; read, with all that is below the opened item, when they are first asked for."""
        return Children(self.siblings, self)

    def get_or_create(self, child_id: int) -> C:
        """The child of this id, created where there is none; the same object every time (spec S0-32)."""
        return self.siblings.get_or_create(self, child_id)  # type: ignore[return-value]

    def to_view(self) -> I:
        """A detached snapshot of the item and all below it, deeply immutable (spec S0-13)."""
        views = {child_id: child.to_view() for child_id, child in self.children.items()}
        below: dict[str, Any] = {self.CHILDREN: FrozenDict(views)}
        return replace(self.state, **below)

    @property
    def siblings(self) -> Tree:
        """The tree that it was opened in."""
        if self.tree is None:
            raise BadInput(
                f"{self.name} was opened alone; open it with the service to reach what is below it"
            )
        return self.tree


class Tree:
    """Open items by key, with all that was recorded on them; `commit` appends it, all or nothing."""

    def __init__(self, ledger: Ledger, levels: Levels, ident: Ident) -> None:
        self.ledger, self.levels, self.ident, self.target = ledger, levels, ident, ident.key
        self.items: dict[Key, OpenItem[Any]] = {}
        self.ended = False
        self._below: dict[Key, dict[int, OpenItem[Any]]] = {}
        self._filled = False

    # Reading

    def load_path(self) -> OpenItem[Any]:
        """The target, with what is above it, in one query."""
        self.ledger.load_each([self.item(self.target[:depth]) for depth in range(1, len(self.target) + 1)])
        return self.item(self.target)

    def load_all(self) -> OpenItem[Any]:
        """The target, with what is above and below it, in one query."""
        depth = len(self.target)
        path = [(kind.name_of(*self.target[:n]), kind) for n, kind in enumerate(self.levels[:depth], 1)]
        self._fill(path)
        return self.item(self.target)

    def below(self, item: OpenItem[Any]) -> Mapping[int, OpenItem[Any]]:
        """All that was ever below an item, whether it shows or not."""
        if not self._filled:
            self._fill(())
        return self._below.get(item.key, {})

    def _fill(self, path: Iterable[tuple[str, type[OpenItem[Any]]]]) -> None:
        prefixes = [
            (stream_name(kind.CATEGORY, *self.target) + "/", kind) for kind in self.levels[len(self.target) :]
        ]
        for item in sorted(self.ledger.load_below(*path, *prefixes), key=lambda item: len(item.key)):
            self._place(item)
        self._filled = True

    def item(self, key: Key) -> OpenItem[Any]:
        """The item of this key; a blank one where nothing is known of it."""
        return self.items.get(key) or self._place(self.levels[len(key) - 1](*key))

    def _place(self, item: OpenItem[Any]) -> OpenItem[Any]:
        *above, child_id = item.key
        if above:
            self.item(tuple(above))
            self._below.setdefault(tuple(above), {})[int(child_id)] = item
        self.items[item.key], item.tree = item, self
        return item

    def shows(self, item: OpenItem[Any]) -> bool:
        """Whether the item is there to be seen."""
        while item.state.exists and len(item.key) > 1:
            parent = self.items[item.key[:-1]]
            if item.state.under != parent.state.incarnation:
                return False
            item = parent
        return bool(item.state.exists)

    # Changing

    def open(self) -> OpenItem[Any]:
        """The target, created with what is missing above it."""
        self.load_path()
        for depth in range(1, len(self.target) + 1):
            self._ensure(self.item(self.target[:depth]))
        return self.item(self.target)

    def get_or_create(self, parent: OpenItem[Any], child_id: int) -> OpenItem[Any]:
        """A child of an item that shows. Raises MoveNotAllowed below a deleted one, BadName for a bad id."""
        checked_id(self.levels[len(parent.key)].IDENT.fields()[-1], child_id)
        if not self.shows(parent):
            raise MoveNotAllowed(Status.DELETED, "a parent of new items", [Status.PENDING])
        self.below(parent)
        return self._ensure(self.item((*parent.key, child_id)))

    def _ensure(self, item: OpenItem[Any]) -> OpenItem[Any]:
        if not self.shows(item):
            above = self.items[item.key[:-1]].state.incarnation if len(item.key) > 1 else 0
            item.create(under=above, name=self.ident.project_name)
        return item

    def delete(self, item: OpenItem[Any] | None) -> bool:
        """Delete an item with all below it, and touch the project; False where there is none (spec S0-33)."""
        if item is None:
            return False
        for gone in [*self._subtree(item)]:
            gone.record(gone.FACTS.deleted())
        self.item(self.target[:1]).touch()
        return True

    def _subtree(self, item: OpenItem[Any]) -> Iterator[OpenItem[Any]]:
        for child in self.below(item).values():
            if self.shows(child):
                yield from self._subtree(child)
        yield item

    # Storing

    def commit(self) -> None:
        """Append all that was recorded, all or nothing. Raises StreamConflict where another scope came first.

        Others may create the same path at the same time: where this scope has only created an item that is
        there meanwhile, it takes theirs. A new item's parent is checked in the same moment, so nothing is
        created below an item that is being deleted; that the parent changed otherwise is no conflict.
        """
        for attempt in range(GIVE_WAY):
            changed = [item for item in self.items.values() if item.news]
            checks = self._parents_of_new(changed)
            try:
                appends = [Append(item.name, [], Exact(item.version)) for item in checks]
                return self.ledger.commit(*changed, checks=appends)
            except StreamConflict as conflict:
                giving = [
                    item for item in changed if len(item.news) == 1 and isinstance(item.news[0], Created)
                ]
                if attempt == GIVE_WAY - 1 or not self._give_way(conflict.stream, [*giving, *checks]):
                    raise
        return None

    def _parents_of_new(self, changed: Iterable[OpenItem[Any]]) -> list[OpenItem[Any]]:
        """The items, themselves unchanged, below which something was created."""
        new = [item for item in changed if any(isinstance(event, Created) for event in item.news)]
        above = {item.key[:-1]: self.items[item.key[:-1]] for item in new if len(item.key) > 1}
        return [parent for parent in above.values() if not parent.news]

    def _give_way(self, refused: str, items: Sequence[OpenItem[Any]]) -> bool:
        """Take over what others recorded on these items; False where this scope cannot accept it."""
        if refused not in {item.name for item in items}:
            return False
        now = [type(item)(*item.key) for item in items]
        self.ledger.load_each(now)
        moved = [
            (item, fresh) for item, fresh in zip(items, now, strict=True) if fresh.version != item.version
        ]
        if not all(_same_life(item.state, fresh.state) for item, fresh in moved):
            return False
        for item, fresh in moved:
            item.restore(fresh.state, fresh.version)
            item.news.clear()
        return True


def _same_life(ours: Item, theirs: Item) -> bool:
    return theirs.exists and (ours.incarnation, ours.under) == (theirs.incarnation, theirs.under)


@contextmanager
def opened(ledger: Ledger, levels: Levels, ident: Ident) -> Iterator[Any]:
    """The item, open for change, created if need be; what is recorded is stored at the end of the block."""
    tree = Tree(ledger, levels, ident)
    try:
        yield tree.open()
        tree.commit()
    finally:
        tree.ended = True


def read(ledger: Ledger, levels: Levels, ident: Ident) -> Any:
    """The view of the item and all below it, of one snapshot; None where there is none."""
    tree = Tree(ledger, levels, ident)
    item = tree.load_path() if len(ident.key) == len(levels) else tree.load_all()
    return item.to_view() if tree.shows(item) else None


def every(children: Mapping[int, Any], total: int, quality: str) -> bool:
    """Whether the children 1 … total are all there and have the quality; True for 0 (spec S0-31)."""
    ids = range(1, checked_id("the total", total) + 1)
    return all((child := children.get(i)) is not None and getattr(child, quality) for i in ids)
