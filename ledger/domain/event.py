"""An event. Its topic is permanent; its fields only grow; `to` is the status that it leads to."""

# The annotations are no texts here: pydantic would evaluate those of Event for each class of events.

import json
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter

from . import canonical_json
from .frozen import frozen
from .known import KNOWN
from .names import checked_topic


class Event(BaseModel):
    """A fact of a domain: `class StripCompleted(Event, topic="lsm.strip.completed", to=Status.COMPLETED)`.

    to_field: the text field that holds the status, where it is not the same for all events of the topic. was:
    its former topics, the oldest first; this class also reads events that were recorded under them.

    An event is deeply frozen. Recording forbids unknown fields, reading ignores them, so that old and new
    code run side by side. A changed shape needs the next `schema` number and an `upcast`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    topic: ClassVar[str]
    to: ClassVar[StrEnum | None] = None
    to_field: ClassVar[str | None] = None
    was: ClassVar[tuple[str, ...]] = ()
    schema_number: ClassVar[int] = 1

    def __init_subclass__(
        cls,
        topic: str = "",
        to: StrEnum | None = None,
        schema: int = 1,
        to_field: str | None = None,
        was: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.to, cls.to_field, cls.schema_number = to, to_field, schema
        if to is not None and not isinstance(to, StrEnum):
            raise TypeError(f"{cls.__qualname__} leads to {to!r}: `to` must be a member of a StrEnum")
        cls.was = (was,) if isinstance(was, str) else tuple(was)
        if topic:
            cls.topic = topic
            _name(cls)
        elif cls.was:
            raise TypeError(f"{cls.__qualname__} was {cls.was[0]!r}, and has no topic now: give it topic=…")

    def model_post_init(self, _context: Any) -> None:
        """Freeze what the fields hold: a frozen model's dict could still be changed."""
        for name, value in self.__dict__.items():
            if type(value) not in _JSON:
                self.__dict__[name] = frozen(value)

    @classmethod
    def upcast(cls, data: dict[str, Any], schema: int) -> dict[str, Any]:
        """Convert the fields of an older `schema` number to the present shape; override when it changes."""
        return data

    def body(self) -> str:
        """The canonical JSON text of the fields. Raises BadBody for what PostgreSQL would change."""
        return canonical_json.body(self.__dict__, _dumped)

    @classmethod
    def read(cls, data: str | bytes, schema: int) -> Self:
        """The event in a recorded body; unknown fields are ignored, older schema numbers converted."""
        if schema < cls.schema_number:
            data = json.dumps(cls.upcast(json.loads(data), schema))
        return cls.model_validate_json(data, extra="ignore")


def _name(kind: type[Event]) -> None:
    """Register a class under its topic and its former topics. Raises BadName, TypeError."""
    names = (kind.topic, *kind.was)
    for nth, name in enumerate(names):
        if name in names[:nth]:
            raise TypeError(f"{kind.__qualname__} names the topic {name!r} twice")
        if name in KNOWN.events:
            other = KNOWN.events[name].__qualname__
            raise TypeError(f"topic {checked_topic(name)!r} already names {other}")
        checked_topic(name)
    KNOWN.events.update(dict.fromkeys(names, kind))


def _plain(value: Any) -> Any:
    return value if type(value) in _JSON else _dumped(value)


_JSON = frozenset({str, int, float, bool, type(None)})
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def _dumped(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Set():  # the same order in every process: a command id compares the bytes
            return sorted((_plain(item) for item in value), key=canonical_json.body)
        case _:
            return _ANY.dump_python(value, mode="json")
