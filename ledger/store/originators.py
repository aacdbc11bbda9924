"""
How the ledger stores another application's events: originators as streams, their versions as the ledger's.

The `eventsourcing` library numbers the events of an originator densely, from 1 or from 0. The ledger's
versions start at 1. So a version from 1 is the ledger's own, and the body's schema is 1; a version from 0 is
one less than the ledger's, and the schema is 0. A gap is refused: it would be a lost event. But for one: a
stream from 0 that leaps over exactly one version has met the ledger's numbering, and goes on as if from 1.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from uuid import UUID

from eventsourcing.persistence import DataError, IntegrityError, StoredEvent

from ..domain.names import checked
from ..log.append import Append, Body, Exact

FROM_ZERO, FROM_ONE = 0, 1
"""The schema of a body, by the version of its stream's first event."""


@dataclass(frozen=True, slots=True)
class Originators:
    """Ids of originators as names of streams: UUIDs, or text where `text` is set."""

    text: bool = False

    def stream(self, originator_id: UUID | str) -> str:
        """The stream of an originator. Raises DataError, BadName."""
        if self.text or isinstance(originator_id, UUID):
            return checked(str(originator_id))
        try:
            return str(UUID(originator_id))
        except ValueError:
            raise DataError(
                f"originator id {originator_id!r} is not a UUID: set ORIGINATOR_ID_TYPE=text for text ids"
            ) from None

    def originator(self, stream: str) -> UUID | str:
        """The originator of a stream."""
        return stream if self.text else UUID(stream)


def arranged(
    stored_events: Sequence[StoredEvent], originators: Originators, from_zero: Container[str]
) -> tuple[list[Append], list[int]]:
    """The appends of one save, and for each event in the order given the index of its append.

    from_zero: streams that are known to be numbered from 0. Raises IntegrityError for versions with gaps.
    """
    groups: dict[str, list[StoredEvent]] = {}
    streams = [originators.stream(event.originator_id) for event in stored_events]
    for stream, event in zip(streams, stored_events, strict=True):
        groups.setdefault(stream, []).append(event)
    place = {stream: index for index, stream in enumerate(groups)}
    appends = [_append(stream, events, stream in from_zero) for stream, events in groups.items()]
    return appends, [place[stream] for stream in streams]


def _append(stream: str, events: list[StoredEvent], from_zero: bool) -> Append:
    first = events[0].originator_version
    if [event.originator_version for event in events] != list(range(first, first + len(events))):
        raise IntegrityError(f"{stream}: the versions of one save must be consecutive, each exactly once")
    if first < 0:
        raise DataError(f"{stream}: version {first} must be 0 or more")
    schema = FROM_ZERO if from_zero or first == 0 else FROM_ONE
    bodies = [Body(_topic(event), schema, None, body_of(event)) for event in events]
    return Append(stream, bodies, Exact(first - schema), head=False)


def body_of(event: StoredEvent) -> bytes:
    """The event's bytes as they are. Raises DataError where they are none."""
    if not isinstance(event.state, bytes | bytearray | memoryview):
        raise DataError(f"the state of a stored event must be bytes, not {type(event.state).__name__}")
    return bytes(event.state)


def _topic(event: StoredEvent) -> str:
    if "\0" in event.topic:
        raise DataError(f"topic {event.topic!r} contains NUL, which PostgreSQL cannot store")
    return event.topic


def could_be_renumbered(append: Append, found: int) -> bool:
    """Whether a conflict may only mean that the stream, at version `found`, has the other numbering."""
    expected = append.expected.version if isinstance(append.expected, Exact) else -1
    if append.events[0].schema == FROM_ONE:
        return expected + 1 == found
    return 0 < expected == found + 1
