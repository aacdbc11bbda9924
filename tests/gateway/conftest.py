"""Running `pledger`: as a process of its own, at a terminal, and in this process where that is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from tests.fork_server import python

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "gateway.cli.main"]
"""`pledger` in a new interpreter; `forked()` starts faster."""


@dataclass(frozen=True)
class Ended:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The tab-separated lines of stdout."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON Lines of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The JSON object on the last line of stderr."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found


def forked() -> list[str]:
    """`pledger` as a process of its own."""
    return [*python(), "-m", "gateway.cli.main"]


def environment(**more: str) -> dict[str, str]:
    """Ours, without what steers the ledger or libpq."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LEDGER_"))}
    if "LEDGER_PG_BIN" in os.environ:
        kept["LEDGER_PG_BIN"] = os.environ["LEDGER_PG_BIN"]
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "NO_COLOR": ""} | more


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that steers us or libpq, but for the binaries that a developer chose."""
    for name in os.environ:
        if name.startswith(("PG", "LEDGER_")) and name != "LEDGER_PG_BIN":
            monkeypatch.delenv(name)


@pytest.fixture
def process(dsn: str) -> Callable[..., Ended]:
    """Run a command as a process of its own, on this test's ledger."""

    def run(*arguments: str, **more: str) -> Ended:
        done = subprocess.run(
            [*forked(), *arguments],
            env=environment(**({"LEDGER_DSN": dsn} | more)),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def started(dsn: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command that goes on; killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **ways: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | ways
        process = subprocess.Popen(
            [*forked(), *arguments], env=environment(LEDGER_DSN=dsn), text=True, **pipes
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def pledger(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run a command in this process, on this test's ledger; knows the domains of the tests."""
    monkeypatch.setenv("LEDGER_DSN", dsn)

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return Ended(int(code), said.out, said.err)

    return run
