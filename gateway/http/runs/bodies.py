"""Bodies of requests: lenient in what is unknown, strict in what is known, read in one pass by msgspec."""

from __future__ import annotations

import json
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from .refusals import Unfit

T = TypeVar("T")
Given: TypeAlias = T | UnsetType
"""A field that a client may leave out; then it is not in `given`."""


class Body(msgspec.Struct, kw_only=True):
    """A body whose unknown members are ignored, as Prefect's server does."""


def given(body: Body) -> dict[str, Any]:
    """The members that the client sent, by name."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}


class Reader:
    """Reads bodies of one type. An empty body is an empty object."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._decode = kind, msgspec.json.Decoder(kind).decode

    def __call__(self, raw: bytes) -> Any:
        """The body. Raises Unfit."""
        try:
            return self._decode(raw or b"{}")
        except msgspec.ValidationError as error:
            raise _unfit(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._loosely(raw)

    def _loosely(self, raw: bytes) -> Any:
        """JSON with NaN and infinite numbers, which become null (spec S3-03)."""
        try:
            found = json.loads(raw, parse_constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"the body is no JSON: {error}") from error
        try:
            return msgspec.convert(found, self._kind)
        except msgspec.ValidationError as error:
            raise _unfit(error) from error


def _unfit(error: msgspec.ValidationError) -> Unfit:
    what, _, where = str(error).partition(" - at `$")
    names = [name for name in where.rstrip("`").replace("[", ".[").split(".") if name]
    return Unfit(what, ("body", *names))
