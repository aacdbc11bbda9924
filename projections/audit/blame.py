"""Blame: who last set each field of a stream's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledger import Ledger, Recorded

from .differences import Path, changes
from .fold import Fold, Members, past
from .moments import NOW, AsOf, Moment, as_of


class Line(NamedTuple):
    """One field of a state, its value, and the last event that changed it; None if no event did."""

    path: Path
    value: Any
    event: Recorded | None


@dataclass(frozen=True, slots=True)
class Blame:
    """Every field of a stream's state at a moment; `known` as in Differences."""

    stream: str
    as_of: AsOf
    lines: Sequence[Line]
    known: bool


def blame(ledger: Ledger, stream: str, moment: Moment = NOW) -> Blame:
    """Who last set each field of a stream's state at a moment. Raises StreamNotFound, BadInput."""
    found = as_of(ledger, moment, stream=stream)
    fold = Fold(stream)
    seen = _Seen()
    for event in past(ledger, stream, upto=found.version):
        was = fold.tree
        seen.see(event, [change.path for change in changes(was, fold.apply(event))])
    lines = [Line(path, value, seen.last(path)) for path, value in leaves(fold.tree) if path]
    return Blame(stream, found, lines, fold.known)


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a tree, with their paths; an empty dict or list is a leaf."""
    if isinstance(tree, Mapping) and tree:
        for key, item in tree.items():
            yield from leaves(item, (*path, key))
    elif isinstance(tree, list) and tree and not isinstance(tree, Members):
        for place, item in enumerate(tree):
            yield from leaves(item, (*path, place))
    else:
        yield path, tree


class _Seen:
    """The last event that changed something at a path (`at`), and at it or below it (`within`).

    The last event that changed a value is the last one that changed it, something in it, or added the dict or
    list that contains it.
    """

    def __init__(self) -> None:
        self._at: dict[Path, Recorded] = {}
        self._within: dict[Path, Recorded] = {}

    def see(self, event: Recorded, paths: Sequence[Path]) -> None:
        for path in paths:
            self._at[path] = event
            for depth in range(1, len(path) + 1):
                self._within[path[:depth]] = event

    def last(self, path: Path) -> Recorded | None:
        above = (self._at.get(path[:depth]) for depth in range(1, len(path)))
        found = [event for event in (self._within.get(path), *above) if event is not None]
        return max(found, key=lambda event: event.version, default=None)
