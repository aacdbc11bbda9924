"""A fact. Its topic is its name for ever; its fields only grow; `to` is the status it leads to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from . import canon
from .errors import UnknownTopic
from .frozen import frozen
from .names import checked_topic

TOPICS: dict[str, type[Event]] = {}
"""Every event class that this process has imported, by topic."""


class Event(BaseModel):
    """A fact of a domain: `class StripCompleted(Event, topic="lsm.strip.completed", to=Status.COMPLETED)`.

    to_field: where the status is not the same for all events of the topic, the text field that holds it.

    Frozen all the way down. Recording forbids unknown fields, reading ignores them, so that old and new code
    run side by side. A changed shape takes the next `schema` number and an `upcast`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    topic: ClassVar[str]
    to: ClassVar[StrEnum | None] = None
    to_field: ClassVar[str | None] = None
    schema_number: ClassVar[int] = 1

    def __init_subclass__(
        cls,
        topic: str = "",
        to: StrEnum | None = None,
        schema: int = 1,
        to_field: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.to, cls.to_field, cls.schema_number = to, to_field, schema
        if topic:
            if topic in TOPICS:
                raise TypeError(f"topic {topic!r} already names {TOPICS[topic].__qualname__}")
            cls.topic = checked_topic(topic)
            TOPICS[topic] = cls

    def model_post_init(self, _context: Any) -> None:
        """Freeze what the fields hold: a frozen model's dict could still be changed."""
        for name, value in self.__dict__.items():
            if type(value) not in _JSON:
                self.__dict__[name] = frozen(value)

    @classmethod
    def upcast(cls, data: dict[str, Any], schema: int) -> dict[str, Any]:
        """Lift the fields of an older `schema` number to the present shape; override when that changes."""
        return data

    def body(self) -> str:
        """The canonical JSON text of the fields. Raises BadBody for what PostgreSQL would change."""
        return canon.body({name: _plain(value) for name, value in self.__dict__.items()})

    @classmethod
    def read(cls, data: str | bytes, schema: int) -> Self:
        """The event in a recorded body; unknown fields are ignored, older schema numbers lifted."""
        if schema < cls.schema_number:
            data = json.dumps(cls.upcast(json.loads(data), schema))
        return cls.model_validate_json(data, extra="ignore")


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event whose topic (or newer schema) this process does not know: carried along, not a crash."""

    topic: str
    schema: int
    data: Mapping[str, Any]
    to: None = None


def read_event(topic: str, schema: int, data: str | bytes) -> Event | Unknown:
    """The event in a recorded body, or Unknown where no class of this process can read it."""
    kind = TOPICS.get(topic)
    if kind is not None:
        try:
            return kind.read(data, schema)
        except ValidationError:
            if schema <= kind.schema_number:
                raise
    return Unknown(topic, schema, frozen(json.loads(data)))


def leads_to(event: Event) -> str | None:
    """The status that an event leads to: its `to`, or what its `to_field` holds; None leaves it as it is."""
    if event.to_field is not None:
        return None if (value := getattr(event, event.to_field)) is None else str(value)
    return None if event.to is None else event.to.value


def event_class(topic: str) -> type[Event]:
    """The class that records under this topic. Raises UnknownTopic."""
    try:
        return TOPICS[topic]
    except KeyError:
        raise UnknownTopic(topic) from None


def _plain(value: Any) -> Any:
    return value if value is None or type(value) in _JSON else _dumped(value)


_JSON = frozenset({str, int, float, bool})
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def _dumped(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Set():  # in one order in every process: a command id stands for the bytes
            return sorted((_plain(item) for item in value), key=canon.body)
        case _:
            return _ANY.dump_python(value, mode="json")
