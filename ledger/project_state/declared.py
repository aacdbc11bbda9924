"""
What a level of a pipeline must declare, and how levels fit together; what is wrong is said in a sentence.

A level is looked at before anything of it is known to the process, so one that was refused can be declared
again.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet, Sequence
from typing import Any, Final

from ..errors import BadInput, BadName, shown
from ..event import TOPICS
from ..names import checked_topic, stream_name
from .facts import Facts, Status, title_of
from .ident import Ident
from .item import Item, flags_of, totals_of

PARTS: Final = ("CATEGORY", "STATE", "IDENT")
"""What every level declares."""
DATACLASS: Final = "@dataclass(frozen=True, slots=True, kw_only=True)"
WORDS: Final = {field.name for field in dataclasses.fields(Facts)} - {"flags"}
"""The last words of the topics that every level may have."""

_FLAG = re.compile(r"[a-z][a-z0-9_]*\Z")
_WORD = re.compile(r"\w+")
_MUTABLE = (MutableMapping, MutableSequence, MutableSet)
_CHANGEABLE = {
    "list",
    "dict",
    "set",
    "bytearray",
    "List",
    "Dict",
    "Set",
    "defaultdict",
    "deque",
    "Counter",
} | {kind.__name__ for kind in _MUTABLE}
_INSTANCE = {"key", "name", "version", "state", "news", "tree"}
_HOUSE = {f"{__package__}.open_item", f"{__package__}.branch", "ledger.stream"}

Level = Any
"""A class of an open item; typed loosely, because it may not be one."""


def check_level(kind: Level) -> None:
    """Refuse a level that is declared wrongly. A class that declares no part of a level is none yet.

    Raises TypeError, which names the class.
    """
    if any(part in vars(kind) for part in PARTS):
        for find in (_wrong_parts, _wrong_ids, _wrong_fields, _wrong_flags, _wrong_children, _wrong_titles):
            for wrong in find(kind):
                raise TypeError(f"{kind.__qualname__}: {wrong}")


def _wrong_parts(kind: Level) -> Iterator[str]:
    said = vars(kind) if "CATEGORY" not in vars(kind) else {part: getattr(kind, part, None) for part in PARTS}
    missing = [part for part in PARTS if said.get(part) is None]
    if missing:
        yield (
            f"it declares no {' and no '.join(missing)}; a level declares all three in one class: "
            "CATEGORY, STATE, IDENT = 'assay.well', WellView, WellId"
        )
    try:
        checked_topic(kind.CATEGORY), stream_name(kind.CATEGORY)
    except BadName:
        yield f"CATEGORY {shown(kind.CATEGORY)} must be lower-case words joined by dots, such as 'assay.well'"
    for part, wanted, how in (("STATE", Item, DATACLASS), ("IDENT", Ident, "@dataclass(frozen=True)")):
        given = getattr(kind, part)
        if not (isinstance(given, type) and issubclass(given, wanted)):
            yield f"{part} {shown(given)} must be a class that extends {wanted.__name__}"
        elif "__dataclass_fields__" not in vars(given):
            yield f"{part} {given.__name__} needs {how} above its class"


def _wrong_ids(kind: Level) -> Iterator[str]:
    state, ident = kind.STATE, kind.IDENT
    for field in dataclasses.fields(ident)[1:]:
        if _spelled(field.type) != "int":
            yield f"{field.name} of {ident.__name__} must be an int: all ids are integers, 0 or more"
    for name in ident.fields()[1:] or ident.fields():
        if name not in state.__dataclass_fields__:
            yield f"STATE {state.__name__} has no field {name}, which is in IDENT {ident.__name__}"


def _wrong_fields(kind: Level) -> Iterator[str]:
    state = kind.STATE
    ours = {field.name: field.type for field in dataclasses.fields(Item)}
    taken = _INSTANCE.union(dir(Item), *(dir(base) for base in kind.__mro__ if base.__module__ in _HOUSE))
    for field in dataclasses.fields(state):
        name = field.name
        if name in ours:
            if field.type != ours[name]:
                yield f"{state.__name__} cannot declare {name}, which every item has already"
        elif name in kind.IDENT.fields():
            continue
        elif name in taken or (f"set_{name}" in taken and name in flags_of(state)):
            yield f"a field of {state.__name__} cannot be named {name}, which is a name of every open item"
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            yield f"{name} of {state.__name__} needs a default; only the ids have none"
        elif not ({"clears", "total", "tree"} & field.metadata.keys() or _evolves(kind)):
            how = "make it a flag() or a total(), or give the level a fact and an evolve of its own"
            yield f"{name} of {state.__name__} would be set by no fact: {how}"
    yield from _mutable(state)


def _evolves(kind: Level) -> bool:
    """Whether it applies facts in its own way."""
    shared = [base for base in kind.__mro__ if base.__module__ == f"{__package__}.open_item"]
    return kind.evolve is not shared[0].evolve


def _mutable(state: type[Item]) -> Iterator[str]:
    for field in dataclasses.fields(state):
        if field.default_factory is not dataclasses.MISSING and isinstance(field.default_factory(), _MUTABLE):
            yield f"{field.name} of {state.__name__} starts as what can be changed; use () or FrozenDict()"
        for word in _WORD.findall(_spelled(field.type)):
            if word in _CHANGEABLE:
                yield (
                    f"{field.name} of {state.__name__} holds a {word}, which could be changed without a "
                    "fact; use a tuple, a frozenset or a Mapping"
                )


def _spelled(hint: Any) -> str:
    """A type as it is written: to look up what the words mean would take a good part of the start."""
    return hint if isinstance(hint, str) else hint.__name__ if type(hint) is type else repr(hint)


def _wrong_flags(kind: Level) -> Iterator[str]:
    for name in flags_of(kind.STATE):  # raises TypeError for cascades that cannot be
        if not _FLAG.match(name):
            yield f"flag {name!r} must be lower-case letters, digits and '_', because it names a topic"
        if name in WORDS or name in {*Status}:
            yield f"no flag may be named {name}, which is a fact or a status of every item"
    for name in totals_of(kind.STATE):
        if len(kind.IDENT.fields()) > 1:
            yield f"{name} is a total, but only the project has a plan; move it to the project's state"


def _wrong_children(kind: Level) -> Iterator[str]:
    state = kind.STATE
    names = [field.name for field in dataclasses.fields(state) if "tree" in field.metadata]
    if is_branch(kind) and not names:
        example = "wells: Mapping[int, WellView] = below()"
        yield f"an OpenBranch has children, so STATE {state.__name__} needs a field such as `{example}`"
    if names and not is_branch(kind):
        yield f"STATE {state.__name__} has children ({', '.join(names)}), so it must be an OpenBranch"
    if len(names) > 1:
        yield f"STATE {state.__name__} has children of several kinds ({', '.join(names)}); a level has one"


def is_branch(kind: Level) -> bool:
    """Whether a level has another one below it."""
    return hasattr(kind, "children")


def _wrong_titles(kind: Level) -> Iterator[str]:
    """What its facts would be called must be free: their topics everywhere, their classes in its module."""
    root = len(kind.IDENT.fields()) == 1
    names = [*(WORDS if root else WORDS - {"planned"}), *flags_of(kind.STATE)]
    for name in names:
        if (topic := f"{kind.CATEGORY}.{name}") in TOPICS:
            owner = TOPICS[topic].__qualname__
            again = TOPICS[topic].__module__ == kind.__module__
            hint = "a level is declared once in a process" if again else "choose another CATEGORY"
            yield f"the topic {topic!r} is that of {owner} already; {hint}"
        if hasattr(sys.modules[kind.__module__], title := title_of(kind.CATEGORY, name)):
            yield f"the class of the fact {topic!r} is called {title}, but {kind.__module__} has one already"


def check_levels(levels: Sequence[Level]) -> None:
    """Refuse levels that are no pipeline. Raises BadInput."""
    for wrong in _wrong_levels(levels):
        raise BadInput(wrong)


def _wrong_levels(levels: Sequence[Level]) -> Iterator[str]:
    if not (_is_sequence(levels) and levels):
        yield "the levels of a pipeline are a sequence of the classes of open items, the project's first"
    for kind in levels:
        if not hasattr(kind, "FACTS"):
            yield f"{shown(kind)} is no level; levels are the classes of open items, such as LSMStripState"
    above: tuple[str, ...] = ()
    for kind, upper in zip(levels, [Ident, *(kind.IDENT for kind in levels)], strict=False):
        ids = kind.IDENT.fields()
        if ids[:-1] != above or not issubclass(kind.IDENT, upper):
            wanted = f"{upper.__name__} and one id more" if above else "project_name alone"
            yield (
                f"{kind.__qualname__} is out of order: levels go from the project down, so here IDENT must "
                f"have {wanted}; {kind.IDENT.__name__} has {', '.join(ids)}"
            )
        above = ids
    for kind, lower in zip(levels, [*levels[1:], None], strict=True):
        yield from _wrong_neighbours(kind, lower)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _wrong_neighbours(kind: Level, lower: Level | None) -> Iterator[str]:
    """What a level holds, and what there is below it."""
    if lower is None and is_branch(kind):
        yield f"{kind.__qualname__} has children, but no level follows it"
    if lower is not None and not is_branch(kind):
        yield f"{kind.__qualname__} is no OpenBranch, but {lower.__qualname__} follows it"
    if lower is not None:
        (field,) = (field for field in dataclasses.fields(kind.STATE) if "tree" in field.metadata)
        held = _WORD.findall(_spelled(field.type))[-1]
        if held not in {"Any", *(base.__name__ for base in lower.STATE.__mro__)}:
            yield (
                f"{field.name} of {kind.STATE.__name__} holds {held}, but the level below shows "
                f"{lower.STATE.__name__}"
            )
