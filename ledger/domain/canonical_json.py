"""
The canonical form: one JSON text for one value, which PostgreSQL's JSONB keeps unchanged.

Keys are sorted; there is no white space and no needless escape. A float is the shortest decimal text that
reads back to it, always with a point, never with a positive exponent (JSONB would return 1e16 as an integer).
What JSONB would change or cannot hold is refused before anything is sent: NaN, infinities, -0.0, NUL, lone
surrogates, deeper nesting than MAX_DEPTH, more bytes than MAX_BYTES, integers beyond 4300 digits. The text is
that of the standard library, which is written in C; msgspec would write NaN as null, and 1e16 as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from hashlib import sha256
from math import copysign, isfinite
from typing import Any, Final

from ..errors import BadBody
from .frozen import FrozenDict, items_of

MAX_DEPTH: Final = 200
"""Deepest nesting of a body; PostgreSQL and other readers parse this without a deep stack."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest body in bytes of UTF-8. Larger results belong in a file that the event names."""

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=items_of
).encode
_LEAVES = frozenset({str, int, float, bool, type(None)})
# What the fast encoder may have written differently. It is harmless inside a string; the walk decides.
_SUSPECT = re.compile(r"\\u0000|-0\.0(?![0-9])|[0-9]e\+")


def body(value: Any, plain: Callable[[Any], Any] | None = None) -> str:
    """The canonical JSON text of `value` (mapping, list, str, int, float, bool, None). Raises BadBody.

    plain: makes such a value of one with other types in it; called only where there are some.
    """
    try:
        text = _sized(_ENCODE(value))
        if not _is_suspect(text) and _regular(value, 1):
            return text
    except BadBody:
        raise
    except (ValueError, TypeError, RecursionError):
        pass
    if plain is not None:
        return body(plain(value))
    # The slow way finds the place of an error, and accepts types that json does not support.
    return _sized("".join(_walk(value, "", 1)))


def _is_suspect(text: str) -> bool:
    """Whether _SUSPECT is in it; nearly always a plain search, which takes a tenth of the time, says no."""
    return ("-0.0" in text or "e+" in text or "\\u0000" in text) and _SUSPECT.search(text) is not None


def _sized(text: str) -> str:
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_BYTES:
        raise BadBody(
            f"the body has {size} bytes, more than {MAX_BYTES}; "
            "keep large results in a file and record its name"
        )
    return text


def _regular(value: Any, depth: int) -> bool:
    """Whether every key is text and nothing is nested too deep; the fast encoder does not check that."""
    if type(value) is FrozenDict:
        value = items_of(value)
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str and not isinstance(key, str):
                return False
        items: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:
        return True
    if depth > MAX_DEPTH:
        return False
    for item in items:  # noqa: SIM110 - `all` with a generator takes three times as long
        if type(item) not in _LEAVES and not _regular(item, depth + 1):
            return False
    return True


def parsed(text: str | bytes) -> Any:
    """The value of JSON text that the ledger holds; never fails.

    JSONB can hold more than Python can read: a value that is nested deeper than MAX_DEPTH, or has an integer
    of more than 4300 digits, is returned as text.
    """
    plain = text if isinstance(text, str) else text.decode(errors="replace")
    try:
        value = json.loads(plain)
    except (ValueError, RecursionError):
        return plain
    may_be_deep = plain.count("[") + plain.count("{") > MAX_DEPTH
    return plain if may_be_deep and not _is_shallow(value, 1) else value


def _is_shallow(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    items = value.values() if isinstance(value, dict) else value
    return depth <= MAX_DEPTH and all(_is_shallow(item, depth + 1) for item in items)


def digest(*parts: str | bytes | int | None) -> bytes:
    """SHA-256 over parts, each with its length and kind, so that no two lists of parts share one."""
    state = sha256()
    for part in parts:
        kind, raw = _kind(part)
        state.update(b"%c%d:" % (kind, len(raw)) + raw)
    return state.digest()


def _kind(part: str | bytes | int | None) -> tuple[int, bytes]:
    match part:
        case None:
            return ord("n"), b""
        case bytes():
            return ord("b"), part
        case str():
            return ord("s"), part.encode()
        case int():
            return ord("i"), str(part).encode()


def _walk(value: Any, path: str, depth: int) -> Iterator[str]:
    match value:
        case None | True | False:
            yield _ENCODE(value)
        case str():
            yield _text(value, path)
        case int():
            yield _integer(value, path)
        case float():
            yield number(value, path)
        case Mapping() | list() | tuple() if depth > MAX_DEPTH:
            raise BadBody(f"nested deeper than {MAX_DEPTH} levels", path)
        case Mapping():
            yield from _mapping(value, path, depth)
        case list() | tuple():
            yield "["
            for i, item in enumerate(value):
                yield "," if i else ""
                yield from _walk(item, f"{path}[{i}]", depth + 1)
            yield "]"
        case _:
            raise BadBody(f"{type(value).__name__} is not JSON", path)


def _mapping(value: Mapping[Any, Any], path: str, depth: int) -> Iterator[str]:
    for key in value:
        if not isinstance(key, str):
            raise BadBody(f"a key is {type(key).__name__}, not text, and would be read back as text", path)
    yield "{"
    for i, (key, item) in enumerate(sorted(value.items())):
        yield "," if i else ""
        yield _text(key, path) + ":"
        yield from _walk(item, f"{path}.{key}" if path else key, depth + 1)
    yield "}"


def _text(value: str, path: str) -> str:
    if "\x00" in value:
        raise BadBody("contains NUL, which PostgreSQL cannot store", path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadBody("contains a lone surrogate, which is not text", path) from None
    return _ENCODE(value)


def _integer(value: int, path: str) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        raise BadBody("integer of more than 4300 digits", path) from None


def number(value: float, path: str = "") -> str:
    """The decimal text of a float that JSONB keeps a float. Raises BadBody for NaN, infinities and -0.0."""
    if not isfinite(value):
        raise BadBody(f"{value} is not a number that JSON can hold; use null or a text", path)
    if value == 0 and copysign(1, value) < 0:
        raise BadBody("-0.0 would be stored as 0.0; record 0.0", path)
    text = float.__repr__(value)
    if "e+" not in text:
        return text
    return f"{Decimal(text):f}.0"
