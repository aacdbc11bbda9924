"""What one append wants: events for streams, each with what it expects; and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from . import canon
from .errors import BadInput
from .event import Event, leads_to
from .expected import ANY, Anything, Exact, Exists, Expected, Guard
from .frozen import FrozenDict
from .state import dump
from .stream import Stream


class Body(NamedTuple):
    """An event as it is stored: JSON text of our own, or bytes of another application."""

    topic: str
    schema: int
    data: str | None
    raw: bytes | None = None
    meta: str | None = None


class Append(NamedTuple):
    """Events for one stream.

    status: the status after them, None leaves it. state: the state after them as text of `ledger.state.dump`,
    folded from version `base` by code of `state_schema`. set_token: a new lease token, 0 clears it. head:
    False keeps no head row (another application's events). No events: the expectation is only checked.
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

    @property
    def expected_number(self) -> int:
        """The expectation as functions/4_append.sql counts it."""
        match self.expected:
            case Exact(version):
                return version
            case Anything():
                return -1
            case Exists():
                return -2
            case Guard():
                return -3
            case _:
                raise BadInput(f"what {self.stream} is expected at must be Exact, NEW, ANY, EXISTS or Guard")


class Appended(NamedTuple):
    """What an append recorded: contiguous positions, the version of each stream after it, and the time.

    repeated: this command id had recorded it before; nothing was recorded again. before: the state from
    before as JSON, where only its status was known (StandsIn).
    """

    first_position: int
    last_position: int
    recorded_at: datetime
    versions: Mapping[str, int]
    repeated: bool = False
    before: bytes | None = None

    @property
    def version(self) -> int:
        """The version of the stream, where there was one."""
        (version,) = self.versions.values()
        return version


def body_of(event: Event | Body) -> Body:
    """The event as it is stored. Raises BadBody for what PostgreSQL would change."""
    return event if isinstance(event, Body) else Body(event.topic, event.schema_number, event.body())


def status_of(events: Sequence[Event]) -> str | None:
    """The status that the last of the events which moves the machine leads to."""
    return next((to for event in reversed(events) if (to := leads_to(event)) is not None), None)


def digest_of(appends: Sequence[Append]) -> bytes:
    """What a command id stands for: streams and contents; a repeat may differ in versions, times, actors."""
    return canon.digest(
        *(
            part
            for append in appends
            for body in append.events
            for part in (append.stream, body.topic, body.schema, body.data, body.raw)
        )
    )


def versions_after(appends: Sequence[Append], before: Sequence[int]) -> Mapping[str, int]:
    """The version of each stream after the append."""
    return FrozenDict({a.stream: version + len(a.events) for a, version in zip(appends, before, strict=True)})


def append_of(stream: Stream[Any, Any]) -> Append:
    """The append of an opened stream's news: exactly at its version, with the state that the news lead to.

    The status is named even where the news do not move it: a head that was dropped learns it again.
    """
    now = stream.state.status
    return Append(
        stream.name,
        [body_of(event) for event in stream.news],
        Exact(stream.version),
        status=status_of(stream.news) or (None if now is None else str(now)),
        state=dump(stream.state),
        base=stream.version,
        state_schema=stream.state_schema(),
        set_token=stream.lease(),
    )
