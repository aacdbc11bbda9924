"""Writes streams as an XES log: imported ones come out unchanged, others in the form that miners read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from ..domain.topics import TopicStatus
from ..errors import BadInput
from ..log.recorded import Recorded
from .envelopes import base64, status_of
from .xes import NAME, RESOURCE, TEXT, TIME, Attribute, Topics

_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
STATE: Final = "lifecycle:state"
PLAIN_LOG: Final[dict[str, Any]] = {
    "xml": [["xes.version", "1849-2016"], ["xes.features", "nested-attributes"],
            ["xmlns", "http://www.xes-standard.org/"]],
    "declarations": [
        ["extension", [["name", name], ["prefix", prefix],
                       ["uri", f"http://www.xes-standard.org/{prefix}.xesext"]], []]
        for name, prefix in (("Concept", "concept"), ("Time", "time"), ("Organizational", "org"),
                             ("Lifecycle", "lifecycle"))
    ],
    "attributes": [],
}  # fmt: skip
"""The attributes of a log that was not imported from XES."""


def text(
    category: str,
    log: Mapping[str, Any],
    traces: Iterable[tuple[Recorded, Iterable[Recorded]]],
    statuses: Mapping[str, TopicStatus],
) -> Iterator[str]:
    """The file, piece by piece. traces: the first event of each stream, and those after. Raises BadInput."""
    topics = Topics.of(category)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<log{_pairs(log['xml'])}>\n"
    for tag, pairs, inside in log["declarations"]:
        yield f"\t<{tag}{_pairs(pairs)}{_content(tag, inside, 1)}"
    yield _attributes(log["attributes"], 1)
    for first, further in traces:
        body = json.loads(first.data) if first.topic == topics.trace and first.data else None
        named = body["attributes"] if body else [["string", NAME, first.stream.partition("/")[2]]]
        said = _pairs(body.get("xml", ())) if body else ""
        yield f"\t<trace{said}>\n{_checked(_attributes(named, 2), first)}"
        if body is None:
            yield _event(first, topics, statuses)
        for event in further:
            yield _event(event, topics, statuses)
        yield "\t</trace>\n"
    yield _attributes(log.get("late", ()), 1)
    yield "</log>\n"


def _event(event: Recorded, topics: Topics, statuses: Mapping[str, TopicStatus]) -> str:
    body = json.loads(event.data) if event.data is not None else {}
    said = ""
    if event.topic in (topics.recorded, topics.added) and _has_attributes(body):
        attributes, said = body["attributes"], _pairs(body.get("xml", ()))
        if event.topic == topics.added:
            return _checked(_attributes(attributes, 2), event)
    else:
        attributes = _plain(event, body, statuses)
    return _checked(f"\t\t<event{said}>\n{_attributes(attributes, 3)}\t\t</event>\n", event)


def _has_attributes(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("attributes"), list)


def _plain(event: Recorded, body: Any, statuses: Mapping[str, TopicStatus]) -> list[Attribute]:
    """The attributes of an event that did not come from XES: its name is its topic, then its fields."""
    meta = event.meta
    found: list[Attribute] = [["string", NAME, event.topic]]
    found.append(["date", TIME, (meta.claimed_at or event.recorded_at).isoformat()])
    if meta.actor:
        found.append(["string", RESOURCE, meta.actor])
    if (status := status_of(statuses.get(event.topic), body)) is not None:
        found.append(["string", STATE, status])
    if event.raw is not None:
        found.append(["string", "raw", base64(event.raw)])
    taken = {attribute[1] for attribute in found}
    fields = body.items() if isinstance(body, dict) else [("data", body)]
    return found + [_typed(key, value) for key, value in fields if value is not None and key not in taken]


def _typed(key: str, value: Any) -> Attribute:
    match value:
        case bool():
            return ["boolean", key, "true" if value else "false"]
        case int() if -(2**63) <= value < 2**63:
            return ["int", key, str(value)]
        case float():
            return ["float", key, repr(value)]
        case dict():
            return ["container", key, None, [_typed(k, v) for k, v in value.items() if v is not None]]
        case list():
            items = [_typed(str(nth), v) for nth, v in enumerate(value) if v is not None]
            return ["list", key, None, [["values", None, None, items]]]
        case _:
            return ["string", key, str(value)]


def _attributes(attributes: Iterable[Attribute], depth: int) -> str:
    indent = "\t" * depth
    lines = []
    for kind, key, value, *inside in attributes:
        said = _said(key, value, inside)
        lines.append(f"{indent}<{kind}{said}{_content(kind, inside[0] if inside else (), depth)}")
    return "".join(lines)


def _said(key: str | None, value: str | None, inside: Sequence[Any]) -> str:
    """The tag of an attribute with its values; inside: its content and further XML attributes."""
    given = "" if key is None else f" key={quoteattr(key)}"
    given += "" if value is None else f" value={quoteattr(value)}"
    return given + _pairs(inside[1]) if len(inside) > 1 else given


def _with_text(inside: Iterable[Attribute]) -> str:
    """The content of an element that is not XES, unchanged, with its text."""
    return "".join(
        escape(value) if kind == TEXT else
        f"<{kind}{_said(key, value, more)}>{_with_text(more[0] if more else ())}</{kind}>"
        for kind, key, value, *more in inside
    )  # fmt: skip


def _content(tag: str, inside: Sequence[Attribute], depth: int) -> str:
    """The rest of an element, after its XML attributes."""
    if any(item[0] == TEXT for item in inside):
        return f">{_with_text(inside)}</{tag}>\n"
    within = _attributes(inside, depth + 1)
    return f">\n{within}{chr(9) * depth}</{tag}>\n" if within else "/>\n"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in pairs)


def _checked(text: str, event: Recorded) -> str:
    """The text, if XML can hold it. Raises BadInput."""
    if not (found := _UNFIT.search(text)):
        return text
    raise BadInput(
        f"version {event.version} of {event.stream} holds the character U+{ord(found[0]):04X}, which XML "
        "cannot contain: export it as JSON Lines or CSV"
    )
