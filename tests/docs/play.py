"""Plays one page in a process of its own: `python -m tests.docs.play PAGE`, in the page's folder.

Python blocks share one namespace, that of `__main__`. A console line runs as a person at a terminal would see
it. An SQL block runs as the administrator. What does not come as the page shows it ends the process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import linecache
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import traceback
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from tests.docs.pages import Block, name_of, runnable
from tests.docs.shown_output import matches, on_screen

PROGRAMS = frozenset({"pledger", "pg_dump", "pg_restore", "psql", "createdb", "python"})
"""What a console block may run; all else must be marked as not run."""
COLUMNS = 160


class Player:
    """One page, block by block."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""

    def play(self) -> None:
        """Run every block that is not marked."""
        for block in runnable(self.page):
            if block.mark == "file":
                Path(block.value).write_text(block.text, encoding="utf-8")
            elif block.mark != "not run":
                getattr(self, f"_{block.kind}")(block)

    def _python(self, block: Block) -> None:
        place = f"{self.page.name} line {block.line}"
        linecache.cache[place] = (len(block.text), None, block.text.splitlines(keepends=True), place)
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, place, "exec"), self.names)
        except Exception:
            self._fail(block, traceback.format_exc())
        self.printed = out.getvalue()

    def _text(self, block: Block) -> None:
        if not matches(block.text, self.printed):
            self._fail(block, f"the page shows:\n{block.text}\nthis was printed:\n{self.printed}")

    def _sql(self, block: Block) -> None:
        with psycopg.connect(os.environ["DOCS_ADMIN_DSN"], autocommit=True) as connection:
            connection.execute(block.text.encode())

    def _console(self, block: Block) -> None:
        for part in ("\n" + block.text).split("\n$ ")[1:]:
            command, _, shown = part.partition("\n")
            words = [word for word in shlex.split(command) if "=" not in word.partition("-")[0]]
            if not words or words[0] not in PROGRAMS:
                self._fail(block, f"`{command}` is none of {sorted(PROGRAMS)}: mark the block as not run")
            code, real = at_a_terminal(command)
            if code and not shown.strip():
                self._fail(block, f"`{command}` ended with {code}:\n{real}")
            if shown.strip() and not matches(shown, real):
                self._fail(
                    block, f"`{command}` ended with {code}\nthe page shows:\n{shown}\nthis came:\n{real}"
                )

    def _fail(self, block: Block, why: str) -> NoReturn:
        sys.exit(f"{name_of(self.page)}:{block.line}: {why}")


def at_a_terminal(command: str) -> tuple[int, str]:
    """Exit code of a command, and all that a person would see of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    shell = ["/bin/sh", "-c", command]
    process = subprocess.Popen(shell, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0)
    if command.rstrip().endswith("&"):
        atexit.register(_end, process.pid)
    os.close(theirs)
    seen = bytearray()
    with contextlib.suppress(OSError):  # on Linux the end of the last writer is an error
        while chunk := os.read(ours, 65536):
            seen += chunk
    os.close(ours)
    return process.wait(), on_screen(seen.decode(errors="replace"))


def _end(group: int) -> None:
    """End what a command has left in the background; a page ends it itself, unless it went wrong."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as for a script of the reader's; the project itself is on PYTHONPATH
    Player(Path(sys.argv[1])).play()
