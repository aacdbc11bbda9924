"""
Unique jobs: of all with one key, at most one is queued or running (spec S1-71, W1-21).

The stream of a key says which job took it last. A new job is recorded together with that, and with the check
that the job before is over; so of two that are submitted at once, one is refused, and names the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from .. import canon
from ..event import Event
from ..frozen import changed
from ..moves import Moves
from ..stream import Stream


class KeyTaken(Event, topic="job_key.taken"):
    """A job has the key."""

    job: str


@dataclass(frozen=True, slots=True)
class Key:
    """What is true of a key: which job took it last."""

    status: str | None = None
    job: str | None = None


def evolve(key: Key, event: Event, at: datetime) -> Key:
    """Apply a fact. No rules here."""
    return changed(key, job=event.job) if isinstance(event, KeyTaken) else key


class OpenKey(Stream[Key, Event]):
    """A deduplication key open for change."""

    CATEGORY, MOVES, STATE = "job_key", Moves({}), Key
    evolve = staticmethod(evolve)

    def take(self, job: str) -> None:
        """A job takes it."""
        self.record(KeyTaken(job=job))


def dedup_key(operation: str, payload: Mapping[str, Any]) -> str:
    """The key of an operation with a payload: 16 hexadecimal digits, whatever the order of its keys."""
    return sha256(canon.body({"operation": operation, "payload": dict(payload)}).encode()).hexdigest()[:16]
