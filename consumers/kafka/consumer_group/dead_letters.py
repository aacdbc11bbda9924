"""
Dead-letter topics: a copy of each dead letter, for tools and alerts.

The letter itself is the parked row in the consumer's database, from which it is redriven or discarded. The
copy is published after the row is committed, and is marked then: a crash in between publishes it twice. Its
key, value and headers are those of the record; further headers say why it is here, in the manner of Kafka
Connect:

    __dlq.errors.topic, .partition, .offset              where the record is
    __dlq.errors.group                                   who could not handle it
    __dlq.errors.exception.class.name, .message, .stacktrace
    __dlq.errors.attempts, .timestamp
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from ..routes import dead_letters
from .client import Letter, Transport
from .parking import DeadLetter, Parking, Stored

HEADER: Final = "__dlq.errors."
AT_ONCE: Final = 100


def publish(connection: psycopg.Connection[Any], parking: Parking, transport: Transport) -> int:
    """Publish the dead letters of a group that are not yet in their topics; returns how many there were.

    Raises KafkaFailed; they are tried again then.
    """
    found = parking.unpublished(connection, AT_ONCE)
    if found:
        transport.send_letters([letter_of(stored, why, parking.group) for stored, why in found])
        parking.mark_published(connection, [stored for stored, _ in found])
    return len(found)


def letter_of(stored: Stored, why: DeadLetter, group: str) -> Letter:
    """The record for the dead-letter topic."""
    told = {
        "topic": stored.topic, "partition": stored.partition, "offset": stored.offset, "group": group,
        "exception.class.name": why.failure.error, "exception.message": why.failure.message,
        "exception.stacktrace": why.failure.trace, "attempts": why.attempts,
        "timestamp": why.parked_at.isoformat(),
    }  # fmt: skip
    headers = [*stored.headers, *((HEADER + name, str(value).encode()) for name, value in told.items())]
    return Letter(dead_letters(stored.topic, group), stored.key, stored.value, headers)
