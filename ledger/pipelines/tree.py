"""
Items that are opened together: the path from the project down to one item, and all below it.

An item is visible if it exists, was created under the present incarnation of its parent, and the parent is
visible. So a deleted item hides what is below it, even what another process created before it saw the
deletion. A view is built straight from the states of the streams: a read opens no items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any, Final

from ..domain.frozen import FrozenDict
from ..domain.names import checked_id, stream_name
from ..domain.state import UnreadableState
from ..errors import LockLost, MoveNotAllowed, StreamConflict, UnreadableEvent, WrongIdent
from ..log import read
from ..log.append import Append, Exact
from ..log.ledger import Ledger
from ..log.read import Row, fill
from ..log.scope_locks import HeldLock, Locks
from .facts import LIVE, Created, Status, Touched
from .ident import Ident
from .item import Item, OpenItem, children_name

Key = tuple[str | int, ...]
Levels = tuple[type[OpenItem[Any]], ...]
"""The open classes of a pipeline, the project first."""

ONE_BY_ONE: Final = 6
"""How many items below the opened one are loaded one by one; after that all are loaded in one query."""
GIVE_WAY: Final = 10
"""How often a commit yields to other scopes that create the same path; each time one of them succeeded."""


class Tree:
    """Open items by key, with the facts recorded on them; `commit` appends these, all or nothing."""

    def __init__(self, ledger: Ledger, levels: Levels, ident: Ident) -> None:
        self.ledger, self.levels, self.ident, self.target = ledger, levels, ident, ident.key
        self.items: dict[Key, OpenItem[Any]] = {}
        self.ended = False
        self.looked_below = False
        self._below: dict[Key, dict[int, OpenItem[Any]]] = {}
        self._filled: set[Key] = set()
        self._alone: set[Key] = set()
        self._rows: dict[Key, Row] = {}

    # Reading

    def load_path(self) -> OpenItem[Any]:
        """The target, with the items above it, in one query."""
        self.ledger.load_each([self.item(self.target[:depth]) for depth in range(1, len(self.target) + 1)])
        return self.item(self.target)

    def below(self, item: OpenItem[Any]) -> Mapping[int, OpenItem[Any]]:
        """All items that were ever below an item, visible or not."""
        self.looked_below = True
        if not self._is_filled(item.key):
            self._fill(item)
        return self._below.get(item.key, {})

    def _is_filled(self, key: Key) -> bool:
        return any(key[:depth] in self._filled for depth in range(len(self.target), len(key) + 1))

    def _fill(self, item: OpenItem[Any]) -> None:
        """Load all that is below an item, in one query; what is loaded already stays as it is."""
        self._filled.add(item.key)
        kinds = self.levels[len(item.key) :]
        if not kinds or item.version == 0:  # a new item never had items below it
            return
        prefixes = [(stream_name(kind.CATEGORY, *item.key) + "/", kind) for kind in kinds]
        for found in sorted(self.ledger.load_below(*prefixes), key=lambda found: len(found.key)):
            known = self.items.get(found.key)
            if known is None or (known.version == 0 and not known.news):
                self._place(found)

    def _load_one(self, item: OpenItem[Any]) -> None:
        """Load one item below the target, unless all of them are loaded or soon will be."""
        parent = self.item(item.key[:-1]) if len(item.key) > len(self.target) else None
        if parent is None or item.key in self._alone or self._is_filled(parent.key) or parent.version == 0:
            return
        self.looked_below = True
        if len(self._alone) == ONE_BY_ONE:
            self._fill(self.item(self.target))
            return
        self.ledger.load_each([item])
        self._alone.add(item.key)

    def item(self, key: Key) -> OpenItem[Any]:
        """The item with this key; a blank one if it has no facts."""
        item = self.items.get(key)
        if item is None:
            item = self._place(self.levels[len(key) - 1](*key))
            if key in self._rows:
                try:
                    fill(item, *self._rows.pop(key))
                except UnreadableState:
                    self.ledger.load_each([item])
        return item

    def _place(self, item: OpenItem[Any]) -> OpenItem[Any]:
        *above, child_id = item.key
        if above:
            self._below.setdefault(tuple(above), {})[int(child_id)] = item
        self.items[item.key], item.tree = item, self
        return item

    def shows(self, item: OpenItem[Any]) -> bool:
        """Whether the item is visible."""
        while item.state.exists and len(item.key) > 1:
            parent = self.item(item.key[:-1])
            if item.state.under != parent.state.incarnation:
                return False
            item = parent
        return bool(item.state.exists)

    # Changing

    def open(self, rows: Sequence[Row] = ()) -> OpenItem[Any]:
        """The target, created with what is missing above it. rows: the heads of its path, if known."""
        if not rows:
            self.load_path()
        self._rows = {self.target[:depth]: row for depth, row in enumerate(rows, 1)}
        if rows and _show(rows[:-1], self.item(self.target).state):  # mostly: nothing above is created
            return self.item(self.target)
        for depth in range(1, len(self.target) + 1):
            self._ensure(self.item(self.target[:depth]))
        return self.item(self.target)

    def get_or_create(self, parent: OpenItem[Any], child_id: int) -> OpenItem[Any]:
        """A child of a visible item. Raises MoveNotAllowed below a deleted one, BadName for a bad id."""
        checked_id(self.levels[len(parent.key)].IDENT.fields()[-1], child_id)
        if not self.shows(parent):
            raise MoveNotAllowed(Status.DELETED, "a parent of new items", [Status.PENDING])
        item = self.item((*parent.key, child_id))
        self._load_one(item)
        return self._ensure(self.items[item.key])

    def way_to(self, item: OpenItem[Any], ident: Ident) -> Key:
        """The ids on the path from an item down to another. Raises WrongIdent if there is no such path."""
        depth, key = len(item.key), ident.key
        kind = self.levels[len(key) - 1].IDENT if len(key) <= len(self.levels) else None
        if type(ident) is not kind or key[:depth] != item.key:
            raise WrongIdent(f"{ident} is not {item.ident}, which is open here, nor below it")
        return key[depth:]

    def find(self, item: OpenItem[Any], ident: Ident) -> OpenItem[Any] | None:
        """The item of this ident, if it is visible."""
        for child_id in self.way_to(item, ident):
            child = self.item((*item.key, int(child_id)))
            self._load_one(child)
            item = self.items[child.key]
            if not self.shows(item):
                return None
        return item if self.shows(item) else None

    def _ensure(self, item: OpenItem[Any]) -> OpenItem[Any]:
        if not self.shows(item):
            above = self.item(item.key[:-1]).state.incarnation if len(item.key) > 1 else 0
            item.create(under=above, name=self.ident.project_name)
        return item

    def delete(self, item: OpenItem[Any] | None) -> bool:
        """Delete an item with all below it, and touch the project; False if it is missing (spec S0-33)."""
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

        Others may create the same path at the same time: where this scope has only created an item that now
        exists, it uses theirs; what it has only touched, it touches again. The append also checks the parent
        of a new item, so nothing is created below an item that is being deleted; other changes of the
        parent are no conflict.
        """
        for attempt in range(GIVE_WAY):
            changed = [item for item in self.items.values() if item.news]
            if len(changed) > 1:
                changed.sort(key=lambda item: len(item.key))
            parents = self._parents_of_new(changed)
            checks = [Append(parent.name, [], Exact(parent.version)) for parent in parents]
            try:
                self.ledger.commit(*changed, checks=checks)
                return
            except StreamConflict as conflict:
                giving = [item for item in changed if _says_little(item)]
                if attempt == GIVE_WAY - 1 or not self._give_way(conflict.stream, [*giving, *parents]):
                    raise
        return

    def _parents_of_new(self, changed: Iterable[OpenItem[Any]]) -> list[OpenItem[Any]]:
        """The unchanged items below which an item was created."""
        new = [item for item in changed for event in item.news if isinstance(event, Created)]
        if not new:
            return []
        above = {item.key[:-1]: self.item(item.key[:-1]) for item in new if len(item.key) > 1}
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
            touched = any(isinstance(event, Touched) for event in item.news)
            item.restore(fresh.state, fresh.version)
            item.news.clear()
            if touched:
                item.touch()
        return True


