"""
The intake of events: the frames of all clients, recorded by one thread in commits of many.

Frames are gathered for at most 10 ms, or until somebody waits for a receipt, or until there are 500; while a
commit runs, the next ones gather by themselves. A receipt is given when all frames of its source before it
are committed. While the ledger cannot be reached the frames wait, and no receipt is given; when too many wait
the sources are held back, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from ledger import BadInput, LedgerError, ServerUnavailable, StreamConflict

LOG: Final = logging.getLogger("gateway.http")
GATHER: Final = 0.010
"""Seconds for which frames are gathered at most."""
MOST: Final = 500
"""Frames of a commit, at most."""
ROOM: Final = 32 * 1024 * 1024
"""Characters of frames that wait, at most, beyond what one read of each source brings."""
PATIENCE: Final = 30.0
"""Seconds that a source waits for a commit before it gives up; the client sends its events again then."""
AGAIN: Final = 0.25
"""Seconds before the ledger is tried again while it cannot be reached."""

Record = Callable[[Sequence[Mapping[str, Any]], str], Sequence[LedgerError | None]]
"""Records events of an actor and returns after the commit: for each what is wrong with it, or None.

It may be called again with the same events.
"""


class Source(Protocol):
    """Where frames come from. Its methods are called in the event loop."""

    actor: str

    def settled(self, refused: LedgerError | None) -> None:
        """Its oldest frame is committed, or refused for this reason."""

    def go_on(self) -> None:
        """There is room again."""


class _Frame(NamedTuple):
    source: Source
    data: str | bytes | Mapping[str, Any]
    size: int
    since: float


class Intake:
    """Gathers and records frames. To be made in the server's event loop, and closed in it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Frame] = deque()
        self._size = 0
        self._held: set[Source] = set()
        self._hurried = self._stopping = False
        self._changed = threading.Condition()
        self._under_way: float | None = None
        self._thread = threading.Thread(target=self._run, name="events intake", daemon=True)
        self._thread.start()

    def put(self, source: Source, data: str | bytes | Mapping[str, Any], size: int) -> bool:
        """Take a frame, or an event that was read; False: no room for more, until `source.go_on` is called.

        size: its length in characters.
        """
        self._size += size
        with self._changed:
            self._waiting.append(_Frame(source, data, size, time.monotonic()))
            if len(self._waiting) in (1, MOST):
                self._changed.notify()
        if self._size <= ROOM:
            return True
        self._held.add(source)
        return False

    def hurry(self) -> None:
        """Somebody waits for a receipt: record what there is without gathering more."""
        with self._changed:
            self._hurried = True
            self._changed.notify()

    def oldest(self) -> float:
        """Seconds for which the oldest frame has waited for its commit."""
        since = self._under_way or (self._waiting[0].since if self._waiting else None)
        return 0.0 if since is None else time.monotonic() - since

    def record(self, events: Sequence[Mapping[str, Any]], actor: str) -> list[LedgerError | None]:
        """Record events, to be called in another thread: for each what is wrong with it, or None.

        Returns when those that are in order are committed.
        """
        asked = _Asked(actor, len(events))
        sizes = [len(msgspec.json.encode(event)) for event in events]

        def put_all() -> None:
            for event, size in zip(events, sizes, strict=True):
                self.put(asked, event, size)
            self.hurry()

        self._loop.call_soon_threadsafe(put_all)
        return asked.result()

    def close(self, seconds: float) -> None:
        """Record what waits, for at most so many seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while batch := self._gathered():
            self._under_way = batch[0].since
            refused = self._recorded(batch)
            self._under_way = None
            if refused is None:
                return
            self._tell(batch, refused)

    def _gathered(self) -> list[_Frame]:
        """The next frames; none when the intake is closed."""
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            until = time.monotonic() + GATHER
            while len(self._waiting) < MOST and not (self._hurried or self._stopping):
                if (left := until - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            many = min(MOST, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(many)]
            self._hurried = self._hurried and bool(self._waiting)
            return batch

    def _recorded(self, batch: list[_Frame]) -> list[LedgerError | None] | None:
        """Record frames: what is wrong with each. None: the intake closes, the ledger is away."""
        read = [_read(frame.data) for frame in batch]
        done: list[LedgerError | None] = [one if isinstance(one, LedgerError) else None for one in read]
        places: dict[str, list[int]] = {}
        for nth, frame in enumerate(batch):
            if done[nth] is None:
                places.setdefault(frame.source.actor, []).append(nth)
        for actor, of_actor in places.items():
            if (found := self._insist([read[nth] for nth in of_actor], actor)) is None:
                return None
            for nth, refused in zip(of_actor, found, strict=True):
                done[nth] = refused
        return done

    def _insist(self, events: Sequence[Any], actor: str) -> Sequence[LedgerError | None] | None:
        """Record events, again while the ledger cannot take them; None as `_recorded`."""
        warned = False
        while True:
            try:
                return self._record(events, actor)
            except (ServerUnavailable, StreamConflict) as error:
                if not warned:
                    LOG.warning("events wait for the ledger: %s", error)
                warned = True
            except Exception as error:
                return self._alone(events, actor, error)
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, AGAIN):
                    LOG.error("%s events were not recorded before the end of the server", len(events))
                    return None

    def _alone(
        self, events: Sequence[Any], actor: str, error: Exception
    ) -> Sequence[LedgerError | None] | None:
        """Record each event for itself: a defect with one of them must not take the others along."""
        if len(events) == 1:
            LOG.error("an event is refused by a defect of pledger", exc_info=error)
            return [error if isinstance(error, LedgerError) else LedgerError(f"a defect: {error!r}")]
        found: list[LedgerError | None] = []
        for one in events:
            if (refused := self._insist([one], actor)) is None:
                return None
            found += refused
        return found

    def _tell(self, batch: list[_Frame], refused: list[LedgerError | None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._settle, batch, refused)

    def _settle(self, batch: list[_Frame], refused: list[LedgerError | None]) -> None:
        for frame, wrong in zip(batch, refused, strict=True):
            self._size -= frame.size
            frame.source.settled(wrong)
        if self._held and self._size <= ROOM // 2:
            held, self._held = self._held, set()
            for source in held:
                source.go_on()


class _Asked:
    """The source of events that came in one request."""

    def __init__(self, actor: str, many: int) -> None:
        self.actor, self._many = actor, many
        self._found: list[LedgerError | None] = []
        self._ready = threading.Event()
        if not many:
            self._ready.set()

    def settled(self, refused: LedgerError | None) -> None:
        self._found.append(refused)
        if len(self._found) == self._many:
            self._ready.set()

    def go_on(self) -> None:
        pass

    def result(self) -> list[LedgerError | None]:
        if not self._ready.wait(PATIENCE):
            raise ServerUnavailable("the events wait for the ledger, which cannot be reached")
        return self._found


_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def _read(data: str | bytes | Mapping[str, Any]) -> Mapping[str, Any] | LedgerError:
    """The event of a frame, or what is wrong with it."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, bytes):
        return BadInput("an event must come in a text frame, not in a binary one")
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return BadInput(f"a frame is no JSON object: {error}")
