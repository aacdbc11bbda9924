"""SIGTERM and Ctrl-C: the first asks what runs to come to its end, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..codes import Terminated

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first signal sets. Raises Terminated or KeyboardInterrupt at the second one."""
    stop = threading.Event()

    def came(number: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
        elif number == signal.SIGTERM:
            raise Terminated
        else:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, came) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
