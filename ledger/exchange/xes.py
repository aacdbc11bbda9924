"""XES (IEEE 1849) as this ledger keeps it: what is recorded of a log, its traces and its events.

An attribute is a list: type, key, value as the file writes it, and the attributes in it, where there are any.
Values stay text, so that NaN, 007 and the offset of a time come out as they went in.

    incident.log/volvo      incident.log.began      the log's own attributes, extensions, globals, classifiers
                            incident.log.ended      how many traces and events it had
    incident/1-364285768    incident.trace          the attributes of the trace, its log, its number there
                            incident.recorded       an event: its attributes, and its `state`
                            incident.recorded       …
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from .. import canon
from ..errors import BadInput
from ..names import checked_topic, stream_name
from .arriving import Arrival

TYPES: Final = frozenset({"string", "date", "int", "float", "boolean", "id", "list", "container", "values"})
"""The elements that are attributes; `values` holds the items of a list and has neither key nor value."""
DECLARATIONS: Final = frozenset({"extension", "global", "classifier"})
NAME: Final = "concept:name"
TIME: Final = "time:timestamp"
RESOURCE: Final = "org:resource"
UNNAMED: Final = "unnamed"
Attribute = list[Any]

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_CHECKS: Final = {
    "int": (re.compile(r"\s*[+-]?\d+\s*\Z"), "a whole number, such as 42"),
    "float": (
        re.compile(r"\s*([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]?INF|[+-]?Infinity)\s*\Z"),
        "a number, such as 7.5",
    ),
    "boolean": (re.compile(r"\s*(true|false|1|0)\s*\Z", re.IGNORECASE), "true or false"),
}
ANY_TEXT: Final = TYPES - {*_CHECKS, "date"}
"""Types whose values are not looked at."""


class Topics(NamedTuple):
    """The topics of a category."""

    began: str
    ended: str
    trace: str
    recorded: str

    @classmethod
    def of(cls, category: str) -> Topics:
        """Those of this category; `-`, which no topic has, becomes `_`. Raises BadName."""
        stream_name(category, "x")
        root = checked_topic(category.replace("-", "_"))
        return cls(f"{root}.log.began", f"{root}.log.ended", f"{root}.trace", f"{root}.recorded")


def attribute(kind: str, pairs: Sequence[str]) -> Attribute:
    """An attribute, of what its element says: names and values. Raises BadInput where it is none."""
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if further := given.keys() - {"key", "value"}:
        raise BadInput(f"<{kind}> has {min(further)!r}: an attribute has a key and a value, and nothing else")
    if "key" not in given and kind != "values":
        raise BadInput(f"<{kind}> has no key")
    key, value = given.get("key"), given.get("value")
    if kind not in ANY_TEXT:
        _check_value(kind, key, value)
    return [kind, key, value]


def _check_value(kind: str, key: str | None, value: str | None) -> None:
    if value is None:
        raise BadInput(f"the {kind} {key!r} has no value")
    if kind == "date":
        try:
            datetime.fromisoformat(value.strip())
        except ValueError:
            right = "it must be as 2030-01-31T14:00:00+01:00"
            raise BadInput(f"the date {key!r} is {value[:60]!r}; {right}") from None
        return
    pattern, right = _CHECKS[kind]
    if not pattern.match(value):
        raise BadInput(f"the {kind} {key!r} is {value[:60]!r}; it must be {right}")


def body_of(fields: dict[str, Any]) -> str:
    """The canonical text of a body of XES. Raises BadBody where it is too large.

    All its leaves are texts of an XML file and whole numbers, which have no NUL, surrogate or float, so the
    plain encoder writes what `canon.body` would write, in a third of the time.
    """
    text = _ENCODE(fields)
    if len(text) * 4 > canon.MAX_BYTES and len(text.encode()) > canon.MAX_BYTES:
        return canon.body(fields)  # which refuses it
    return text


def values_of(attributes: Sequence[Attribute]) -> dict[str, str | None]:
    """The value of each key, of equal keys the first."""
    return {attribute[1]: attribute[2] for attribute in reversed(attributes)}


def is_twin(arrival: Arrival, there: tuple[str, str | None]) -> bool:
    """Whether the stream of a new trace begins with an earlier trace of the log: `there`, topic and body."""
    if there[0] != arrival.topic or arrival.data is None or there[1] is None:
        return False
    new, old = json.loads(arrival.data), json.loads(there[1])
    return isinstance(old, dict) and old.get("log") == new["log"] and old.get("nth", 0) < new["nth"]
