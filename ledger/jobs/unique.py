"""
Unique jobs: at most one job with a key is queued or running (spec S1-71, W1-21).

The stream of a key records which job took it last. A new job is recorded together with that fact, and with
a check that the job before is over. Of two jobs submitted at once one is refused, with the id of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from ..domain import canonical_json
from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream


class KeyTaken(Event, topic="job_key.taken"):
    """A job has the key."""

    job: str


@dataclass(frozen=True, slots=True)
class Key:
    """The state of a key: which job took it last."""

    status: str | None = None
    job: str | None = None


def evolve(key: Key, event: Event, at: datetime) -> Key:
    """Apply a fact. It applies no rules."""
    return changed(key, job=event.job) if isinstance(event, KeyTaken) else key


class OpenKey(Stream[Key, Event]):
    """A deduplication key open for change."""

    CATEGORY, MOVES, STATE = "job_key", Moves({}), Key
    evolve = staticmethod(evolve)

    def take(self, job: str) -> None:
        """Give the key to a job."""
        self.record(KeyTaken(job=job))


def dedup_key(operation: str, payload: Mapping[str, Any]) -> str:
    """The key of an operation with a payload: 16 hexadecimal digits; the order of fields does not matter."""
    return sha256(
        canonical_json.body({"operation": operation, "payload": dict(payload)}).encode()
    ).hexdigest()[:16]
