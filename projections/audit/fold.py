"""The past of one stream, folded step by step into trees of plain values that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from ledger import BadName, Ledger, Recorded, Stream, split_name
from ledger.domain import canonical_json
from ledger.domain.known import KNOWN
from ledger.domain.state import dump
from ledger.log.read import replay

PAGE: Final = 1000


class Members(list[Any]):
    """The members of a set, in one order: compared as one value, because they have no indexes."""


class Fold:
    """The state of a stream, event by event.

    `tree` is the state of a stream whose class this process has imported (`known`). Of any other stream it is
    the last value of each field in the bodies of its events; bytes of another application are ignored.
    """

    def __init__(self, name: str) -> None:
        self._stream = stream_of(name)
        self.known = self._stream is not None
        self.tree: dict[str, Any] = {} if self._stream is None else tree_of(self._stream.state)

    def apply(self, event: Recorded) -> dict[str, Any]:
        """The tree after one more event; a new one if anything changed."""
        if self._stream is None:
            body = None if event.data is None else canonical_json.parsed(event.data)
            if isinstance(body, dict):
                self.tree = {**self.tree, **body}
            return self.tree
        before = self._stream.state
        replay(self._stream, event.topic, event.event, event.recorded_at, event.position)
        if self._stream.state is not before:
            self.tree = tree_of(self._stream.state)
        return self.tree


def stream_of(name: str) -> Stream[Any, Any] | None:
    """A new stream object of this name; None if no domain of this process declares such a name."""
    category, key = split_name(name)
    try:
        stream = KNOWN.streams[category](*key)
    except (KeyError, BadName, TypeError, ValueError):
        return None
    return stream if stream.name == name else None


def past(ledger: Ledger, stream: str, *, upto: int | None = None) -> Iterator[Recorded]:
    """The events of a stream in order, up to a version. Raises StreamNotFound."""
    after = 0
    while events := ledger.read(stream, after=after, upto=upto, limit=PAGE):
        yield from events
        after = events[-1].version


def tree_of(value: Any) -> Any:
    """The value as dicts, lists and JSON scalars; times in UTC, a set as its Members.

    Fields that are filled when a tree of streams is read are left out: they are other streams.
    """
    match value:
        case Enum():
            return tree_of(value.value)
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case Mapping():
            return {str(key): tree_of(item) for key, item in value.items()}
        case list() | tuple():
            return [tree_of(item) for item in value]
        case set() | frozenset():
            return Members(sorted((tree_of(item) for item in value), key=canonical_json.body))
        case _ if is_dataclass(value):
            kept = (field for field in fields(value) if "tree" not in field.metadata)
            return {field.name: tree_of(getattr(value, field.name)) for field in kept}
        case _:
            return json.loads(dump(value))
