"""Differences: what changed between two moments of a stream, field by field, and which events changed it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ledger import Ledger, Recorded

from .fold import Fold, Members, past
from .moments import NOW, AsOf, Moment, as_of

Path = tuple[str | int, ...]
"""The path of a value in a tree: keys of dicts, indexes of lists."""


class Absent:
    """There is no value, not even None."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


class Change(NamedTuple):
    """One field that changed; ABSENT if there is no value."""

    path: Path
    old: Any
    new: Any


class Step(NamedTuple):
    """What one event changed."""

    event: Recorded
    changes: Sequence[Change]


class Difference(NamedTuple):
    """One field that differs between two moments, and the last event in between that changed it."""

    path: Path
    old: Any
    new: Any
    event: Recorded


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in a stream between two moments.

    before, after: the moments, resolved; `after` may be the earlier one. fields: in the order of the state.
    steps: each event in between, in the order of the log, with all that it changed. known: whether the class
    of the stream folded it; if not, the fields are those of the events' bodies, as last recorded.
    """

    stream: str
    before: AsOf
    after: AsOf
    fields: Sequence[Difference]
    steps: Sequence[Step]
    known: bool


def diff(ledger: Ledger, stream: str, before: Moment, after: Moment = NOW) -> Differences:
    """What differs in a stream between two moments. Raises StreamNotFound, BadInput."""
    one, other = as_of(ledger, before, stream=stream), as_of(ledger, after, stream=stream)
    low, high = sorted((one.version or 0, other.version or 0))
    fold = Fold(stream)
    trees = {0: fold.tree}
    steps = []
    for event in past(ledger, stream, upto=high):
        was, now = fold.tree, fold.apply(event)
        if event.version in (low, high):
            trees[event.version] = now
        if event.version > low and (changed := changes(was, now)):
            steps.append(Step(event, changed))
    found = changes(trees[one.version or 0], trees[other.version or 0])
    return Differences(stream, one, other, _attributed(found, steps), steps, fold.known)


def changes(old: Any, new: Any, path: Path = ()) -> list[Change]:
    """The changes from one tree to the other: the smallest different parts, in the order of the new tree."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        gone = [key for key in old if key not in new]
        pairs = [(key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in (*new, *gone)]
    elif _is_list(old) and _is_list(new):
        pairs = [(i, _at(old, i), _at(new, i)) for i in range(max(len(old), len(new)))]
    else:
        return [] if same(old, new) else [Change(path, old, new)]
    return [change for key, was, now in pairs for change in changes(was, now, (*path, key))]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal with equal types at every level: 1 is neither true nor 1.0 here."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict | list):
        return not changes(one, other) if not isinstance(one, Members) else _texts(one) == _texts(other)
    return bool(one == other or (one != one and other != other))


def path_text(path: Path) -> str:
    """The path as text: `a.b[2]`; a key that is not a plain word as `a["the key"]`."""
    parts = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN.match(key):
            parts.append(f".{key}" if parts else key)
        else:
            parts.append(f"[{json.dumps(key, ensure_ascii=False)}]")
    return "".join(parts)


def _attributed(found: Sequence[Change], steps: Sequence[Step]) -> list[Difference]:
    """Each change with the last event that changed this field, searched from the last event backwards."""
    pending = {change.path: change for change in found}
    by: dict[Path, Recorded] = {}
    for event, changed in reversed(steps):
        for change in changed:
            for path in [path for path in pending if _touches(change, path)]:
                by[path] = event
                del pending[path]
        if not pending:
            break
    return [Difference(*change, by[change.path]) for change in found]


def _touches(change: Change, path: Path) -> bool:
    """Whether the change of one field changed another, which is above, below or the same."""
    if change.path[: len(path)] == path:
        return True
    depth = len(change.path)
    if path[:depth] != change.path:
        return False
    return not same(_value_at(change.old, path[depth:]), _value_at(change.new, path[depth:]))


def _value_at(tree: Any, path: Path) -> Any:
    for key in path:
        if isinstance(tree, Mapping):
            tree = tree.get(key, ABSENT)
        elif _is_list(tree) and isinstance(key, int):
            tree = _at(tree, key)
        else:
            return ABSENT
    return tree


def _at(items: Sequence[Any], place: int) -> Any:
    return items[place] if place < len(items) else ABSENT


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, Members)


def _texts(members: Members) -> list[str]:
    return [json.dumps(member, sort_keys=True) for member in members]
