"""
What is new, told to many sockets: one thread reads it once for all, each gets what its filter lets in.

A client first subscribes, which gives a place in the history; it then reads for itself what was before that
place and is told everything after it: so there is no gap, and nothing comes twice. A client that does not
keep up is told no more, and reads for itself again; so nobody's memory grows, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ledger import LedgerError, ServerUnavailable
from ledger.log.tail import Wakeup

LOG: Final = logging.getLogger("gateway.http")
KEPT: Final = 1000
"""Items that wait for a client, at most."""
PAUSE: Final = 0.05
"""Seconds after which what another process wrote is seen at the latest."""
AGAIN: Final = 0.5
"""Seconds before the ledger is read again while it cannot be reached."""


class Item(NamedTuple):
    """Something new: its place in the history, and what it is."""

    place: int
    value: Any


class Reader(Protocol):
    """Reads a history in order from a place on. It is used by one thread at a time."""

    place: int

    def poll(self) -> Sequence[Item] | None:
        """What comes next, and `place` moves behind it; None at the end."""


class Subscription:
    """The new items of one client. begins: the place after which they come."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        self.wanted = wanted
        self.begins = 0
        self._items: list[Item] = []
        self._lost = False
        self._news: asyncio.Future[None] | None = None

    async def next(self, seconds: float) -> list[Item] | None:
        """The next items, none if there are none for so long; None: it did not keep up, subscribe again."""
        if not self._items and not self._lost:
            self._news = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._news}, timeout=seconds)
        items, self._items = self._items, []
        return None if self._lost and not items else items

    def tell(self, items: Sequence[Item]) -> None:
        """Take items, in the event loop."""
        if len(self._items) + len(items) > KEPT:
            self._lost = True
        if not self._lost:
            self._items += items
        self._wake()

    def lose(self) -> None:
        """There is no more to come: subscribe again."""
        self._lost = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Feed:
    """Tells subscriptions what is new. To be made in the event loop; the thread runs while there are any."""

    def __init__(self, reader: Callable[[], Reader], wakeup: Wakeup, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._make, self._wakeup, self._name = reader, wakeup, name
        self._lock = threading.Lock()
        self._told: set[Subscription] = set()
        self._reader: Reader | None = None
        self._quiet = threading.Event()

    def subscribe(self, wanted: Callable[[Any], bool]) -> Subscription:
        """Begin to tell a client; to be called in a thread, since it may read. Raises LedgerError."""
        one = Subscription(wanted)
        with self._lock:
            if self._reader is None:
                self._reader, self._quiet = self._make(), threading.Event()
                given = (self._reader, self._quiet)
                threading.Thread(target=self._run, args=given, name=self._name, daemon=True).start()
            one.begins = self._reader.place
            self._told.add(one)
        return one

    def leave(self, one: Subscription) -> None:
        """Tell a client no more; with the last one the thread ends."""
        with self._lock:
            self._told.discard(one)
            if not self._told:
                self._quiet.set()
                self._reader = None

    def _run(self, reader: Reader, quiet: threading.Event) -> None:
        while not quiet.is_set():
            seen = self._wakeup.seen()
            try:
                with self._lock:  # who subscribes now begins before these items, or after them
                    items = None if quiet.is_set() else reader.poll()
                    told = list(self._told) if items else []
            except ServerUnavailable as error:
                LOG.warning("%s: %s", self._name, error)
                quiet.wait(AGAIN)
                continue
            except LedgerError as error:  # another history: everybody begins anew
                LOG.error("%s: %s", self._name, error)
                self._give_up(quiet)
                return
            if items is None:
                self._wakeup.wait(seen, PAUSE, quiet)
            else:
                self._tell(told, items)

    def _give_up(self, quiet: threading.Event) -> None:
        with self._lock:
            lost, self._told, self._reader = self._told, set(), None
            quiet.set()
        for one in lost:
            self._loop.call_soon_threadsafe(one.lose)

    def _tell(self, told: Sequence[Subscription], items: Sequence[Item]) -> None:
        for one in told:
            if mine := [item for item in items if one.wanted(item.value)]:
                try:
                    self._loop.call_soon_threadsafe(one.tell, mine)
                except RuntimeError:  # the loop is closed
                    return
