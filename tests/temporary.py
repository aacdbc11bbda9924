"""Where tests keep temporary files: in memory where that has room.

A server has 1,000 files and a database 300. On a disk a server takes one processor 2 s, in memory 0.5; a
database 0.2 s and 0.02.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
"""A file system in memory, and how many bytes of it must be free."""


def _is_good() -> bool:
    """Whether it is there and has room, and programs may lie in it, which some tests write."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


IN_MEMORY = _is_good()


def use_memory() -> None:
    """Keep the temporary files of this process, and of all that it starts, in memory where that is good."""
    if IN_MEMORY:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


def short_folder(purpose: str) -> Path:
    """A new folder with a path so short that a socket may lie in it; who makes it deletes it."""
    folder = tempfile.mkdtemp(prefix=f"ledger-{purpose}-", dir=MEMORY if IN_MEMORY else "/tmp")
    return Path(folder).resolve()
