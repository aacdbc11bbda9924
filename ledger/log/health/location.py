"""Checks of the location: the connected sessions, and the folder of the embedded server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...embedded import Embedded
from ...errors import ServerUnavailable
from ..admin import embedded_home
from .checks import Check, Examined, fail, ok, warn

LITTLE, TOO_LITTLE = 1 << 30, 100 << 20
"""Bytes of free disk: below the first the check warns, below the second the next append may fail."""


def sessions(look: Examined) -> Iterator[Check]:
    """The other sessions of this database."""
    others = [f"{count} × {name}" for name, count in look.rows("sessions")]
    yield ok("sessions", f"also connected to this database: {', '.join(others) or 'nobody'}")


def place(look: Examined) -> Iterator[Check]:
    """The folder of the embedded server, its clients, and its free disk."""
    home = embedded_home(look.address.printable)
    if home is None:
        yield ok("place", f"{look.address.printable}, named by {look.address.source}")
        return
    pid = Embedded(home).postmaster_pid()
    clients = clients_of(home)
    known = "" if clients is None else f", for the processes {', '.join(map(str, clients)) or '(none)'}"
    yield ok("place", f"embedded server in {home}, named by {look.address.source}, process {pid}{known}")
    yield _disk(home / "data")


def _disk(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder if os.access(folder, os.X_OK) else folder.parent).free
    except OSError as error:
        raise ServerUnavailable(f"{folder}: {error.strerror}") from None
    says = f"{free / (1 << 30):.1f} GiB are free for {folder}"
    if free < TOO_LITTLE:
        return fail("disk", says, "free some space now: on a full disk appends are refused")
    if free < LITTLE:
        return warn("disk", says, "free some space soon")
    return ok("disk", says)


def clients_of(home: Path) -> list[int] | None:
    """The processes that keep the server running, from the kernel's table of locks.

    A fork that inherited its lock is not named. None where the system has no such table.
    """
    try:
        inode = (home / "clients.lock").stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    held = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    return sorted({int(words[4]) for words in held if words[5].rsplit(":", 1)[-1] == str(inode)})


CHECKS = (sessions, place)
