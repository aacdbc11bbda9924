"""
Work on many pieces in several processes, each with a connection of its own.

The processes are fresh interpreters (no fork: threads and sockets of the parent are not shared with them)
that import what declares the streams known here. They live no longer than their parent, however that ends. A
child that is killed is replaced, and its piece begun again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ledger import errors
from ledger.errors import BadInput, LedgerError, ServerUnavailable
from ledger.event import TOPICS
from ledger.store.ledger import Ledger
from ledger.stream import CATEGORIES

T = TypeVar("T")
R = TypeVar("R")
T_in = TypeVar("T_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)

LOSSES: Final = 3
"""Children that may be killed before it is given up."""
BOOT: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from projections.folding.child import main; main(int(sys.argv[2]))"
)


class Place(NamedTuple):
    """Where a ledger lies, for a process that opens its own connection."""

    conninfo: str
    schema: str

    @classmethod
    def of(cls, ledger: Ledger) -> Place:
        """The place of an open ledger."""
        return cls(ledger.target.conninfo, ledger.schema)


class Work(Protocol[T_in, R_out]):
    """What is done with each piece; it is pickled on its way to the processes, before it is opened there."""

    def open(self) -> None:
        """Get ready, in the process that works."""

    def close(self) -> None:
        """Give back what `open` took."""

    def __call__(self, piece: T_in, told: Callable[[int], None]) -> R_out:
        """Do it. told: is given how far it came since the last call."""


def in_processes(
    work: Work[T, R], pieces: Iterable[T], processes: int, told: Callable[[int], None] = lambda _: None
) -> Generator[R, None, None]:
    """The results of the pieces, as they come. processes: how many; 1 works in this one.

    Streams that are declared in a program's main module are known to no other process; then this one works,
    whatever was asked for. Raises what the work raises, and BadInput where a module that declares streams
    cannot be imported by another process. Whoever stops early closes the generator.
    """
    if processes < 1:
        raise BadInput(f"the work cannot be done by {processes} processes: give 1 or more")
    modules = declaring_modules()
    waiting = [*pieces]
    if min(processes, len(waiting)) <= 1 or "__main__" in modules or not sys.executable:
        yield from _here(work, waiting, told)
    else:
        yield from _Crew(work, waiting, modules, told).results(min(processes, len(waiting)))


def declaring_modules() -> list[str]:
    """The modules that declare the streams and events which this process knows."""
    return sorted({kind.__module__ for kind in (*CATEGORIES.values(), *TOPICS.values())})


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(work: Work[T, R], pieces: Iterable[T], told: Callable[[int], None]) -> Iterator[R]:
    work.open()
    try:
        for piece in pieces:
            yield work(piece, told)
    finally:
        work.close()


class _Child:
    """One process, the pipe to it, and the piece that it has."""

    def __init__(self, modules: list[str], work: Any) -> None:
        ours, theirs = Pipe()
        # A session of its own: Ctrl-C on a terminal is for the parent, which ends its children.
        # The number of a descriptor is the same in the child; all others are closed there.
        command = [sys.executable, *(f"-W{w}" for w in sys.warnoptions), "-c", BOOT, json.dumps(sys.path)]
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.pipe: Connection[Any, Any] = ours
        self.piece: Any = None
        self.counted = 0
        with suppress(OSError):  # it ended already: its end of the pipe says so
            self.pipe.send((modules, work))

    def give(self, piece: Any) -> None:
        self.piece, self.counted = piece, 0
        with suppress(OSError):
            self.pipe.send(piece)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


class _Crew(Generic[T, R]):
    """Children at work on the pieces that are waiting."""

    def __init__(
        self, work: Work[T, R], waiting: list[T], modules: list[str], told: Callable[[int], None]
    ) -> None:
        self.work, self.waiting, self.modules, self.told = work, waiting[::-1], modules, told
        self.children: list[_Child] = []
        self.losses = 0

    def results(self, many: int) -> Iterator[R]:
        try:
            for _ in range(many):
                self._add(self.waiting.pop())
            while self.children:
                ready = wait([child.pipe for child in self.children])
                for child in [child for child in self.children if child.pipe in ready]:
                    yield from self._heard(child)
        finally:
            for child in self.children:
                child.end()

    def _add(self, piece: T) -> None:
        child = _Child(self.modules, self.work)
        self.children.append(child)
        child.give(piece)

    def _heard(self, child: _Child) -> Iterator[R]:
        try:
            what, value = child.pipe.recv()
        except (EOFError, OSError):
            self._lost(child)
            return
        match what:
            case "told":
                child.counted += value
                self.told(value)
            case "done":
                if self.waiting:
                    child.give(self.waiting.pop())
                else:
                    self.children.remove(child)
                    child.end()
                yield value
            case _:
                raise _error_of(*value)

    def _lost(self, child: _Child) -> None:
        """A child was killed: begin its piece again, in another one."""
        self.children.remove(child)
        child.end()
        self.losses += 1
        self.told(-child.counted)
        if self.losses > LOSSES:
            code = child.process.returncode
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise ServerUnavailable(
                f"a process that folded streams {how}, and {LOSSES} others before it; what was done stays "
                "done: run it again, with fewer processes if memory is short"
            )
        self._add(child.piece)


def _error_of(name: str, message: str, traceback: str) -> Exception:
    """The error of a child: one of the ledger's as it was, all else as a defect with its traceback."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LedgerError):
        error = kind.__new__(kind)
        error.args = (message,)
        return error
    return RuntimeError(f"{name}: {message}\n{traceback}")
