"""The command `prefect`, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from unittest import mock

from prefect.cli import app


def prefect(*arguments: str) -> tuple[int, str]:
    """Run a command of Prefect here, which saves the start of a process: its exit code and what it said."""
    said = io.StringIO()
    with mock.patch.object(sys, "argv", ["prefect", *arguments]), contextlib.redirect_stdout(said):
        try:
            app()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, said.getvalue()


def done(*arguments: str) -> str:
    """What a command said that must succeed."""
    code, said = prefect(*arguments)
    assert code == 0, (arguments, said)
    return said


@contextlib.contextmanager
def beside(*command: str, until: str = "", end: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """A program that runs beside this one until the end of the block; entered when it has said `until`."""
    process = subprocess.Popen(
        [sys.executable, "-u", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    said = process.stdout or io.StringIO()
    for line in said if until else ():
        if until in line:
            break
    # What it says later is read too: a full pipe would stop it.
    reader = threading.Thread(target=lambda: sys.stdout.writelines(said), daemon=True)
    reader.start()
    try:
        yield
    finally:
        process.send_signal(end)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        reader.join()
