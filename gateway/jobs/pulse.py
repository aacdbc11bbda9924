"""What a worker does just now, on stderr: a line that changes on a terminal, else one every few seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ..progress import EVERY
from ..session import Session

if TYPE_CHECKING:
    from consumers.jobs import Worker

BLINK: Final = 0.5
"""Seconds between two looks."""


class Pulse:
    """Says from a thread of its own, while the block runs, how many pieces of work run and are done."""

    def __init__(self, session: Session, worker: Worker, stop: threading.Event) -> None:
        self._session, self._worker, self._stop = session, worker, stop
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._drains = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: TracebackType | type[BaseException] | BaseException | None) -> None:
        self._end.set()
        self._thread.join()
        self._say_stop()

    def _run(self) -> None:
        with _line(self._session) as show:
            done, at = self._worker.done, monotonic()
            while not self._end.wait(BLINK):
                self._say_stop()
                now = monotonic()
                if show is None and (now - at < EVERY or self._worker.done == done):
                    continue
                rate = (self._worker.done - done) / (now - at)
                done, at = self._worker.done, now
                told = f"{self._running()} running, {done:,} done, {rate:,.0f}/s"
                self._session.say(told) if show is None else show(told)

    def _running(self) -> int:
        return sum(slot.task is not None for slot in self._worker.slots)

    def _say_stop(self) -> None:
        """Once, that it was told to stop."""
        if self._stop.is_set() and not self._drains:
            self._drains = True
            running = self._running()
            waits = f"{running} still run; Ctrl-C again ends it at once" if running else "nothing runs"
            self._session.say(f"takes nothing more, {waits}")


@contextmanager
def _line(session: Session) -> Iterator[Callable[[str], None] | None]:
    """What changes the line on the terminal; None where there is none."""
    if session.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    console = Console(file=sys.stderr, color_system="auto" if session.color else None)
    with console.status("begins") as status:
        yield status.update
