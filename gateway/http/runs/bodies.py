"""Bodies of requests: lenient in what is unknown, strict in what is known, read in one pass by msgspec."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ledger.runs.kinds import kind_of

from .refusals import Unfit

T = TypeVar("T")
Given: TypeAlias = T | UnsetType
"""A field that a client may leave out; then it is not in `given`."""


class Body(msgspec.Struct, kw_only=True):
    """A body whose unknown members are ignored, as Prefect's server does."""


def given(body: Body) -> dict[str, Any]:
    """The members that the client sent, by name."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """Marks a body as fields of a kind of records: `Annotated[dict[str, Any], FieldsOf("flow")]`."""

    kind: str


class Reader:
    """Reads bodies of one type. An empty body is an empty object."""

    def __init__(self, kind: Any) -> None:
        marks = [one for one in get_args(kind) if isinstance(one, FieldsOf)]
        self._fields = kind_of(marks[0].kind) if marks else None
        self._kind = dict[str, Any] if marks else kind
        self._decode = msgspec.json.Decoder(self._kind).decode

    def __call__(self, raw: bytes) -> Any:
        """The body, without fields that a record of its kind does not have. Raises Unfit."""
        found = self._read(raw)
        return found if self._fields is None else self._fields.known(found)

    def _read(self, raw: bytes) -> Any:
        try:
            return self._decode(raw or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of it is ValidationError, too
            return self._loosely(raw)

    def _loosely(self, raw: bytes) -> Any:
        """JSON with NaN and infinite numbers, which become null (spec S3-03), and with members that are null,
        which clients send for what they do not say: where null does not fit, they count as left out."""
        try:
            found = json.loads(raw, parse_constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"the body is no JSON: {error}") from error
        try:
            return self._converted(found)
        except Unfit:
            if not isinstance(found, dict) or None not in found.values():
                raise
            return self._converted({name: value for name, value in found.items() if value is not None})

    def _converted(self, found: Any) -> Any:
        try:
            return msgspec.convert(found, self._kind)
        except msgspec.ValidationError as error:
            raise _unfit(error) from error


def _unfit(error: msgspec.ValidationError) -> Unfit:
    what, _, where = str(error).partition(" - at `$")
    names = [name for name in where.rstrip("`").replace("[", ".[").split(".") if name]
    return Unfit(what, ("body", *names))
