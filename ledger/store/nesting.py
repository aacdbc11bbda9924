"""Which paths each thread has open: a nested open of one is refused, where it would wait for itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import AlreadyOpen

Path = Sequence[str]
"""The names of streams from the top of a tree down to the target."""
Opened = tuple[list[tuple[str, ...]], tuple[str, ...]]
"""A path that a thread has open: the list of its thread, and what to remove from there when it ends."""


class Nesting:
    """The paths that each thread has open: a nested open is refused, where it would wait for itself."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """Those of this thread; a fork has none open."""
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid, self._local.paths = os.getpid(), []
        found: list[tuple[str, ...]] = self._local.paths
        return found

    def enter(self, path: Path) -> Opened:
        """Note that this thread opens the path. Raises AlreadyOpen, naming the outer scope."""
        paths, entering = self.paths, tuple(path)
        for outer in tuple(paths):
            least = min(len(outer), len(entering))
            if outer[:least] == entering[:least]:
                raise AlreadyOpen(entering[-1], f"the scope of {outer[-1]} of this thread")
        paths.append(entering)
        return paths, entering

    @contextmanager
    def entered(self, path: Path) -> Iterator[None]:
        """This thread has the path open while the block runs. Raises AlreadyOpen, naming the outer scope."""
        paths, entering = self.enter(path)
        try:
            yield
        finally:
            paths.remove(entering)
