"""
Append one event to a stream by the status that it is in, without opening it: one round trip.

    close = Choices.of(OpenTicket, {Ticket(Status.OPEN): Closed()})
    ledger.append_from("ticket/7", close)

It is for decisions that depend only on the status. The caller gives an event for each state that the stream
may be in; the database appends the one for the status that it finds, as if the stream had been opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..domain.state import Pending, dump
from ..domain.stream import Stream
from ..domain.topics import leads_to
from ..errors import BadInput, StreamConflict
from .appender import SQL
from .binary import columns, number, time_of
from .connection import CallingConnection

if TYPE_CHECKING:
    from ..domain.event import Event

_TEXTS = [0] * 8


@cache
def _call(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_from.prepared(schema)


class Choices(NamedTuple):
    """The event to append for each status of a stream, as parameters of the function `append_from`."""

    topic: str
    statuses: tuple[str, ...]
    values: tuple[bytes | None, ...]

    @classmethod
    def of(
        cls, kind: type[Stream[Any, Any]], by_state: Mapping[Any, Event], initial: str | None = None
    ) -> Self:
        """An event for each state before it; all events have one topic and lead to one status.

        A state is recognised only by its status: `evolve` must lead to the right state from the one given
        here. A state without a status is that of a stream without events. initial: its status, where it has
        one.
        Raises BadInput.
        """
        kinds = {(event.topic, event.schema_number, leads_to(event)) for event in by_state.values()}
        if len(kinds) != 1:
            raise BadInput("choices are events of one topic that lead to one status")
        ((topic, schema, status),) = kinds
        if status is None:
            raise BadInput(f"{topic} leads to no status, so it cannot be a choice")
        texts = {
            str(state.status or ""): f"[{event.body()},{encode_basestring_ascii(_after(kind, state, event))}]"
            for state, event in by_state.items()
        }
        choices = ",".join(f"{encode_basestring_ascii(was)}:{text}" for was, text in texts.items())
        first = "" if "" in texts else initial
        values = (str(kind.state_schema()), first, f"{{{choices}}}", topic, str(schema), status)
        return cls(topic, tuple(texts), tuple(None if value is None else value.encode() for value in values))


def _after(kind: type[Stream[Any, Any]], state: Any, event: Event) -> str:
    return dump(kind.evolve(state, event, Pending.clock()))


class Chosen(NamedTuple):
    """What `append_from` recorded. before: the status of the stream before; empty if it had no events."""

    before: str
    position: int
    version: int
    recorded_at: datetime


def send_from(
    connection: CallingConnection, schema: str, stream: str, choices: Choices, meta: str
) -> Chosen | None:
    """Record the event for the stream's status; None if there is no such event, or the head lacks the state.

    Raises StreamConflict where somebody else appended at the same time, and psycopg's errors.
    """
    values = [stream.encode(), *choices.values, meta.encode()]
    answer = connection.call(*_call(schema), values, _TEXTS)
    outcome, position, version, micros, before = columns(answer)
    if outcome == b"unknown":
        return None
    assert position is not None
    assert version is not None
    assert micros is not None
    assert before is not None
    if outcome != b"recorded":
        raise StreamConflict(stream, f"status {' or '.join(choices.statuses)}", number(version))
    return Chosen(before.decode(), number(position), number(version), time_of(number(micros)))
