"""
What is new, told to many sockets: one thread reads it once for all, each gets what its filter lets in.

A client first subscribes, which gives it a place in the history; it then reads for itself what was before
that place, and is told everything after it: so there is no gap, and nothing comes twice. A client that does
not keep up is told no more, and reads for itself again: so nobody's memory grows, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from ledger import LedgerError
from ledger.log.tail import Wakeup

LOG: Final = logging.getLogger("gateway.http")
KEPT: Final = 1000
"""Items that wait for a client, at most."""
PAUSE: Final = 0.05
"""Seconds after which what another process wrote is seen at the latest."""
F = TypeVar("F")
F_contra = TypeVar("F_contra", contravariant=True)
I = TypeVar("I")  # noqa: E741
I_co = TypeVar("I_co", covariant=True)


class Source(Protocol[F_contra, I_co]):
    """A history that grows, read in order from its end on by one thread, for clients with filters."""

    @property
    def place(self) -> int:
        """Up to where it was read."""

    def poll(self) -> Any:
        """What comes next, and `place` moves behind it; None at the end."""

    def chosen(self, batch: Any, filters: Sequence[F_contra]) -> Sequence[Sequence[I_co]]:
        """What each of these filters lets in, as it is told."""


class Subscription(Generic[F, I]):
    """What is new for one client. place: up to where it was told of. left: nothing will be told any more."""

    def __init__(self, wanted: F) -> None:
        self.wanted, self.place, self.left = wanted, 0, False
        self._items: list[I] = []
        self._lost = False
        self._news: asyncio.Future[None] | None = None

    async def next(self) -> list[I] | None:
        """What is new, when there is something; None: the client did not keep up, it must subscribe again."""
        while not self._items and not self._lost:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        items, self._items = self._items, []
        return items or None

    def tell(self, items: Sequence[I], place: int) -> None:
        """Take items, unless too many wait already. To be called in the event loop."""
        self._lost = self._lost or len(self._items) + len(items) > KEPT
        if not self._lost:
            self._items += items
            self.place = place
        self._wake()

    def lose(self, place: int) -> None:
        """All was told up to a place, and no more will be. To be called in the event loop."""
        if not self._lost:
            self._lost, self.place = True, max(place, self.place)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Feed(Generic[F, I]):
    """Tells subscriptions what is new. To be made in the event loop; its thread runs while there are any."""

    def __init__(self, source: Callable[[], Source[F, I]], wakeup: Wakeup, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._open, self._wakeup, self._name = source, wakeup, name
        self._lock = threading.Lock()
        self._told: set[Subscription[F, I]] = set()
        self._source: Source[F, I] | None = None
        self._quiet = threading.Event()

    def subscribe(self, one: Subscription[F, I]) -> None:
        """Begin to tell a client; to be called in a thread, since it may read. Raises LedgerError.

        Whatever comes of it, `leave` must be called; that may be before, where the client is gone meanwhile.
        """
        with self._lock:
            if one.left:
                return
            if self._source is None:
                self._source, self._quiet = self._open(), threading.Event()
                given = (self._source, self._quiet)
                threading.Thread(target=self._run, args=given, name=self._name, daemon=True).start()
            one.place = self._source.place
            self._told.add(one)

    def leave(self, one: Subscription[F, I]) -> None:
        """Tell a client no more; with the last one the thread ends."""
        with self._lock:
            one.left = True
            self._told.discard(one)
            if not self._told:
                self._quiet.set()
                self._source = None

    def _run(self, source: Source[F, I], quiet: threading.Event) -> None:
        place = source.place
        while not quiet.is_set():
            seen = self._wakeup.seen()
            try:
                with self._lock:  # who subscribes now begins before this batch, or after it
                    batch = None if quiet.is_set() else source.poll()
                    told = list(self._told)
                if batch is None:
                    self._wakeup.wait(seen, PAUSE, quiet)
                    continue
                found = source.chosen(batch, [one.wanted for one in told])
            except LedgerError as error:
                LOG.warning("%s: %s", self._name, error)
                self._end(quiet, place)
            except Exception as error:
                LOG.error("%s: a defect of pledger", self._name, exc_info=error)
                self._end(quiet, place)
            else:
                place = source.place
                for one, items in zip(told, found, strict=True):
                    if items:
                        self._call(one.tell, items, place)

    def _end(self, quiet: threading.Event, place: int) -> None:
        """End the thread, which told everything up to a place; the clients subscribe again."""
        with self._lock:
            if quiet.is_set():
                return
            quiet.set()
            lost, self._told, self._source = self._told, set(), None
        for one in lost:
            self._call(one.lose, place)

    def _call(self, act: Callable[..., None], *given: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act, *given)
