"""
The checks of a pipeline's declaration; each error is a sentence.

They run before anything of the pipeline is registered, so a refused pipeline can be declared again.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from typing import Any, Final

from ..domain.known import KNOWN
from ..domain.names import stream_name
from ..errors import BadName, shown
from .facts import Facts, Status, title_of
from .item import Item, OpenItem, falling

WORDS: Final = {field.name for field in dataclasses.fields(Facts)} - {"flags"}
"""The last words of the topics that every level may have."""
LONGEST_NAME: Final = 30
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
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


def check(pipeline: Any) -> None:
    """Refuse a pipeline that cannot work. Raises TypeError."""
    for wrong in _wrong(pipeline):
        raise TypeError(wrong)


def _wrong(pipeline: Any) -> Iterator[str]:
    yield from _wrong_name("the name of a pipeline", pipeline.name)
    if isinstance(pipeline.name, str) and len(pipeline.name) > LONGEST_NAME:
        yield f"the name of a pipeline may have at most {LONGEST_NAME} characters, because it names tables"
    if not pipeline.levels:
        yield f"{pipeline.name}: a pipeline needs at least one level, the project's"
    names = [level.name for level in pipeline.levels]
    for level in pipeline.levels:
        yield from _wrong_name(f"{pipeline.name}: the name of a level", level.name)
        yield from _wrong_name(f"{pipeline.name}: the plural of {level.name}", level.plural)
        if names.count(level.name) > 1:
            yield f"{pipeline.name}: two levels are named {level.name}"
    totals = [level.total.name for level in pipeline.levels if level.total]
    for name in totals:
        yield from _wrong_name(f"{pipeline.name}: the total", name)
        if totals.count(name) > 1:
            yield f"{pipeline.name}: two levels have the total {name}; give each its own"
    for depth, level in enumerate(pipeline.levels):
        for find in (_wrong_own, _wrong_place, _wrong_flags, _wrong_fields, _wrong_topics):
            for wrong in find(pipeline, depth, level):
                yield f"{pipeline.name}.{level.name}: {wrong}"


def _wrong_name(what: str, name: Any) -> Iterator[str]:
    try:
        if not isinstance(name, str) or not _NAME.match(name):
            wanted = "lower-case letters, digits and '_', because it names streams"
            yield f"{what}, {shown(name)}, must be {wanted}"
        else:
            stream_name(name)
    except BadName as wrong:
        yield f"{what}: {wrong}"


def _wrong_place(pipeline: Any, depth: int, level: Any) -> Iterator[str]:
    """Report what is allowed only at another place in the tree."""
    if depth == 0 and (level.total or level.parent_of or level.default is not None):
        yield "the project has nothing above it, so it has no total, no default and no parent_of"
    if level.parent_of is not None and (depth != 2 or level.total is None):
        yield "only the second level below the project can have parent_of, and it needs a total"
    if depth + 1 == len(pipeline.levels):
        if level.ready or level.every:
            yield "it is the last level, so it has no children that could be ready or counted"
        return
    below = pipeline.levels[depth + 1]
    if level.ready and below.total is None:
        yield f"it is ready when all its {below.plural} are; give the level {below.name} a total"
    qualities = {"finished", "succeeded", *(flag.name for flag in below.flags)}
    wanted = [level.ready.flag] if level.ready and level.ready.flag else []
    for quality in [*wanted, *(every.quality for every in level.every)]:
        if quality not in qualities:
            yield f"a {below.name} has no quality {shown(quality)}: it has {', '.join(sorted(qualities))}"


def _wrong_flags(pipeline: Any, depth: int, level: Any) -> Iterator[str]:
    direct = {}
    for flag in level.flags:
        if not isinstance(flag.name, str) or not _NAME.match(flag.name):
            yield f"flag {flag.name!r} must be lower-case letters, digits and '_', because it names a topic"
        if flag.name in WORDS or flag.name in {*Status}:
            yield f"a flag cannot be named {flag.name}, because every item has a fact or status of that name"
        if flag.name in direct:
            yield f"two flags are named {flag.name}"
        if not isinstance(flag.clears, tuple):
            yield f"clears takes a tuple of names, such as clears=('uploaded',), not {flag.clears!r}"
            return
        direct[flag.name] = flag.clears
    for name in direct:
        falling(name, direct)


def _wrong_fields(pipeline: Any, depth: int, level: Any) -> Iterator[str]:
    ids = [above.id for above in pipeline.levels[1 : depth + 1]] or ["project_name"]
    named = [flag.name for flag in level.flags]
    named += [below.plural for below in pipeline.levels[depth + 1 : depth + 2]]
    named += [other.total.name for other in pipeline.levels if other.total] if depth == 0 else []
    methods = [every.name for every in level.every]
    flags = [flag.name for flag in level.flags]
    ours = {field.name for field in dataclasses.fields(Item)}
    own = {field.name for field in dataclasses.fields(level.state)} - ours
    taken = _INSTANCE.union(dir(Item), dir(OpenItem), {*dir(level.base)} - own, ids, methods)
    for name in [*named, *own]:
        if name in ours:
            yield f"it cannot declare {name}: every item has that already"
        elif name in taken or (f"set_{name}" in taken and name in flags):
            yield f"a field cannot be named {name}: every open item has that name already"
        if named.count(name) > 1 or (name in named and name in own):
            yield f"two of its fields are named {name}"


def _wrong_own(pipeline: Any, depth: int, level: Any) -> Iterator[str]:
    """Report what is wrong with the classes that the view and the open item extend."""
    for part, given, wanted in (("state", level.state, Item), ("base", level.base, OpenItem)):
        if not (isinstance(given, type) and issubclass(given, wanted)):
            yield f"{part} {shown(given)} must be a class that extends {wanted.__name__}"
            return
    if "__dataclass_fields__" not in vars(level.state):
        how = "@dataclass(frozen=True, slots=True, kw_only=True)"
        yield f"state {level.state.__name__} needs {how} above its class"
    ours = {field.name: field.type for field in dataclasses.fields(Item)}
    for field in dataclasses.fields(level.state):
        if field.name in ours:
            if field.type != ours[field.name]:
                yield f"{level.state.__name__} cannot declare {field.name}: every item has that already"
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            yield f"{field.name} of {level.state.__name__} needs a default; only the ids have none"
        elif level.base.evolve is OpenItem.evolve:
            how = "make it a Flag or a Total, or give the level a fact and a base with its own evolve"
            yield f"no fact would set {field.name} of {level.state.__name__}: {how}"
    yield from _mutable(level.state)


def _mutable(state: type[Item]) -> Iterator[str]:
    for field in dataclasses.fields(state):
        if field.default_factory is not dataclasses.MISSING and isinstance(field.default_factory(), _MUTABLE):
            yield f"the default of {field.name} of {state.__name__} is mutable; use () or FrozenDict()"
        for word in _WORD.findall(_spelled(field.type)):
            if word in _CHANGEABLE:
                yield (
                    f"{field.name} of {state.__name__} holds a {word}, which can be changed without a "
                    "fact; use a tuple, a frozenset or a Mapping"
                )


def _spelled(hint: Any) -> str:
    """A type as its annotation is written; resolving annotations would take much of the start-up time."""
    return hint if isinstance(hint, str) else hint.__name__ if type(hint) is type else repr(hint)


def _wrong_topics(pipeline: Any, depth: int, level: Any) -> Iterator[str]:
    """Report taken names: of topics in any pipeline, of fact classes in this pipeline's module."""
    category = f"{pipeline.name}.{level.name}"
    for name in [*(WORDS - {"planned"} if depth else WORDS), *(flag.name for flag in level.flags)]:
        if (topic := f"{category}.{name}") in KNOWN.events:
            owner = KNOWN.events[topic].__qualname__
            again = KNOWN.events[topic].__module__ == pipeline.module
            hint = "a pipeline is declared once in a process" if again else "choose another name"
            yield f"the topic {topic!r} belongs to {owner} already; {hint}"
        if hasattr(sys.modules[pipeline.module], title := title_of(category, name)):
            yield f"the fact {topic!r} needs a class {title}, but {pipeline.module} has that name already"
