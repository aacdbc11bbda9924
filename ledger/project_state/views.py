"""
The views of a tree, built straight from the states of its streams: nothing is opened that is only looked at.

An item shows if it exists, and was created under the present life of its parent, and the parent shows. So a
deleted item hides what is below it, also what another process created there before it saw the deletion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..frozen import FrozenDict
from ..names import stream_name
from ..store import reading
from .ident import Ident
from .item import children_name

if TYPE_CHECKING:
    from ..store.ledger import Ledger
    from .open_item import OpenItem

Levels = Sequence["type[OpenItem[Any]]"]
"""The levels of a pipeline, the project first."""
Views = dict[str, Any]
"""Views of one level, by what follows the category in the names of their streams."""


def view_of(ledger: Ledger, levels: Levels, ident: Ident, upto: int | None = None) -> Any:
    """The view of the item and all below it, of one snapshot; None where there is none.

    upto: as of this position, which must be safe to read.
    """
    depth = len(ident.key)
    path = [*zip(path_of(levels, ident), levels, strict=False)]
    below = [(stream_name(kind.CATEGORY, *ident.key) + "/", kind) for kind in levels[depth:]]
    with ledger.reader() as connection:
        found = reading.states(connection, ledger.schema, [*path, *below], upto)
    shown: list[Views] = []
    for kind in levels:
        root = len(kind.CATEGORY) + 1
        states = {name[root:]: state for name, _, state in found[kind]}
        shown.append(_shown(states, shown[-1] if shown else None))
    target = shown[depth - 1]
    for kind, views, children in reversed([*zip(levels, shown, shown[1:], strict=False)][depth - 1 :]):
        _hang(kind, views, children)
    return next(iter(target.values()), None)


def path_of(levels: Levels, ident: Ident) -> list[str]:
    """The names of the streams from the project's down to the item's."""
    key = ident.key
    return [kind.name_of(*key[:depth]) for depth, kind in enumerate(levels[: len(key)], 1)]


def _shown(states: Views, above: Views | None) -> Views:
    """Those of the states that show, below the views that do."""
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
    """Give the views, which nobody else has seen yet, their children."""
    families: dict[str, dict[int, Any]] = {rest: {} for rest in views}
    for rest, child in children.items():
        parent, _, child_id = rest.rpartition("/")
        families[parent][int(child_id)] = child
    field = children_name(kind.STATE)
    for rest, family in families.items():
        if field is not None and family:
            object.__setattr__(views[rest], field, FrozenDict(dict(sorted(family.items()))))
