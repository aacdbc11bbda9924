"""
Who waits for slots of which limit, as this process has heard it.

A client that was refused asks again every few seconds. The refusal of its request is recorded once, until the
request is granted or the limit is changed, as a WAIT of a run is (`ledger.runs.orchestration`): a crowd that
waits adds no events to the limit's stream. How many wait is counted here instead, and spreads them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final

from .limit import MAX_WAIT, Limit

PATIENCE: Final = timedelta(seconds=3 * MAX_WAIT)
"""A client that has not asked for so long waits no more."""
MOST: Final = 10_000
"""Clients that are remembered for a limit; beyond it all are forgotten, and recorded once more."""


@dataclass(slots=True)
class _Crowd:
    """Who waits for a limit while its record has these fields: slots, and when each asked last."""

    fields: Mapping[str, Any]
    waiting: dict[Hashable, tuple[int, datetime]] = field(default_factory=dict)


class Waiters:
    """Who waits for slots; a holder is known by its type and id. Threads may share it."""

    def __init__(self) -> None:
        self._crowds: dict[str, _Crowd] = {}
        self._lock = Lock()

    def knows(self, limit: Limit, holder: Mapping[str, Any], now: datetime) -> bool:
        """Whether this holder was refused by this limit before, and has asked again and again since."""
        with self._lock:
            _, last = self._crowd(limit).waiting.get(_key(holder), (0, None))
            return last is not None and now - last <= PATIENCE

    def refused(self, limits: Sequence[Limit], holder: Mapping[str, Any], slots: int, now: datetime) -> None:
        """This holder waits for slots of these limits."""
        with self._lock:
            for limit in limits:
                crowd = self._crowd(limit)
                if len(crowd.waiting) >= MOST:
                    crowd.waiting.clear()
                crowd.waiting[_key(holder)] = slots, now

    def granted(self, limits: Sequence[Limit], holder: Mapping[str, Any]) -> None:
        """This holder waits no more for these limits."""
        with self._lock:
            for limit in limits:
                if (crowd := self._crowds.get(limit.id)) is not None:
                    crowd.waiting.pop(_key(holder), None)
                    if not crowd.waiting:
                        del self._crowds[limit.id]

    def others(self, limit: Limit, holder: Mapping[str, Any], now: datetime) -> int:
        """How many slots of a limit others wait for."""
        with self._lock:
            crowd = self._crowd(limit)
            over = [one for one, (_, last) in crowd.waiting.items() if now - last > PATIENCE]
            for one in over:
                del crowd.waiting[one]
            return sum(slots for one, (slots, _) in crowd.waiting.items() if one != _key(holder))

    def _crowd(self, limit: Limit) -> _Crowd:
        """Those who wait for a limit as it is: nobody is known of one that was changed meanwhile."""
        crowd = self._crowds.get(limit.id)
        if crowd is None or crowd.fields != limit.fields:
            crowd = self._crowds[limit.id] = _Crowd(limit.fields)
        return crowd


def _key(holder: Mapping[str, Any]) -> Hashable:
    return str(holder.get("type")), str(holder.get("id"))