def _says_little(item: OpenItem[Any]) -> bool:
    """Whether its new facts may follow those of others: it was only created once, or touched."""
    made = sum(isinstance(event, Created) for event in item.news)
    return made <= 1 and all(isinstance(event, Created | Touched) for event in item.news)


def _same_life(ours: Item, theirs: Item) -> bool:
    return theirs.exists and (ours.incarnation, ours.under) == (theirs.incarnation, theirs.under)


@contextmanager
def opened(
    ledger: Ledger, locks: Locks | None, levels: Levels, ident: Ident, timeout_seconds: float | None
) -> Iterator[Any]:
    """The item, open for change, created if missing; the facts are stored at the end of the block.

    locks: how scopes wait for each other; None: the ledger's own, which read the path in the call that locks.
    Versions are checked, so the lock only avoids conflicts, and losing it alone refuses nothing. But items
    below that the block only read have no version in the append: for them the loss raises LockLost. Without
    locks, nothing guards what was only read.
    """
    path = path_of(levels, ident.key)
    held: AbstractContextManager[HeldLock]
    if locks is None:
        held = ledger.locks.opening(path, _marks(levels[: len(path)]), timeout_seconds=timeout_seconds)
    else:
        held = locks.exclusive(path, timeout_seconds=timeout_seconds)
    with held as lock:
        tree = Tree(ledger, levels, ident)
        try:
            yield tree.open(getattr(lock, "rows", ()))
            if tree.looked_below and lock.lost:
                raise LockLost(tree.item(tree.target).name)
            tree.commit()
        finally:
            tree.ended = True


