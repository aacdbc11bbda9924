"""A child as its slot holds it: its pipes, its output, and its number in the nursery."""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .messages import Begin, Task
from .nursery import Nursery, shared
from .output import Output
from .wire import KEY, Line, frame, pack

TAKES: Final = 5.0
"""Seconds in which a free process takes its task; and in which a killed one is gone."""


class Process:
    """One child, from its begin to its end. registry, where, memory_mb: as of its slot."""

    def __init__(
        self, registry: str, where: dict[str, Any], memory_mb: int | None, nursery: Nursery | None
    ) -> None:
        key = os.urandom(KEY)
        ours, theirs = socket.socketpair()
        self.pipe, self.output = Line(ours, key), Output()
        self.nursery = nursery or shared()
        self._code: int | None = None
        stop_fd, self._stop_fd = os.pipe()
        os.set_blocking(self._stop_fd, False)
        with theirs:
            self._number = self.nursery.begin(key, theirs.fileno(), stop_fd, self.output.writing)
        os.close(stop_fd)
        os.close(self.output.writing)
        folder, environment = str(Path.cwd()), dict(os.environ)
        begin = Begin(registry, dict(where), list(sys.path), folder, environment, memory_mb)
        with suppress(OSError):  # it died: the end of its pipe says so
            self.pipe.give(pickle.dumps(begin), TAKES)

    def give(self, task: Task) -> None:
        """Let it run a task; one that does not take it is ended."""
        self.output.begin()
        try:
            self.pipe.give(pack(task), TAKES)
        except TimeoutError:
            self.nursery.kill(self._number)
        except OSError:
            pass

    def tell_stop(self, task: Task, reason: str) -> None:
        """Tell the operation of this task to stop."""
        said = json.dumps([task.stream, task.token, reason]).encode()
        with suppress(OSError):  # it died, or listens to nothing any more
            os.write(self._stop_fd, frame(bytes(KEY), said))

    def code(self, seconds: float = 0.0) -> int | None:
        """Its exit code, or minus the signal, once it ended; None if it did not, in so many seconds."""
        if self._code is None:
            self._code = self.nursery.ended(self._number, seconds)
        return self._code

    def kill(self) -> int | None:
        """End it and all that it began; its code, as of `code`, None where nobody can tell."""
        if self._code is None:
            self.nursery.kill(self._number)
        return self.code(TAKES)

    def let_go(self) -> None:
        """Close what is ours of it: one that has nothing to do ends by itself."""
        self.pipe.close()
        with suppress(OSError):
            os.close(self._stop_fd)
        self._stop_fd = -1
        self.output.close()
