"""
The index of a remote: which contents it holds, by their hashes, so that a push asks it less often.

The stream holds the changes; the set itself is folded by the local copy, because it may have a million
members and no decision needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream

AT_ONCE: Final = 50_000
"""Maximum number of hashes in one event; of 64 characters each they take 3.4 MB."""


class RemoteFact(Event):
    """A fact of a remote's index."""


class RemoteAdded(RemoteFact, topic="build.remote_added"):
    """The remote holds these contents."""

    hashes: tuple[str, ...]


class RemoteRemoved(RemoteFact, topic="build.remote_removed"):
    """The remote no longer holds these contents."""

    hashes: tuple[str, ...]


class RemoteCleared(RemoteFact, topic="build.remote_cleared"):
    """Nothing is known any more of what the remote holds."""


@dataclass(frozen=True, slots=True)
class Remote:
    """The state of an index: how often it changed."""

    status: str | None = None
    changes: int = 0


def evolve(remote: Remote, event: Event, at: datetime, /) -> Remote:
    """Apply a fact. It applies no rules."""
    return changed(remote, changes=remote.changes + 1) if isinstance(event, RemoteFact) else remote


class OpenRemote(Stream[Remote, Event]):
    """The index of a remote open for change; its key is the project and the remote's name."""

    CATEGORY, MOVES, STATE = "build_remote", Moves({}), Remote
    evolve = staticmethod(evolve)

    def add(self, hashes: Iterable[str]) -> None:
        """Add contents; nothing where there are none."""
        for some in _pieces(hashes):
            self.record(RemoteAdded(hashes=some))

    def remove(self, hashes: Iterable[str]) -> None:
        """Remove contents; nothing where there are none."""
        for some in _pieces(hashes):
            self.record(RemoteRemoved(hashes=some))

    def clear(self) -> None:
        """Remove all contents."""
        self.record(RemoteCleared())


def _pieces(hashes: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The hashes, each once, in order, in pieces that fit into an event."""
    left = iter(sorted(set(hashes)))
    while some := tuple(islice(left, AT_ONCE)):
        yield some
