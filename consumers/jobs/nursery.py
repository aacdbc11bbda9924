"""
Where the processes of operations come from: a process that has imported what they need, and forks.

A child begins in a hundredth of a second instead of half a one. The nursery runs nothing of the operations,
has one thread, and looks after its children: it says how each ended, ends what they left behind, and ends
them all when its worker's process is gone, however that went. On Linux that is everything that descends from
a child, also what has left its process group; elsewhere it is the process group.
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
"""Whether a child is forked and goes on; on macOS, whose libraries do not bear that, it begins anew."""
BOOT: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); "
    "from consumers.jobs.{0} import main; main(*sys.argv[1:])"
)
"""What a new interpreter runs: with the path of its worker, so that it imports the same."""
_LINE: Final = 2**16

_numbers = count(1)


def command(module: str, *arguments: object) -> list[str]:
    """How to run `main` of a module of this package in a new interpreter."""
    paths = "\n".join(sys.path)
    return [sys.executable, "-c", BOOT.format(module), paths, *map(str, arguments)]


class Nursery:
    """The worker's side. For many threads; one serves all workers of a process (`shared`)."""

    def __init__(self, *, forks: bool = FORKS) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command("nursery_side", theirs.fileno(), int(forks)),
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._socket, self._lock, self._came = ours, threading.Lock(), b""
        self._ended: dict[int, int] = {}
        self.owner, self.alive = os.getpid(), True

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def begin(self, key: bytes, task_fd: int, stop_fd: int, output_fd: int) -> int:
        """Let a child begin, which gets copies of these; its number here. Its end is told by `ended`."""
        number = next(_numbers)
        said = json.dumps({"begin": number, "key": key.hex()}).encode() + b"\n"
        with self._lock:
            try:
                socket.send_fds(self._socket, [said], [task_fd, stop_fd, output_fd])
            except OSError:
                self.alive = False
        return number

    def kill(self, number: int) -> None:
        """End a child, and all that it began."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"kill": number}).encode() + b"\n")
            except OSError:
                self.alive = False

    def ended(self, number: int, seconds: float) -> int | None:
        """Its exit code, or minus the signal, once a child ended. None if it did not in so many seconds."""
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
        asked = select.poll()
        asked.register(self._socket, select.POLLIN)
        if not asked.poll(seconds * 1000):
            return
        data = b""
        with suppress(OSError):
            data = self._socket.recv(_LINE)
        if not data:
            self.alive = False
            return
        *lines, self._came = (self._came + data).split(b"\n")
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            self._ended[said["ended"]] = said["code"]


_shared: Nursery | None = None
_lock = threading.Lock()


def shared() -> Nursery:
    """The nursery of this process; another one where that ended, or is a forked parent's."""
    global _shared
    with _lock:
        if _shared is None or not _shared.alive or _shared.owner != os.getpid():
            if _shared is not None and _shared.owner == os.getpid():
                _shared.close()
            _shared = Nursery()
        return _shared


def _close_shared() -> None:
    if _shared is not None and _shared.owner == os.getpid():
        _shared.close()


atexit.register(_close_shared)
