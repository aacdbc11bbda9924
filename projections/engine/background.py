"""Work that goes on in a thread for as long as a `with` block: a projector, a reactor."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from ledger import BadInput


class Background(ABC):
    """`with` runs it in a thread; an error that ended the thread is raised where the block ends.

    title: what messages and the thread call it. moved: a condition, notified of progress and of the failure.
    """

    title: str

    def __init__(self) -> None:
        self.moved = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @abstractmethod
    def run(self, stop: threading.Event | None = None) -> None:
        """Work until `stop` is set."""

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise self.runs_already()
        self._stop.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._in_thread, name=self.title, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._failure is not None:
            if error is None:
                raise self._failure
            if error is not self._failure:  # `wait_until` raised it already
                error.add_note(f"The {self.title} had failed as well: {self._failure}")

    def wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Whether `done` holds within the time; asked whenever `moved` is notified. Raises the failure."""
        with self.moved:
            self.moved.wait_for(lambda: self._failure is not None or done(), seconds)
            if self._failure is not None:
                raise self._failure
            return done()

    def runs_already(self) -> BadInput:
        """The error where it is run a second time."""
        return BadInput(f"{self.title} is running already: make another object to run a second one")

    def _in_thread(self) -> None:
        try:
            self.run(self._stop)
        except BaseException as error:
            with self.moved:
                self._failure = error
                self.moved.notify_all()
