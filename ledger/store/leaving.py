"""Leaving: what a process still has open when it ends is closed, quietly and at once.

A pool that is only dropped is closed by the garbage collector, perhaps in one of its own threads, and at the
end of an interpreter its threads cannot be joined any more (Python 3.13 waits 5 s for each and complains).
"""

from __future__ import annotations

import atexit
from typing import Protocol


class Closable(Protocol):
    """Something with connections. Closing it in a fork of the process that opened it does nothing."""

    def close(self) -> None: ...


_open: set[Closable] = set()


def opened(thing: Closable) -> None:
    """Close it when the process ends, unless it is closed before; until then it is not dropped."""
    _open.add(thing)


def closed(thing: Closable) -> None:
    """It was closed."""
    _open.discard(thing)


@atexit.register
def _leave() -> None:
    for thing in list(_open):
        thing.close()
