"""The output of a child: read from its pipe, passed on up to a limit, its end kept."""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .errors import clean

FORWARDED: Final = 2**18
"""Bytes of a task's output that are passed on to the worker's standard error."""
TAIL: Final = 2000
"""Characters of a task's output that are kept for the details of its failure."""
PIPE_SIZE: Final = 2**20
"""Bytes that the pipe holds, where the system allows it, and that are read at once."""
READ_PAUSE: Final = 0.002
"""Seconds between two full reads, so that no operation keeps the worker's interpreter busy by printing."""


class Output:
    """One child's output: `writing` is the end for the child, to be closed here once it has it.

    A thread reads it; memory stays within the limits, whatever is printed. sink: where it is passed on to.
    """

    def __init__(self, sink: Callable[[bytes], Any] | None = None) -> None:
        self._sink = sink or _to_stderr
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self.reading, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self._woken, self._wake = os.pipe()
        self._lock = threading.Lock()
        self._tail, self._waiting, self._left = b"", b"", FORWARDED
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="output of a child", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Another task starts: what is in the pipe belongs to the last one."""
        with self._lock:
            self._read()
            self._tail, self._left = b"", FORWARDED

    def tail(self) -> str:
        """The end of what was printed since `begin`, up to now."""
        with self._lock:
            for _ in range(4):  # an ended child leaves a pipe full of it, at most
                if not self._read():
                    break
            return clean(self._tail.decode("utf-8", "replace")[-TAIL:])

    def close(self) -> None:
        """Read no more."""
        os.close(self._wake)
        self._thread.join(1.0)  # it may be held up by who reads our standard error

    def _run(self) -> None:
        asked = select.poll()
        asked.register(self.reading, select.POLLIN)
        asked.register(self._woken, select.POLLIN)
        while not self._ended:
            ready = {fd for fd, _ in asked.poll()}
            with self._lock:
                size = self._read()
                waiting, self._waiting = self._waiting, b""
            if waiting:
                self._sink(waiting)
            if self._woken in ready:
                break
            if size >= PIPE_SIZE // 2:
                time.sleep(READ_PAUSE)
        with self._lock:
            waiting, self._waiting, self._ended = self._waiting, b"", True
            os.close(self.reading)
            os.close(self._woken)
        if waiting:
            self._sink(waiting)

    def _read(self) -> int:
        """Take what is there; how many bytes. Under the lock."""
        if self._ended:
            return 0
        try:
            data = os.read(self.reading, PIPE_SIZE)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._ended = True
            return 0
        self._tail = (self._tail + data[-4 * TAIL :])[-4 * TAIL :]
        if self._left > 0:
            self._waiting += data[: self._left]
            self._left -= len(data)
            if self._left <= 0:
                self._waiting += b"\n[more was printed; it is not shown]\n"
        return len(data)


def _to_stderr(data: bytes) -> None:
    with suppress(OSError):
        os.write(2, data)
