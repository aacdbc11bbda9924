"""
Work on many pieces in several processes, each with a connection of its own.

The processes are fresh interpreters (no fork: threads and sockets of the parent are not shared with them)
that import the modules which declare the streams of this process. They end with their parent, however it
ends. A child that is killed is replaced, and its piece is begun again.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ledger import errors
from ledger.domain.known import KNOWN
from ledger.errors import BadInput, LedgerError, ServerUnavailable
from ledger.log.ledger import Ledger

T = TypeVar("T")
R = TypeVar("R")
T_in = TypeVar("T_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)

LOSSES: Final = 3
"""Children that may be killed before the run fails."""
BOOT: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from projections.fold.processes import main; main(int(sys.argv[2]))"
)


class Place(NamedTuple):
    """The address of a ledger, for a process that opens its own connection."""

    conninfo: str
    schema: str

    @classmethod
    def of(cls, ledger: Ledger) -> Place:
        """The place of an open ledger."""
        return cls(ledger.address.conninfo, ledger.schema)


class Work(Protocol[T_in, R_out]):
    """The work on each piece; it is pickled for the processes and opened there."""

    def open(self) -> None:
        """Prepare, in the process that works."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def __call__(self, piece: T_in, report: Callable[[int], None]) -> R_out:
        """Process a piece. report: called with the progress since the last call."""


def in_processes(
    work: Work[T, R], pieces: Iterable[T], processes: int, report: Callable[[int], None] = lambda _: None
) -> Generator[R, None, None]:
    """The results of the pieces, as they come. processes: how many; 1 works in this one.

    Other processes cannot import streams that a program's main module declares; then this process does the
    work, whatever `processes` is. Raises what the work raises, and BadInput where a module that declares
    streams cannot be imported by another process. A caller who stops early must close the generator.
    """
    if processes < 1:
        raise BadInput(f"{processes} processes cannot do the work: give 1 or more")
    modules = KNOWN.modules()
    waiting = [*pieces]
    if min(processes, len(waiting)) <= 1 or "__main__" in modules or not sys.executable:
        yield from _in_this_process(work, waiting, report)
    else:
        yield from _Children(work, waiting, modules, report).results(min(processes, len(waiting)))


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_this_process(work: Work[T, R], pieces: Iterable[T], report: Callable[[int], None]) -> Iterator[R]:
    work.open()
    try:
        for piece in pieces:
            yield work(piece, report)
    finally:
        work.close()


class _Child:
    """One process, its pipe, and its present piece."""

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


class _Children(Generic[T, R]):
    """Children at work on the pieces that are waiting."""

    def __init__(
        self, work: Work[T, R], waiting: list[T], modules: list[str], report: Callable[[int], None]
    ) -> None:
        self.work, self.waiting, self.modules, self.report = work, waiting[::-1], modules, report
        self.children: list[_Child] = []
        self.losses = 0

    def results(self, many: int) -> Iterator[R]:
        try:
            for _ in range(many):
                self._add(self.waiting.pop())
            while self.children:
                ready = wait([child.pipe for child in self.children])
                for child in [child for child in self.children if child.pipe in ready]:
                    yield from self._received(child)
        finally:
            for child in self.children:
                child.end()

    def _add(self, piece: T) -> None:
        child = _Child(self.modules, self.work)
        self.children.append(child)
        child.give(piece)

    def _received(self, child: _Child) -> Iterator[R]:
        try:
            what, value = child.pipe.recv()
        except (EOFError, OSError):
            self._lost(child)
            return
        match what:
            case "progress":
                child.counted += value
                self.report(value)
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
        """A child was killed: begin its piece again in another child."""
        self.children.remove(child)
        child.end()
        self.losses += 1
        self.report(-child.counted)
        if self.losses > LOSSES:
            code = child.process.returncode
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise ServerUnavailable(
                f"a process that folded streams {how}, after {LOSSES} others; finished work is kept: run it "
                "again, with fewer processes if memory is short"
            )
        self._add(child.piece)


def _error_of(name: str, message: str, traceback: str) -> Exception:
    """The error of a child: a ledger error unchanged, any other as a defect with its traceback."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LedgerError):
        error = kind.__new__(kind)
        error.args = (message,)
        return error
    return RuntimeError(f"{name}: {message}\n{traceback}")


def main(descriptor: int) -> None:
    """Receive work and pieces from the pipe, and answer on it, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    _end_with(os.getppid())
    pipe: Connection[Any, Any] = Connection(descriptor)
    try:
        _work(pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone: nobody reads the answer


def _work(pipe: Connection[Any, Any]) -> None:
    try:
        modules, work = pipe.recv()
        _know(modules)
        work.open()
        while True:
            pipe.send(("done", work(pipe.recv(), lambda count: pipe.send(("progress", count)))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(("failed", (type(error).__name__, str(error), traceback.format_exc())))
        pipe.recv()  # until the parent ends this


def _know(modules: list[str]) -> None:
    """Import the modules that declare streams. Raises BadInput for those that only the parent can import."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # any error of a user's module
            raise BadInput(
                f"another process cannot import {name}, which declares streams ({type(error).__name__}: "
                f"{error}): use one process, or make it a module that can be imported"
            ) from error


def _end_with(parent: int) -> None:
    """End with the parent, also while a statement runs; the pipe is read only between statements."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os._exit(1)
