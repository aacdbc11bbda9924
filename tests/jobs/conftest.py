"""Workers for tests of jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from consumers.jobs import Worker
from ledger import Ledger
from ledger.jobs import Jobs

REGISTRY = "tests.jobs.operations:registry"


class AtWork:
    """A worker in a thread. gave_back: what its run returned; error: what it raised."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.stop = worker, threading.Event()
        self.gave_back: bool | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.gave_back = self.worker.run(self.stop)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Tell it to end, and wait for that."""
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def working(log: Ledger, registry: str = REGISTRY, **options: Any) -> Iterator[AtWork]:
    """A worker that runs while the block does; without services unless they are asked for."""
    given = {"concurrency": 2, "services": False, **options}
    at_work = AtWork(Worker(log, registry, **given))
    at_work.thread.start()
    try:
        yield at_work
    except BaseException as error:
        error.add_note(f"The worker: {at_work.error!r}; {at_work.worker._claims}")
        raise
    finally:
        at_work.end()


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def topics(jobs: Jobs, job: str) -> list[str]:
    """The topics of a job's facts, in order."""
    return [event.topic for event in jobs.events(job)]
