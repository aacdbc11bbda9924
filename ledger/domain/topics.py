"""Topics: the class of each, the status that it leads to, and the event in a recorded body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UnreadableEvent
from . import canonical_json
from .frozen import FrozenDict, frozen
from .known import KNOWN

if TYPE_CHECKING:
    from .event import Event


class TopicStatus(NamedTuple):
    """The status that a topic leads to: always the same, or the text in a field of the event's body."""

    status: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event whose topic (or newer schema) this process does not know: it is passed on and raises no error.

    data: the fields; empty for a body that is not an object.
    """

    topic: str
    schema: int
    data: Mapping[str, Any]
    to: None = None


def with_former(topics: Iterable[str]) -> frozenset[str]:
    """These topics, and all present and former topics of the same event classes."""
    kinds = {topic: KNOWN.events.get(topic) for topic in topics}
    more = (name for kind in kinds.values() if kind is not None for name in (kind.topic, *kind.was))
    return frozenset((*kinds, *more))


def read_event(topic: str, schema: int, data: str | bytes) -> Event | Unknown:
    """The event in a recorded body, or Unknown where no class of this process can read it.

    Raises UnreadableEvent where the body does not match its topic and schema, or `upcast` fails on it.
    """
    kind = KNOWN.events.get(topic)
    if kind is not None:
        try:
            return kind.read(data, schema)
        except Exception as error:  # also any error of a user's upcast
            if schema <= kind.schema_number:
                raise UnreadableEvent(topic, f"cannot be read: {_wrong(error)}") from error
    fields = canonical_json.parsed(data)
    return Unknown(topic, schema, frozen(fields) if isinstance(fields, dict) else FrozenDict())


def _wrong(error: Exception) -> str:
    """What is wrong with a body, in one line."""
    from pydantic import ValidationError  # imported late: reading the log does not need it

    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"[:300]
    first = error.errors(include_url=False, include_input=False)[0]
    place, more = ".".join(map(str, first["loc"])), error.error_count() - 1
    said = f"{place}: {first['msg']}" if place else first["msg"]
    return f"{said}; and {more} more" if more else said


def leads_to(event: Event) -> str | None:
    """The status that an event leads to: its `to`, or what its `to_field` holds; None leaves it unchanged."""
    if event.to_field is not None:
        return None if (value := getattr(event, event.to_field)) is None else str(value)
    return None if event.to is None else event.to.value


def topic_status(kind: type[Event]) -> TopicStatus | None:
    """The status that events of a class lead to; None where they lead to none."""
    if kind.to_field is not None:
        return TopicStatus(field=kind.to_field)
    return None if kind.to is None else TopicStatus(kind.to.value)


def known_statuses() -> dict[str, TopicStatus]:
    """The status that each imported topic leads to; topics that lead to none are left out."""
    return {topic: status for topic, kind in KNOWN.events.items() if (status := topic_status(kind))}
