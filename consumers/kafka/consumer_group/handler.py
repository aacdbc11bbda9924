"""
What a consumer does with events: a function, declared with the topics that it reads and the model of their
bodies.

    @consumer(topics=["ledger.lsm"], events=["lsm.strip.completed"], model=Completed, group="counts")
    def count(event: Consumed[Completed], transaction: Connection) -> None:
        transaction.execute("INSERT INTO counts …", [event.stream, event.body.tiles])

The handler works in the transaction that also moves the consumer's offset: what it writes there is stored
once for each event, whatever dies. It must not commit. What it does outside of that transaction may be done
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, overload

import psycopg
from pydantic import BaseModel, ValidationError

from ledger import BadInput, BadName, Event, Recorded
from ledger.errors import Undecodable

from ..envelope import Envelope, envelope_of
from .client import Message

Connection = psycopg.Connection[Any]
Start = Literal["earliest", "latest"]
M = TypeVar("M")
N = TypeVar("N", bound=BaseModel)

_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class Consumed(Generic[M]):
    """An event with its body as the handler's model. recorded: the event as the ledger recorded it."""

    body: M
    recorded: Recorded

    @property
    def stream(self) -> str:
        """The stream of the event, which is the record's key."""
        return self.recorded.stream

    @property
    def version(self) -> int:
        """Its place in the stream, from 1."""
        return self.recorded.version

    @property
    def position(self) -> int:
        """Its place in the log."""
        return self.recorded.position

    @property
    def topic(self) -> str:
        """The event's topic, such as `job.started`; not the topic of Kafka."""
        return self.recorded.topic

    @property
    def recorded_at(self) -> datetime:
        """When the ledger recorded it, in UTC."""
        return self.recorded.recorded_at


@dataclass(frozen=True)
class Handler:
    """A handler as `consumer` declares it; its fields are the arguments of `consumer`."""

    handle: Callable[[Any, Connection], object]
    name: str
    topics: tuple[str, ...]
    group: str
    model: type[BaseModel] | None = None
    events: frozenset[str] | None = None
    batch: bool = False
    attempts: int = 5
    delay: float = 1.0
    longest_delay: float = 300.0
    start: Start = "earliest"

    def __post_init__(self) -> None:
        if not _GROUP.match(self.group):
            raise BadName("group", self.group, "must be 1 to 100 letters, digits, '.', '_', '-'")
        if not self.topics:
            raise BadInput(f"consumer {self.name} reads no topic: name one, such as topics=['ledger.jobs']")
        if self.attempts < 1 or self.delay < 0:
            raise BadInput(f"consumer {self.name}: attempts must be 1 or more, and delay 0 or more seconds")

    def __call__(self, event: Any, transaction: Connection) -> object:
        """What the decorated function does."""
        return self.handle(event, transaction)

    def wants(self, topic: str) -> bool:
        """Whether events of this topic are given to the handler; others are passed over."""
        return self.events is None or topic in self.events

    def event_of(self, recorded: Recorded) -> Any:
        """What the handler is given: the event itself, or Consumed with its body.

        Raises ValueError that says what is wrong, where the body does not fit the model.
        """
        if self.model is None:
            return recorded
        data = recorded.data if recorded.data is not None else recorded.raw
        try:
            if issubclass(self.model, Event):
                return Consumed(self.model.read(data or "", recorded.schema), recorded)
            return Consumed(self.model.model_validate_json(data or ""), recorded)
        except ValidationError as error:
            raise ValueError(f"its body does not fit {self.model.__name__}: {_wrong(error)}") from error

    def pause_before(self, attempt: int) -> float:
        """Seconds between a failed attempt, counted from 1, and the next one; doubled each time."""
        return float(min(self.delay * 2 ** (attempt - 1), self.longest_delay))


def _wrong(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors(include_url=False)
    )


class Options(TypedDict, total=False):
    """The options of `consumer` that have no influence on the handler's type."""

    group: str
    events: Collection[str]
    attempts: int
    delay: float
    longest_delay: float
    start: Start


