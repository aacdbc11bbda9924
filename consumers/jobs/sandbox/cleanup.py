"""The state of a child process, restored between two operations."""

from __future__ import annotations

import gc
import locale
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_SIGNALS: Final = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE,
    signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_handler: Final = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
"""Without the enum, which takes ten times as long."""
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessState:
    """The state of a child before its first task: working folder, umask, signals, timers, locale, output.

    What cannot be restored makes the process unfit: child processes and threads that an operation left, and
    a closed or redirected standard output. Environment, `sys.path` and modules stay: they are often caches.
    """

    def __init__(self) -> None:
        self._folder = str(Path.cwd())
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers: dict[int, Any] = {int(number): _handler(number) for number in _SIGNALS}
        self._locale = locale.setlocale(locale.LC_ALL)
        self._depth = sys.getrecursionlimit()
        self._outputs = [_identity(fd) for fd in (1, 2)]

    def restore(self) -> bool:
        """Restore what can be restored; whether the process is fit for another task."""
        try:
            self._restore()
            return self._fit()
        except Exception:  # the folder was deleted, the locale is gone, …
            return False

    def _restore(self) -> None:
        for timer in _TIMERS:
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if _handler(number) is not handler:
                signal.signal(number, handler)
        os.chdir(self._folder)
        os.umask(self._umask)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        sys.setrecursionlimit(self._depth)
        sys.settrace(None)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        gc.enable()

    def _fit(self) -> bool:
        if any(stream is None or stream.closed for stream in (sys.__stdout__, sys.__stderr__)):
            return False
        if [_identity(fd) for fd in (1, 2)] != self._outputs:
            return False
        if threading.active_count() > 1 and any(
            not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()
        ):
            return False
        return not _has_children()


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _has_children() -> bool:
    """Whether processes are left, but for the one with which multiprocessing watches its resources."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    known = getattr(getattr(tracker, "_resource_tracker", None), "_pid", None)
    return known is None or children_of(os.getpid()) != {known}


def children_of(pid: int) -> set[int]:
    """The processes whose parent it is; on Linux. Elsewhere none are found."""
    found: set[int] = set()
    with suppress(OSError):
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with suppress(OSError, IndexError):
                    if int((process / "stat").read_bytes().rpartition(b")")[2].split()[1]) == pid:
                        found.add(int(process.name))
    return found
