"""
Completed states of task runs by their cache keys: a task run whose key has one need not run (spec 4.2, 4.6).

    cached_state/KEY              the states that were cached under a key
    cached_state/sha256/DIGEST    the same, of a key that is too long for the name of a stream

Which state is the newest is decided by the version of the stream, not by the times of the states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..log.ledger import Ledger
from .facts import Json
from .states import State

LONGEST: Final = 512
"""Bytes of a key that is part of the name of its stream."""
KEPT: Final = 16
"""How many cached states a key keeps: the older of two is kept only while it outlives the newer one."""

# Facts.


class StateCached(Event, topic="cached_state.put"):
    """A task run completed with this key. state: in Prefect's JSON form. expires: None for never."""

    key: str
    task_run_id: str
    state: Json
    expires: str | None = None


# State.


class CachedState(NamedTuple):
    """A cached state, in Prefect's JSON form. put_at: the database's time."""

    state: Mapping[str, Any]
    task_run_id: str
    put_at: datetime
    expires: datetime | None = None

    def lasts_after(self, at: datetime | None) -> bool:
        """Whether it can be used after a time; None: after all times."""
        return self.expires is None or (at is not None and self.expires > at)


@dataclass(frozen=True, slots=True)
class CachedStates:
    """The cached states of a key, the newest first; those that can still be needed."""

    status: str | None = None
    states: tuple[CachedState, ...] = ()

    def newest(self, now: datetime) -> State | None:
        """The newest state that is not expired."""
        found = next((one for one in self.states if one.lasts_after(now)), None)
        return None if found is None else State.of(found.state, found.put_at)


def evolve(cached: CachedStates, event: Event, at: datetime, /) -> CachedStates:
    """Apply a fact. It applies no rules."""
    if not isinstance(event, StateCached):
        return cached
    expires = None if event.expires is None else datetime.fromisoformat(event.expires)
    put = CachedState(event.state, event.task_run_id, at, expires)
    older = [] if expires is None else [one for one in cached.states if one.lasts_after(expires)]
    return changed(cached, states=(put, *older)[:KEPT])


class OpenCachedStates(Stream[CachedStates, Event]):
    """The cached states of a key, open for change; see `cached_states`."""

    CATEGORY, MOVES, STATE = "cached_state", Moves({}), CachedStates
    evolve = staticmethod(evolve)

    def put(self, key: str, task_run_id: str, state: State) -> None:
        """Cache a completed state until the expiration that it names itself."""
        expires = state.detail("cache_expiration")
        self.record(StateCached(key=key, task_run_id=task_run_id, state=state.recorded(), expires=expires))


def cached_states(ledger: Ledger, key: str) -> OpenCachedStates:
    """The cached states of a key as they are now."""
    if len(key.encode()) <= LONGEST:
        return ledger.load(OpenCachedStates, key)
    return ledger.load(OpenCachedStates, "sha256", sha256(key.encode()).hexdigest())
