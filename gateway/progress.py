"""Progress of long work on stderr: a bar with rate and ETA on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from .session import Session

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

EVERY: Final = 5.0
"""Seconds between two lines where stderr is no terminal."""


SOON: Final = 0.5
"""Seconds of work that nobody needs a bar for."""


class Work:
    """One piece of work: how much of it is done, and how much there is, as far as one knows."""

    def __init__(self, board: Board, name: str, unit: str, start: int = 0) -> None:
        self._board, self.name, self.unit = board, name, unit
        self.start, self.done, self.total = start, start, 0
        self.began = monotonic()

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done, of so much."""
        self.done, self.total = done, self.total if total is None else total
        self._board.show(self)

    @property
    def rate(self) -> float:
        """Units a second since it began."""
        return (self.done - self.start) / max(1e-9, monotonic() - self.began)


class Board:
    """Where the works of one command are shown."""

    def __init__(self, session: Session, bars: Bars | None) -> None:
        self._session, self._bars = session, bars
        self._tasks: dict[int, Any] = {}
        self._began = self._told = monotonic()

    def work(self, name: str, unit: str = "events", start: int = 0) -> Work:
        """A further piece of work; `start`: how much of it was done before anybody looked."""
        return Work(self, name, unit, start)

    def show(self, work: Work) -> None:
        """Show how far a work is, if it is time."""
        if self._bars is not None:
            if monotonic() - self._began < SOON:
                return
            self._bars.start()
            if id(work) not in self._tasks:
                self._tasks[id(work)] = self._bars.add_task(work.name, unit=work.unit, rate="")
            rate = f"{work.rate:,.0f} {work.unit}/s"
            self._bars.update(self._tasks[id(work)], completed=work.done, total=work.total or None, rate=rate)
        elif monotonic() - self._told >= EVERY:
            self._told = monotonic()
            self._session.say(f"{work.name}: {told(work)}")


def told(work: Work) -> str:
    """How far a work is, in words."""
    rate = f"{work.done:,} {work.unit}, {work.rate:,.0f}/s"
    if work.total <= work.done or work.done <= work.start:
        return rate
    left = (work.total - work.done) / work.rate
    return f"{work.done:,} of {work.total:,} {work.unit}, {work.rate:,.0f}/s, {left:,.0f} s to go"


@contextmanager
def board(session: Session) -> Iterator[Board]:
    """A place for bars while the block runs; nothing is left of them."""
    if session.quiet or not sys.stderr.isatty():
        yield Board(session, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr, color_system="auto" if session.color else None)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
               TextColumn("{task.fields[rate]}"), TimeRemainingColumn())  # fmt: skip
    bars = Progress(*columns, console=console, transient=True)
    try:
        yield Board(session, bars)
    finally:
        bars.stop()
