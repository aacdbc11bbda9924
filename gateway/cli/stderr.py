"""
Output on stderr while a command runs: its progress, and what the package logs.

Progress is a bar with rate and ETA on a terminal, else a line every few seconds.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from .output import iso, plain
from .session import Session

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

EVERY: Final = 5.0
"""Seconds between two lines if stderr is not a terminal."""


SOON: Final = 0.5
"""Seconds of work before a bar is shown."""


class Task:
    """How much of one task is done, and its total, as far as known."""

    def __init__(self, progress: Progress, name: str, unit: str, start: int = 0) -> None:
        self._progress, self.name, self.unit = progress, name, unit
        self.start, self.done, self.total = start, start, 0
        self.began = monotonic()

    def update(self, done: int, total: int | None = None) -> None:
        """Set how much is done, and the total."""
        self.done, self.total = done, self.total if total is None else total
        self._progress.show(self)

    @property
    def rate(self) -> float:
        """Units a second since it began."""
        return (self.done - self.start) / max(1e-9, monotonic() - self.began)


class Progress:
    """Shows the tasks of one command."""

    def __init__(self, session: Session, bars: Bars | None) -> None:
        self._session, self._bars = session, bars
        self._tasks: dict[int, Any] = {}
        self._began = self._told = monotonic()

    def task(self, name: str, unit: str = "events", start: int = 0) -> Task:
        """Add a task; `start`: how much of it was done before this process began."""
        return Task(self, name, unit, start)

    def show(self, task: Task) -> None:
        """Show the progress of a task, if it is time."""
        if self._bars is not None:
            if monotonic() - self._began < SOON:
                return
            self._bars.start()
            if id(task) not in self._tasks:
                self._tasks[id(task)] = self._bars.add_task(task.name, unit=task.unit, rate="")
            rate = speed(task, f" {task.unit}")
            self._bars.update(self._tasks[id(task)], completed=task.done, total=task.total or None, rate=rate)
        elif monotonic() - self._told >= EVERY:
            self._told = monotonic()
            self._session.say(f"{task.name}: {told(task)}")


def told(task: Task) -> str:
    """The progress of a task, in words."""
    rate = f"{task.done:,} {task.unit}, {speed(task)}"
    if task.total <= task.done or task.done <= task.start:
        return rate
    left = (task.total - task.done) / task.rate
    return f"{task.done:,} of {task.total:,} {task.unit}, {speed(task)}, {left:,.0f} s to go"


def speed(task: Task, unit: str = "") -> str:
    """The rate of a task in a second; in a minute where that is less than one."""
    if task.rate >= 1 or not task.rate:
        return f"{task.rate:,.0f}{unit}/s"
    return f"{60 * task.rate:,.0f}{unit}/min"


@contextmanager
def show_progress(session: Session) -> Iterator[Progress]:
    """Show progress bars while the block runs; they are removed at its end."""
    if session.quiet or not sys.stderr.isatty():
        yield Progress(session, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(file=sys.stderr, color_system="auto" if session.color else None)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
               TextColumn("{task.fields[rate]}"), TimeRemainingColumn())  # fmt: skip
    bars = Bars(*columns, console=console, transient=True)
    try:
        yield Progress(session, bars)
    finally:
        bars.stop()


class _StderrHandler(logging.Handler):
    """Prints log records on stderr."""

    def __init__(self, session: Session, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        self._session.say(record.getMessage())


class _LogLineHandler(_StderrHandler):
    """Prints them as lines of a log: time (UTC), level, message; with `--json` an object each, with more."""

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        if self._session.json:
            told = plain(getattr(record, "told", {}))
            _object(self._session, at, record.levelname.lower(), record.getMessage(), told)
        else:
            self._session.say(f"{iso(at)} {record.levelname} {record.getMessage()}")


class LoggingSession(Session):
    """A session that prints progress and advice as lines of a log too, if `--json` is given."""

    __slots__ = ()

    def say(self, message: str) -> None:
        if self.json:
            _object(self, datetime.now(UTC), "info", message, {})
        else:
            super().say(message)


def logging_session(session: Session) -> LoggingSession:
    """The same session, as one that writes a log."""
    return LoggingSession(**{field.name: getattr(session, field.name) for field in fields(session)})


def _object(session: Session, at: datetime, level: str, message: str, told: dict[str, Any]) -> None:
    """A line of a log for programs."""
    if not session.quiet:
        print(json.dumps({"time": iso(at), "level": level, "message": message, **told}), file=sys.stderr)


@contextmanager
def log_to_stderr(session: Session, *loggers: str, lines: bool = False) -> Iterator[None]:
    """Print these loggers' warnings while the block runs; with `lines` as a log, and all from INFO on."""
    level = logging.INFO if lines else logging.WARNING
    handler = _LogLineHandler(session, level) if lines else _StderrHandler(session)
    named = [logging.getLogger(name) for name in loggers]
    before = [logger.level for logger in named]
    for logger in named:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, was in zip(named, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(was)
