"""A thread that runs one job after the other, so that its caller can go on polling meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Runner:
    """A daemon thread: where a job never ends, it holds up no end of the process."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Have a job run after those before it; the future has its result, or its error."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    def end(self) -> None:
        """End the thread after the jobs that it has; waits for none."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (asked := self._jobs.get()) is not None:
            job, future = asked
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            del job, future, asked  # the connection or the error in it may be large
