"""Close at the end of the process, quietly and at once, what is still open then.

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


def close_at_exit(thing: Closable) -> None:
    """Close it when the process ends; until then, or until `forget`, it is kept."""
    _open.add(thing)


def forget(thing: Closable) -> None:
    """It was closed."""
    _open.discard(thing)


@atexit.register
def _close_all() -> None:
    for thing in list(_open):
        thing.close()
