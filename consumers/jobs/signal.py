"""A signal between threads that `multiprocessing.connection.wait` can wait for."""

from __future__ import annotations

import socket
from contextlib import suppress


class Signal:
    """Set by one thread, and cleared by another that waits until its `fileno` is readable."""

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair()
        for end in (self._in, self._out):
            end.setblocking(False)

    def fileno(self) -> int:
        """Of the socket that is readable while the signal is set."""
        return self._in.fileno()

    def set(self) -> None:
        """Set it; nothing happens if it is set already, or closed."""
        with suppress(OSError):
            self._out.send(b".")

    def clear(self) -> None:
        """Clear it."""
        with suppress(BlockingIOError):
            self._in.recv(4096)

    def close(self) -> None:
        """Close its sockets."""
        self._in.close()
        self._out.close()
