"""
A runner on this machine: a locked file that shows that it lives, and the guard of its commands.

The file is locked as long as the runner, or its guard, lives: the system itself releases the lock, whatever
ended them. So the next runner need not wait until the lease of a killed one runs out. A lock is of this
machine only (or of a network folder that has locks); elsewhere the lease decides.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from . import guard

FOLDER: Final = ".pledger/builds/runners"


class Presence:
    """The presence of one runner. name: unique, `HOST-PID-…`. run: noted in the file for whoever finds it."""

    def __init__(self, root: Path, run: str) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self.path = root / FOLDER / self.name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        hidden = self.path.with_name(f".{self.name}")  # until it is locked
        self._file = hidden.open("x+")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(run)
        self._file.flush()
        hidden.rename(self.path)
        self._guard: subprocess.Popen[str] | None = None
        self._telling = threading.Lock()

    @contextmanager
    def guarding(self, pid: int) -> Iterator[None]:
        """Have this process group killed if the runner is gone before the end of the block."""
        self._tell(f"+{pid}")
        try:
            yield
        finally:
            self._tell(f"-{pid}")

    def close(self) -> None:
        """End it: the file is removed, and the guard ends."""
        self.path.unlink(missing_ok=True)
        if self._guard is not None:
            self._guard.communicate()
        self._file.close()

    def _tell(self, line: str) -> None:
        with self._telling, suppress(BrokenPipeError):  # somebody killed the guard: nothing is guarded
            self._pipe().write(f"{line}\n")

    def _pipe(self) -> IO[str]:
        """The guard's standard input; it begins with the first command."""
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE, text=True, bufsize=1,
                pass_fds=[self._file.fileno()], start_new_session=True,
            )  # fmt: skip
        assert self._guard.stdin is not None
        return self._guard.stdin


def is_gone(root: Path, runner: str) -> bool:
    """Whether a runner was one of this machine and folder, and has ended without saying so."""
    if not runner.startswith(f"{socket.gethostname()}-"):
        return False  # a network folder may have locks that only one machine sees
    try:
        with (root / FOLDER / runner).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it lives, or it is unknown here
        return False
    return True


def crashed_runs(root: Path) -> Iterator[tuple[Path, str]]:
    """The files of runners here that were killed, and their runs; delete each that was seen to.

    The run is empty where the runner had only one stage of it.
    """
    for path in [*(root / FOLDER).glob("[!.]*")]:
        if is_gone(root, path.name):
            with suppress(FileNotFoundError):
                yield path, path.read_text()
