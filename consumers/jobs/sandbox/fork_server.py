"""
A fork server: a process that has imported what operations need, and forks the child processes that run them.

A fork takes 10 ms, a new interpreter 500 ms. The fork server runs no operation and has one thread. It reports
how each child ended, kills the processes that a child leaves behind, and kills all children when the process
of the worker ends in any way. On Linux it kills every descendant of a child, also those that left its process
group; elsewhere it kills the process group.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Any, Final

FORKS: Final = sys.platform != "darwin"
"""Whether a child is a plain fork; on macOS, whose libraries forbid that, it runs a new interpreter."""
BOOT: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); "
    "from consumers.jobs.sandbox.{0} import main; main(*sys.argv[1:])"
)
"""What a new interpreter runs: with the path of its worker, so that it imports the same."""
_LINE: Final = 2**16

_numbers = count(1)


def command(module: str, *arguments: object) -> list[str]:
    """How to run `main` of a module of this package in a new interpreter."""
    paths = "\n".join(sys.path)
    return [sys.executable, "-c", BOOT.format(module), paths, *map(str, arguments)]


class ForkServer:
    """The worker's side, for many threads. One fork server serves all workers of a process (`shared`)."""

    def __init__(self, *, forks: bool = FORKS) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command("fork_server_main", theirs.fileno(), int(forks)),
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._socket, self._lock, self._buffer = ours, threading.Lock(), b""
        self._ended: dict[int, int] = {}
        self.owner, self.alive = os.getpid(), True

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def start(self, key: bytes, task_fd: int, stop_fd: int, output_fd: int) -> int:
        """Start a child with copies of these descriptors; returns its number for `ended` and `kill`."""
        number = next(_numbers)
        message = json.dumps({"start": number, "key": key.hex()}).encode() + b"\n"
        with self._lock:
            try:
                socket.send_fds(self._socket, [message], [task_fd, stop_fd, output_fd])
            except OSError:
                self.alive = False
        return number

    def kill(self, number: int) -> None:
        """Kill a child and all that it started."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"kill": number}).encode() + b"\n")
            except OSError:
                self.alive = False

    def ended(self, number: int, seconds: float) -> int | None:
        """The exit code of a child, or minus the signal; None if it did not end in so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                if number in self._ended:
                    return self._ended.pop(number)
                left = deadline - time.monotonic()
                if not self.alive or left <= 0:
                    return None
                self._read(min(left, 0.05))

    def close(self) -> None:
        """End it, and with it all its children."""
        self.alive = False
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(seconds * 1000):
            return
        data = b""
        with suppress(OSError):
            data = self._socket.recv(_LINE)
        if not data:
            self.alive = False
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            self._ended[message["ended"]] = message["code"]


_shared: ForkServer | None = None
_lock = threading.Lock()


def shared() -> ForkServer:
    """The fork server of this process; a new one if that ended, or belongs to a parent that forked."""
    global _shared
    with _lock:
        if _shared is None or not _shared.alive or _shared.owner != os.getpid():
            if _shared is not None and _shared.owner == os.getpid():
                _shared.close()
            _shared = ForkServer()
        return _shared


def _close_shared() -> None:
    if _shared is not None and _shared.owner == os.getpid():
        _shared.close()


atexit.register(_close_shared)
