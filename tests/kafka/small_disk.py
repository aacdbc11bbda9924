"""A file system in memory that can be full. Only root may mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOM: Final = "4g"
SPARE: Final = 64 * 1024
"""Bytes that a full disk still has."""


class Disk:
    """A file system in a folder, while its block runs. can_be_full: whether it could be mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.can_be_full = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=0755", "none", str(self.folder)]
        self.can_be_full = os.geteuid() == 0 and _succeeds(command)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.can_be_full:
            _succeeds(["umount", "-l", str(self.folder)])

    def fill(self) -> None:
        """Leave no room; what is written meanwhile may need another attempt."""
        deadline = time.monotonic() + 10
        while not self._resize(str(shutil.disk_usage(self.folder).used + SPARE)):
            assert time.monotonic() < deadline, f"{self.folder} cannot be made small"

    def free(self) -> None:
        """Give room again."""
        assert self._resize(ROOM)

    def seal(self) -> None:
        """Let nobody write."""
        assert _succeeds(["mount", "-o", "remount,ro", str(self.folder)])

    def unseal(self) -> None:
        """Let all write again."""
        assert _succeeds(["mount", "-o", "remount,rw", str(self.folder)])

    def _resize(self, size: str) -> bool:
        return _succeeds(["mount", "-o", f"remount,size={size}", str(self.folder)])


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
