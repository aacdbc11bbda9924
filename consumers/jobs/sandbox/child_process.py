"""A child process of a slot: its pipes, its output, and its number in the fork server."""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..messages import Begin, Task
from .fork_server import ForkServer, shared
from .frames import KEY, FrameSocket, frame, pack
from .output import Output

TIMEOUT: Final = 5.0
"""Seconds for a free process to read its task, and for a killed one to be gone."""


class ChildProcess:
    """One child process. registry, connect, memory_mb: as of its slot."""

    def __init__(
        self, registry: str, connect: dict[str, Any], memory_mb: int | None, fork_server: ForkServer | None
    ) -> None:
        key = os.urandom(KEY)
        ours, theirs = socket.socketpair()
        self.pipe, self.output = FrameSocket(ours, key), Output()
        self.fork_server = fork_server or shared()
        self._code: int | None = None
        stop_fd, self._stop_fd = os.pipe()
        os.set_blocking(self._stop_fd, False)
        with theirs:
            self._number = self.fork_server.start(key, theirs.fileno(), stop_fd, self.output.writing)
        os.close(stop_fd)
        os.close(self.output.writing)
        folder, environment = str(Path.cwd()), dict(os.environ)
        begin = Begin(registry, dict(connect), list(sys.path), folder, environment, memory_mb)
        with suppress(OSError):  # it died: its pipe is at its end
            self.pipe.send_frame(pickle.dumps(begin), TIMEOUT)

    def run(self, task: Task) -> None:
        """Send it a task; one that does not read it is killed."""
        self.output.begin()
        try:
            self.pipe.send_frame(pack(task), TIMEOUT)
        except TimeoutError:
            self.fork_server.kill(self._number)
        except OSError:
            pass

    def request_stop(self, task: Task, reason: str) -> None:
        """Tell the operation of this task to stop."""
        message = json.dumps([task.stream, task.token, reason]).encode()
        with suppress(OSError):  # it died, or no longer listens
            os.write(self._stop_fd, frame(bytes(KEY), message))

    def exit_code(self, seconds: float = 0.0) -> int | None:
        """Its exit code, or minus the signal, once it ended; None if it did not in so many seconds."""
        if self._code is None:
            self._code = self.fork_server.ended(self._number, seconds)
        return self._code

    def kill(self) -> int | None:
        """Kill it and all that it started; its exit code, None where it is unknown."""
        if self._code is None:
            self.fork_server.kill(self._number)
        return self.exit_code(TIMEOUT)

    def close(self) -> None:
        """Close our ends of its pipes: an idle child then ends by itself."""
        self.pipe.close()
        with suppress(OSError):
            os.close(self._stop_fd)
        self._stop_fd = -1
        self.output.close()