def _show(above: Sequence[Row], target: Item) -> bool:
    """Whether a path is visible and was read completely: the rows above the target, and its state."""
    incarnation = 0
    for _, item, tail in above:
        if not isinstance(item, dict) or tail or item.get("under") != incarnation:
            return False
        status = item.get("status")  # any JSON may be stored there
        if not isinstance(status, str) or status not in LIVE:
            return False
        incarnation = item.get("incarnation", 0)
    return target.exists and target.under == incarnation


# Views

Views = dict[str, Any]
"""Views of one level, by the part of the stream's name after the category."""


def view_of(
    ledger: Ledger,
    levels: Levels,
    ident: Ident,
    upto: int | None = None,
    unread: read.Unread | None = None,
) -> Any:
    """The view of the item and all below it, of one snapshot; None if it does not exist.

    upto: as of this position, which must be safe to read. unread: called for each item below that cannot be
    folded, which is then left out; without it the first of them is raised as UnreadableEvent.
    """
    depth, path = len(ident.key), path_of(levels, ident.key)
    told = unread and partial(_left_out, unread, path)
    wanted = [*zip((*path, *_below(levels, ident.key)), levels, strict=True)]
    with ledger.reader() as connection:
        found = read.states(connection, ledger.schema, wanted, upto, told)
    shown: list[Views] = []
    for kind in levels:
        root = len(kind.CATEGORY) + 1
        states = {name[root:]: state for name, _, state in found[kind]}
        shown.append(_shown(states, shown[-1] if shown else None))
    target = shown[depth - 1]
    for kind, views, children in reversed([*zip(levels, shown, shown[1:], strict=False)][depth - 1 :]):
        _hang(kind, views, children)
    return next(iter(target.values()), None)


def _left_out(unread: read.Unread, path: Sequence[str], error: UnreadableEvent) -> None:
    """Report an item below that cannot be folded; for one on the path itself, raise the error."""
    if error.stream in path:
        raise error
    unread(error)


@lru_cache
def _marks(levels: Levels) -> tuple[int, ...]:
    """The marks of the code that folds the states of these levels."""
    return tuple(kind.state_schema() for kind in levels)


@lru_cache(maxsize=20_000, typed=True)
def path_of(levels: Levels, key: Key) -> tuple[str, ...]:
    """The names of the streams from the project's down to that of the item; cached."""
    return tuple(kind.name_of(*key[:depth]) for depth, kind in enumerate(levels[: len(key)], 1))


@lru_cache(maxsize=20_000, typed=True)
def _below(levels: Levels, key: Key) -> tuple[str, ...]:
    """The prefixes of the streams of each level below the item with this key; cached."""
    return tuple(stream_name(kind.CATEGORY, *key) + "/" for kind in levels[len(key) :])


def _shown(states: Views, above: Views | None) -> Views:
    """The visible states, below the visible views."""
    if above is None:
        return {rest: state for rest, state in states.items() if state.exists}
    return {
        rest: state
        for rest, state in states.items()
        if state.exists
        and (parent := above.get(rest[: rest.rindex("/")])) is not None
        and parent.incarnation == state.under
    }


def _hang(kind: type[OpenItem[Any]], views: Views, children: Views) -> None:
    """Add the children to the views, which no caller has seen yet."""
    families: dict[str, dict[int, Any]] = {rest: {} for rest in views}
    for rest, child in children.items():
        parent, _, child_id = rest.rpartition("/")
        if child_id.isdecimal() and child_id == str(int(child_id)):  # else the ledger did not write the name
            families[parent][int(child_id)] = child
    field = children_name(kind.STATE)
    for rest, family in families.items():
        if field is not None and family:
            object.__setattr__(views[rest], field, FrozenDict(dict(sorted(family.items()))))
