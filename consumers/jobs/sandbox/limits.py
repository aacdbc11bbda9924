"""Limits that a child gets from the system: bounded memory, and an end with its parent."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Final

_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def limit_memory(megabytes: int | None) -> None:
    """Limit the address space: beyond it is a MemoryError. A system that cannot do that limits nothing."""
    if megabytes is None:
        return
    size = megabytes * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def die_with(parent: int) -> None:
    """Be killed when the parent process ends; on Linux. Elsewhere its pipe ends."""
    if sys.platform == "linux":
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(0)


def adopt() -> None:
    """Become the parent of descendants whose own parent ended; on Linux."""
    if sys.platform == "linux":
        _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
