"""XES (IEEE 1849) as this ledger keeps it: what is recorded of a log, its traces and its events.

An attribute is a list: type, key, value as the file writes it, and the attributes in it, where there are any.
Values stay text, so that NaN, 007 and the offset of a time come out as they went in. What is wrong with an
attribute is kept as it was found (a missing key or value is null, further XML attributes are a fifth item),
and reported.

    incident.log/volvo      incident.log.began      the log's own attributes, extensions, globals, classifiers
                            incident.log.ended      how many traces, events and faults it had
    incident/1-364285768    incident.trace          the attributes of the trace, its log, its number there
                            incident.recorded       an event: its attributes, and its `state`
                            incident.recorded       …
                            incident.trace.added    attributes of the trace that come after events of it
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..domain import canonical_json
from ..domain.names import checked_topic, stream_name
from .source import Arrival

TYPES: Final = frozenset({"string", "date", "int", "float", "boolean", "id", "list", "container", "values"})
"""The elements that are attributes; `values` holds the items of a list and has neither key nor value."""
STRUCTURE: Final = frozenset({"log", "trace", "event", "extension", "global", "classifier"})
"""The other elements of XES."""
TEXT: Final = "#text"
"""The tag under which text in an element that is not XES is kept."""
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
"""Types whose values are not checked."""


class Topics(NamedTuple):
    """The topics of a category."""

    began: str
    ended: str
    trace: str
    added: str
    recorded: str

    @classmethod
    def of(cls, category: str) -> Topics:
        """Those of this category; `-`, which no topic has, becomes `_`. Raises BadName."""
        stream_name(category, "x")
        root = checked_topic(category.replace("-", "_"))
        return cls(
            f"{root}.log.began",
            f"{root}.log.ended",
            f"{root}.trace",
            f"{root}.trace.added",
            f"{root}.recorded",
        )


def attribute(kind: str, pairs: Sequence[str], tell: Callable[[str], None]) -> Attribute:
    """An attribute from the names and values of its element. tell: called with each fault."""
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    key, value = given.pop("key", None), given.pop("value", None)
    if key is None and kind != "values":
        tell(f"<{kind}> has no key")
    if kind not in ANY_TEXT:
        _check_value(kind, key, value, tell)
    if not given:
        return [kind, key, value]
    tell(f"<{kind}> has {min(given)!r}: an attribute has only a key and a value")
    return [kind, key, value, [], list(map(list, given.items()))]


def _check_value(kind: str, key: str | None, value: str | None, tell: Callable[[str], None]) -> None:
    named = kind if key is None else f"{kind} {key!r}"
    if value is None:
        tell(f"the {named} has no value")
    elif kind == "date":
        if not is_time(value):
            tell(f"the {named} is {value[:60]!r}; it must look like 2030-01-31T14:00:00+01:00")
    else:
        pattern, right = _CHECKS[kind]
        if not pattern.match(value):
            tell(f"the {named} is {value[:60]!r}; it must be {right}")


def is_time(text: str) -> bool:
    """Whether a text is a time in ISO 8601, with its offset or without."""
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return False
    return True


def body_of(fields: dict[str, Any]) -> str:
    """The canonical text of a body of XES. Raises BadBody where it is too large.

    All its leaves are texts of an XML file and whole numbers, which have no NUL, surrogate or float, so the
    plain encoder writes what `canonical_json.body` would write, in a third of the time.
    """
    text = _ENCODE(fields)
    if len(text) * 4 > canonical_json.MAX_BYTES and len(text.encode()) > canonical_json.MAX_BYTES:
        return canonical_json.body(fields)  # which refuses it
    return text


def values_of(attributes: Sequence[Attribute]) -> dict[str, str | None]:
    """The value of each key; for equal keys the first."""
    return {attribute[1]: attribute[2] for attribute in reversed(attributes)}


def is_twin(arrival: Arrival, there: tuple[str, str | None]) -> bool:
    """Whether the stream of a new trace begins with an earlier trace of the log: `there`, topic and body."""
    if there[0] != arrival.topic or arrival.data is None or there[1] is None:
        return False
    new, old = json.loads(arrival.data), json.loads(there[1])
    return isinstance(old, dict) and old.get("log") == new["log"] and old.get("nth", 0) < new["nth"]