Handle = Callable[[M, Connection], object]


@overload
def consumer(
    *, topics: Iterable[str], model: None = ..., batch: Literal[False] = ..., **options: Unpack[Options]
) -> Callable[[Handle[Recorded]], Handler]: ...
@overload
def consumer(
    *, topics: Iterable[str], model: type[N], batch: Literal[False] = ..., **options: Unpack[Options]
) -> Callable[[Handle[Consumed[N]]], Handler]: ...
@overload
def consumer(
    *, topics: Iterable[str], model: None = ..., batch: Literal[True], **options: Unpack[Options]
) -> Callable[[Handle[Sequence[Recorded]]], Handler]: ...
@overload
def consumer(
    *, topics: Iterable[str], model: type[N], batch: Literal[True], **options: Unpack[Options]
) -> Callable[[Handle[Sequence[Consumed[N]]]], Handler]: ...
def consumer(
    *,
    topics: Iterable[str],
    model: type[BaseModel] | None = None,
    batch: bool = False,
    **options: Unpack[Options],
) -> Callable[[Handle[Any]], Handler]:
    """Declare a function as the handler of Kafka topics.

    topics: of Kafka, such as `ledger.jobs`. group: whose members share the partitions; the function's name by
    default. model: of the bodies; without one the handler is given the event as recorded. A class of Event
    stands for its topics, too. events: only events of these topics, such as `job.started`; others are passed
    over. batch: the handler is given a list of events, and does them with few statements. attempts: how often
    an event is tried until it is a dead letter. delay: seconds until the second attempt, doubled for each
    further one, up to longest_delay. start: where a group begins that never ran. Raises BadName, BadInput.
    """

    def declared(handle: Handle[Any]) -> Handler:
        name = getattr(handle, "__name__", type(handle).__name__)
        given: dict[str, Any] = {"group": name, **options}
        events = given.pop("events", None)
        if events is None and model is not None and issubclass(model, Event):
            events = (model.topic, *model.was)
        wanted = None if events is None else frozenset(events)
        return Handler(handle, name, tuple(topics), model=model, events=wanted, batch=batch, **given)

    return declared


@dataclass(slots=True)
class Delivery:
    """A record of Kafka on its way to the handler.

    event: what the handler is given; None where the event is passed over or `wrong` says why it cannot be
    read.
    """

    message: Message
    envelope: Envelope | None
    event: Any = None
    wrong: Undecodable | None = None

    @property
    def is_handled(self) -> bool:
        """Whether the handler wants it: it is not passed over."""
        return self.event is not None or self.wrong is not None


Fetch = Callable[[int], Recorded | None]
"""Reads the event at a position from the ledger, for bodies that were too large for a record."""


def delivered(message: Message, handler: Handler, fetch: Fetch | None = None) -> Delivery:
    """A record, decoded for a handler; what cannot be read is told in `wrong`, not raised."""
    envelope: Envelope | None = None
    try:
        envelope = envelope_of(message.key, message.value, message.headers)
        recorded = envelope.event
        if not handler.wants(recorded.topic):
            return Delivery(message, envelope)
        if envelope.by_reference:
            recorded = _fetched(recorded.position, fetch)
        return Delivery(message, envelope, handler.event_of(recorded))
    except ValueError as error:  # of the envelope, of UTF-8, of the model
        wrong = Undecodable(message.topic, message.partition, message.offset, str(error))
        wrong.__cause__ = error
        return Delivery(message, envelope, wrong=wrong)


def _fetched(position: int, fetch: Fetch | None) -> Recorded:
    if fetch is None:
        raise ValueError(
            f"its body is too large for a record: give the consumer the ledger, which has it at {position}"
        )
    recorded = fetch(position)
    if recorded is None:
        raise ValueError(f"its body is not in the record, and the ledger has no event at position {position}")
    return recorded
