"""Stored events for tests of recorders."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from eventsourcing.persistence import AggregateRecorder, StoredEvent


def events(
    of: UUID | str, *versions: int, state: bytes = b"state", topic: str = "topic"
) -> list[StoredEvent]:
    """Events of one originator with these versions."""
    return [StoredEvent(of, version, topic, state) for version in versions]


def versions(recorder: AggregateRecorder, of: UUID | str, **options: Any) -> list[int]:
    """The versions that the recorder has of an originator, as it selects them."""
    return [event.originator_version for event in recorder.select_events(of, **options)]
