"""
The idents of items: frozen, validated ids; each level extends the one above it (spec 1.3, 1.4).

`str(ident)` is also the name of a run, and can be parsed from one (spec S0-73):

    process-mosaic-project_name='brain_7' slice_id=1 mosaic_id=4
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Final, Self, TypeVar

from ..domain.names import checked_id, project_key, stream_name
from ..errors import BadInput, shown


@dataclass(frozen=True)
class Ident:
    """A project's name, and the ids on the path down to an item.

    Raises BadName for a name that is empty or that PostgreSQL cannot store, and for an id that is not an
    integer of 0 or more.
    """

    project_name: str

    def __post_init__(self) -> None:
        try:
            self.key  # noqa: B018 - checked when it is made, and remembered
        except TypeError as error:  # an invalid part may not be hashable either
            if not isinstance(error, BadInput):
                self.key_of([getattr(self, name) for name in self.fields()])
            raise

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)!r}" for name in self.fields())

    @cached_property
    def key(self) -> tuple[str | int, ...]:
        """The parts of the stream's name; all spellings of one project have the same key."""
        kind: Any = type(self)  # the type checker does not treat every class as hashable
        return _key(kind, *[getattr(self, name) for name in self.fields()])

    @classmethod
    @cache
    def fields(cls) -> tuple[str, ...]:
        """The names of the parts, from the project down."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def key_of(cls, parts: Sequence[str | int]) -> tuple[str | int, ...]:
        """The key of the item with these parts, checked."""
        names = cls.fields()
        if len(parts) != len(names):
            raise BadInput(f"a {cls.__name__} has {', '.join(names)}; {len(parts)} parts were given")
        ids = [checked_id(name, part) for name, part in zip(names[1:], parts[1:], strict=True)]  # type: ignore[arg-type]
        return (project_key(parts[0]), *ids)  # type: ignore[arg-type]

    @classmethod
    def of(cls, given: Ident | str, ids: Mapping[str, int | None]) -> Self:
        """The ident from arguments: an ident of this level or below it, or a project's name and ids."""
        ids = {name: value for name, value in ids.items() if value is not None}
        if isinstance(given, Ident):
            if not isinstance(given, cls):
                raise BadInput(f"{given} is a {type(given).__name__}; a {cls.__name__} is needed here")
            if ids:
                raise BadInput(
                    f"{given} is a whole ident: give an ident, or a project's name with ids, not both"
                )
            return given if type(given) is cls else cls(*(getattr(given, name) for name in cls.fields()))
        if missing := [name for name in cls.fields()[1:] if name not in ids]:
            raise BadInput(
                f"{' and '.join(missing)} must be given: a {cls.__name__} has {', '.join(cls.fields())}"
            )
        return cls(given, **ids)


@lru_cache(maxsize=20_000, typed=True)
def _key(kind: Any, *parts: str | int) -> tuple[str | int, ...]:
    """The key of an ident, which must fit into a stream's name; cached, because workers make many."""
    key: tuple[str | int, ...] = kind.key_of(parts)
    stream_name("project", *key)
    return key


# Names of runs: `key=value` tokens between any other text.

K = TypeVar("K", bound=Ident)

_TOKEN: Final = re.compile(
    r"""
    (?<![A-Za-z0-9_]) [0-9]* (?P<key>[A-Za-z_][A-Za-z0-9_]*) =
    (?: '(?P<single>(?:[^'\\]|\\.)*)' | "(?P<double>(?:[^"\\]|\\.)*)"
      | (?P<number>[+-]?[0-9]{1,99}) (?! \w | \.\w ) )     # not the 1 of 1.5 or of 1st
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"""\\(?:(?P<plain>[\\'"])|(?P<named>[nrt])|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"""
    r"""|U(?P<U>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))"""
)
_NAMED: Final = {"n": "\n", "r": "\r", "t": "\t"}


def parse_run_name(text: str) -> dict[str, str | int]:
    """The tokens of a run's name, in order; unknown keys are kept, other text is ignored.

    A value is text in single or double quotes, with the escapes that `repr` writes, or an integer, signed
    or not. If a key occurs twice, the later token counts. Raises BadInput for a value that is not text.
    """
    if not _is_text(text):
        raise BadInput(f"a run's name must be text, not {shown(text)}")
    return {found["key"]: _value(found) for found in _TOKEN.finditer(text)}


def missing_required_fields(fields: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    """The required fields that are missing, in the order of `required`."""
    return [name for name in required if name not in fields]


def ident_of(kind: type[K], given: str | Mapping[str, Any]) -> K:
    """The ident of this kind from a run's name or parsed fields: `ident_of(LSMStripId, flow_run.name)`.

    The inverse of `str(ident)`; other fields are ignored. Raises BadInput, which lists missing fields, and
    BadName for an invalid value: an id in quotes, a name without quotes.
    """
    fields = given if isinstance(given, Mapping) else parse_run_name(given)
    if missing := missing_required_fields(fields, kind.fields()):
        needed = f"{' and '.join(missing)} must be given, such as {_sample(kind)}"
        raise BadInput(f"{shown(given)} does not name a {kind.__name__}: {needed}")
    parts: dict[str, Any] = {name: fields[name] for name in kind.fields()}
    return kind(**parts)


def _value(found: re.Match[str]) -> str | int:
    if found["number"] is not None:
        return int(found["number"])
    quoted = found["single"] if found["single"] is not None else found["double"]
    return _ESCAPE.sub(_unescaped, quoted)


def _unescaped(found: re.Match[str]) -> str:
    """One escape; an invalid escape stays as it is, as in Python."""
    if plain := found["plain"]:
        return plain
    if named := found["named"]:
        return _NAMED[named]
    return chr(int(found["x"] or found["u"] or found["U"], 16))


def _sample(kind: type[Ident]) -> str:
    ids: dict[str, Any] = dict.fromkeys(kind.fields()[1:], 1)
    return str(kind("brain", **ids))


def _is_text(value: object) -> bool:
    return isinstance(value, str)
