"""
Names of runs: `key=value` tokens between any other text, as `str(ident)` writes them (spec S0-73).

    process-mosaic-project_name='brain_7' slice_id=1 mosaic_id=4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from ..errors import BadInput, shown
from .ident import Ident

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
    """The tokens of a run's name, in their order; unknown keys are kept, other text is passed over.

    A value is text in single or double quotes, with the escapes that `repr` writes, or an integer, signed
    or not. Of two tokens with one key the later counts. Raises BadInput for what is no text.
    """
    if not _is_text(text):
        raise BadInput(f"a run's name is text, not {shown(text)}")
    return {found["key"]: _value(found) for found in _TOKEN.finditer(text)}


def missing_required_fields(fields: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    """Those of the required fields that are not there, in the order asked."""
    return [name for name in required if name not in fields]


def ident_of(kind: type[K], given: str | Mapping[str, Any]) -> K:
    """The ident of this kind in a run's name or in parsed fields: `ident_of(LSMStripId, flow_run.name)`.

    The inverse of `str(ident)`; fields that the kind does not have are passed over. Raises BadInput, naming
    them, where fields are missing, and BadName for a value that cannot be: an id in quotes, a name without.
    """
    fields = given if isinstance(given, Mapping) else parse_run_name(given)
    if missing := missing_required_fields(fields, kind.fields()):
        needed = f"{' and '.join(missing)} must be given, such as {_sample(kind)}"
        raise BadInput(f"{shown(given)} names no {kind.__name__}: {needed}")
    parts: dict[str, Any] = {name: fields[name] for name in kind.fields()}
    return kind(**parts)


def _value(found: re.Match[str]) -> str | int:
    if found["number"] is not None:
        return int(found["number"])
    quoted = found["single"] if found["single"] is not None else found["double"]
    return _ESCAPE.sub(_unescaped, quoted)


def _unescaped(found: re.Match[str]) -> str:
    """One escape; what looks like one and is none stays as it is, as it does in Python."""
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
