"""
Items that are opened together: the path from the project down to one of them, and all below it.

An item shows if it exists, and was created under the present life of its parent, and the parent shows. So a
deleted item hides what is below it, also what another process created there before it saw the deletion.
views.py shows the same without opening anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from ..append import Append
from ..errors import LockLost, MoveNotAllowed, StreamConflict, WrongIdent
from ..expected import Exact
from ..names import checked_id, stream_name
from ..store.ledger import Ledger
from ..store.locks import AdvisoryLocks, Held, Locks
from ..store.reading import Row, fill
from .facts import LIVE, Created, Status, Touched
from .ident import Ident
from .item import Item
from .open_item import OpenItem
from .views import Levels, path_of

Key = tuple[str | int, ...]

ONE_BY_ONE: Final = 6
"""How many items below the opened one are loaded one by one; then all of them in one query."""
GIVE_WAY: Final = 10
"""How often a commit gives way to others that create the same path; each time somebody else went on."""


class Tree:
    """Open items by key, with all that was recorded on them; `commit` appends it, all or nothing."""

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
        """The target, with what is above it, in one query."""
        self.ledger.load_each([self.item(self.target[:depth]) for depth in range(1, len(self.target) + 1)])
        return self.item(self.target)

    def below(self, item: OpenItem[Any]) -> Mapping[int, OpenItem[Any]]:
        """All that was ever below an item, whether it shows or not."""
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
        if not kinds or item.version == 0:  # a new item: there never was anything below
            return
        prefixes = [(stream_name(kind.CATEGORY, *item.key) + "/", kind) for kind in kinds]
        for found in sorted(self.ledger.load_below(*prefixes), key=lambda found: len(found.key)):
            known = self.items.get(found.key)
            if known is None or (known.version == 0 and not known.news):
                self._place(found)

    def _load_one(self, item: OpenItem[Any]) -> None:
        """What is known of one item below the target, unless all of them are known or soon will be."""
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
        """The item of this key; a blank one where nothing is known of it."""
        item = self.items.get(key)
        if item is None:
            item = self._place(self.levels[len(key) - 1](*key))
            if key in self._rows:
                fill(item, *self._rows.pop(key))
        return item

    def _place(self, item: OpenItem[Any]) -> OpenItem[Any]:
        *above, child_id = item.key
        if above:
            self._below.setdefault(tuple(above), {})[int(child_id)] = item
        self.items[item.key], item.tree = item, self
        return item

    def shows(self, item: OpenItem[Any]) -> bool:
        """Whether the item is there to be seen."""
        while item.state.exists and len(item.key) > 1:
            parent = self.item(item.key[:-1])
            if item.state.under != parent.state.incarnation:
                return False
            item = parent
        return bool(item.state.exists)

    # Changing

    def open(self, rows: Sequence[Row] = ()) -> OpenItem[Any]:
        """The target, created with what is missing above it. rows: what its path is at, if that is known."""
        if not rows:
            self.load_path()
        self._rows = {self.target[:depth]: row for depth, row in enumerate(rows, 1)}
        if rows and _show(rows[:-1], self.item(self.target).state):  # mostly: then nothing above is made
            return self.item(self.target)
        for depth in range(1, len(self.target) + 1):
            self._ensure(self.item(self.target[:depth]))
        return self.item(self.target)

    def get_or_create(self, parent: OpenItem[Any], child_id: int) -> OpenItem[Any]:
        """A child of an item that shows. Raises MoveNotAllowed below a deleted one, BadName for a bad id."""
        checked_id(self.levels[len(parent.key)].IDENT.fields()[-1], child_id)
        if not self.shows(parent):
            raise MoveNotAllowed(Status.DELETED, "a parent of new items", [Status.PENDING])
        item = self.item((*parent.key, child_id))
        self._load_one(item)
        return self._ensure(self.items[item.key])

    def way_to(self, item: OpenItem[Any], ident: Ident) -> Key:
        """The ids from an item down to another. Raises WrongIdent where there is no such way."""
        depth, key = len(item.key), ident.key
        kind = self.levels[len(key) - 1].IDENT if len(key) <= len(self.levels) else None
        if type(ident) is not kind or key[:depth] != item.key:
            raise WrongIdent(f"{ident} is not {item.ident}, which is open here, nor below it")
        return key[depth:]

    def find(self, item: OpenItem[Any], ident: Ident) -> OpenItem[Any] | None:
        """The item of this ident, if it shows."""
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
        there meanwhile, it takes theirs, and what it has only touched, it touches again. A new item's parent
        is checked in the same moment, so nothing is created below an item that is being deleted; that the
        parent changed otherwise is no conflict.
        """
        for attempt in range(GIVE_WAY):
            changed = sorted((i for i in self.items.values() if i.news), key=lambda item: len(item.key))
            checks = self._parents_of_new(changed)
            try:
                appends = [Append(item.name, [], Exact(item.version)) for item in checks]
                return self.ledger.commit(*changed, checks=appends)
            except StreamConflict as conflict:
                giving = [item for item in changed if _says_little(item)]
                if attempt == GIVE_WAY - 1 or not self._give_way(conflict.stream, [*giving, *checks]):
                    raise
        return None

    def _parents_of_new(self, changed: Iterable[OpenItem[Any]]) -> list[OpenItem[Any]]:
        """The items, themselves unchanged, below which something was created."""
        new = [item for item in changed if any(isinstance(event, Created) for event in item.news)]
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
    """Whether all its news may as well come after those of others: it was created once, or touched."""
    made = sum(isinstance(event, Created) for event in item.news)
    return made <= 1 and all(isinstance(event, Created | Touched) for event in item.news)


def _same_life(ours: Item, theirs: Item) -> bool:
    return theirs.exists and (ours.incarnation, ours.under) == (theirs.incarnation, theirs.under)


@contextmanager
def opened(
    ledger: Ledger, locks: Locks, levels: Levels, ident: Ident, timeout_seconds: float | None
) -> Iterator[Any]:
    """The item, open for change, created if need be; what is recorded is stored at the end of the block.

    The lock is a courtesy, and its loss alone refuses nothing, because versions are checked. But what the
    block only looked at below the item has none in the append: then the loss is LockLost. Without locks
    nothing guards what was only looked at.
    """
    with _locked(ledger, locks, levels, ident, timeout_seconds) as held:
        tree = Tree(ledger, levels, ident)
        try:
            yield tree.open(getattr(held, "rows", ()))
            if tree.looked_below and held.lost:
                raise LockLost(tree.item(tree.target).name)
            tree.commit()
        finally:
            tree.ended = True


def _locked(
    ledger: Ledger, locks: Locks, levels: Levels, ident: Ident, timeout_seconds: float | None
) -> AbstractContextManager[Held]:
    """The lock of the scope; where it is the ledger's own, the path is read in the same call."""
    path = path_of(levels, ident)
    if isinstance(locks, AdvisoryLocks) and locks is ledger.locks:  # another ledger has other streams
        schemas = [kind.state_schema() for kind in levels[: len(path)]]
        return locks.opening(path, schemas, timeout_seconds=timeout_seconds)
    return locks.exclusive(path, timeout_seconds=timeout_seconds)


def _show(above: Sequence[Row], target: Item) -> bool:
    """Whether a path is there to be seen, and was read whole: the rows above the target, and its state."""
    incarnation = 0
    for _, item, tail in above:
        if not isinstance(item, dict) or tail or item["status"] not in LIVE or item["under"] != incarnation:
            return False
        incarnation = item["incarnation"]
    return target.exists and target.under == incarnation
