"""
What an append is: events for a stream, and what is expected of it; and what it returns.

`Ledger.append` and `Ledger.commit` make an `Append` for each stream. Several of them are recorded all or
nothing, in one round trip (`ledger.log.appender`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ..domain import canonical_json
from ..domain.frozen import FrozenDict
from ..domain.state import dump
from ..domain.stream import Stream
from ..domain.topics import leads_to
from ..errors import BadInput, shown
from .binary import time_of

if TYPE_CHECKING:
    from ..domain.event import Event

# What an append expects of a stream. NUMBER: its code in the SQL functions.


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, frozenset | set) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True, slots=True)
class Exact:
    """The stream is at this version: nothing was appended since it was read. Version 0: a new stream."""

    version: int

    def __post_init__(self) -> None:
        if not _is_integer(self.version) or not 0 <= self.version < 2**62:
            raise BadInput(
                f"expected version {shown(self.version)} must be an integer, "
                "0 (a new stream) or more, below 2**62"
            )

    def __str__(self) -> str:
        return f"version {self.version}" if self.version else "a new stream"


@dataclass(frozen=True, slots=True)
class Anything:
    """The stream may be at any version, or new."""

    NUMBER: ClassVar[int] = -1

    def __str__(self) -> str:
        return "any version"


@dataclass(frozen=True, slots=True)
class Exists:
    """The stream has at least one event."""

    NUMBER: ClassVar[int] = -2

    def __str__(self) -> str:
        return "a stream that exists"


@dataclass(frozen=True, slots=True)
class Guard:
    """The stream's status is one of these, and its lease token is this one; None is not checked.

    A worker reports progress under a guard: a cancel causes no conflict, and a lost lease writes nothing.
    """

    NUMBER: ClassVar[int] = -3

    statuses: frozenset[str] | None = None
    token: int | None = None

    def __post_init__(self) -> None:
        if self.statuses is not None and not _are_texts(self.statuses):
            raise BadInput(f"guarded statuses {shown(self.statuses)} must be a frozenset of texts")
        if self.token is not None and (not _is_integer(self.token) or not -(2**63) <= self.token < 2**63):
            raise BadInput(f"lease token {shown(self.token)} must be an integer of 64 bits")

    def __str__(self) -> str:
        wanted = [f"status {' or '.join(sorted(self.statuses))}"] if self.statuses is not None else []
        return (
            " and ".join(wanted + ([f"lease token {self.token}"] if self.token is not None else []))
            or "a stream that exists"
        )


Expected = Exact | Anything | Exists | Guard

NEW: Final = Exact(0)
ANY: Final = Anything()
EXISTS: Final = Exists()


def as_expected(value: Expected | int) -> Expected:
    """The expectation; an integer means an exact version. Raises BadInput for any other type."""
    match value:
        case Exact() | Anything() | Exists() | Guard():
            return value
        case int():
            return Exact(value)
        case _:
            raise BadInput(
                f"expected {shown(value)} must be a version (an integer), NEW, ANY, EXISTS, Exact or Guard"
            )


# What is appended.


class Body(NamedTuple):
    """An event as it is stored: JSON text of the ledger's own, or bytes of another application."""

    topic: str
    schema: int
    data: str | None
    raw: bytes | None = None
    meta: str | None = None


class Append(NamedTuple):
    """Events for one stream.

    status: the status after them; None leaves it unchanged. state: the state after them as text of
    `ledger.domain.state.dump`, folded from version `base` by code with `state_schema`. set_token: a new lease
    token; 0 clears it. head: False writes no head row (another application's events). Without events, only
    the expectation is checked.
    """

    stream: str
    events: Sequence[Body]
    expected: Expected = ANY
    status: str | None = None
    state: str | None = None
    base: int = 0
    state_schema: int | None = None
    set_token: int | None = None
    head: bool = True


class _Answer(NamedTuple):
    """What the database answers; most callers read none of it, so nothing is made of it before."""

    first_position: int
    last_position: int
    micros: int
    reached: tuple[tuple[str, int], ...]
    repeated: bool = False


class Appended(_Answer):
    """The result of an append: contiguous positions, the version of each stream after it, and the time.

    repeated: this command id was recorded before, and nothing was recorded again. micros: the time in
    microseconds since 2000. reached: each stream with its version.
    """

    __slots__ = ()

    @property
    def recorded_at(self) -> datetime:
        """When it was recorded, by the database's clock, in UTC."""
        return time_of(self.micros)

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each stream after it."""
        return FrozenDict(dict(self.reached))

    @property
    def version(self) -> int:
        """The version of the stream, if the append had only one."""
        ((_, version),) = self.reached
        return version


def body_of(event: Event | Body) -> Body:
    """The event as it is stored. Raises BadBody for what PostgreSQL would change."""
    return event if isinstance(event, Body) else Body(event.topic, event.schema_number, event.body())


def status_of(events: Sequence[Event]) -> str | None:
    """The status that these events lead to; None where no event changes the status."""
    return next((to for event in reversed(events) if (to := leads_to(event)) is not None), None)


def append_to(stream: str, events: Sequence[Event | Body], expected: Expected | int = ANY) -> Append:
    """The append of events to a stream that was not opened."""
    if expected is not ANY:
        expected = as_expected(expected)
    domain = [event for event in events if not isinstance(event, Body)]
    status = status_of(domain) if domain else None
    bodies = [body_of(event) for event in events] if domain else events
    return Append(stream, bodies, expected, status)  # type: ignore[arg-type]


def append_of(stream: Stream[Any, Any], bodies: Sequence[Body] | None = None) -> Append:
    """The append of an opened stream's new events, at exactly its version, with the state after them.

    bodies: the new events as they are stored, where the caller has them already. The append contains the
    status even where the events do not change it, so that a dropped head gets it back.
    """
    now = stream.state.status
    return Append(
        stream.name,
        [body_of(event) for event in stream.news] if bodies is None else bodies,
        Exact(stream.version),
        status=status_of(stream.news) or (None if now is None else str(now)),
        state=dump(stream.state),
        base=stream.version,
        state_schema=stream.state_schema(),
        set_token=stream.lease(),
    )


def digest_of(appends: Sequence[Append]) -> bytes:
    """The content of a command id, as a digest: streams and events; versions, times and actors may differ."""
    return canonical_json.digest(
        *(
            part
            for append in appends
            for body in append.events
            for part in (append.stream, body.topic, body.schema, body.data, body.raw)
        )
    )
