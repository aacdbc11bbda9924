"""Where the environments of Prefect's client are, and what a program that runs in one is told."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT

VERSIONS = ("3.8", "3.6")
"""What the scenarios run with; dev.py makes `.prefect/VERSION` from `requirements-prefect-VERSION.lock`."""
PROGRAMS = Path(__file__).with_name("programs")
PATIENCE = 900.0
"""Seconds after which a program is ended; the longest takes about 30 on two idle cores."""


def python_of(version: str) -> Path:
    """The interpreter of an environment with this version of Prefect."""
    return ROOT / ".prefect" / version / "bin" / "python"


def told(home: Path, url: str) -> dict[str, str]:
    """The environment of a client: a folder of its own, this server, and services that ask often."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "PYTHON"))}
    return ours | {
        "PREFECT_HOME": str(home), "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        "PREFECT_LOCAL_STORAGE_PATH": str(home / "storage"),
        "PREFECT_API_URL": url, "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false", "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1", "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_CLI_COLORS": "false", "COLUMNS": "300", "NO_COLOR": "1",
        "PYTHONPYCACHEPREFIX": str(ROOT / ".prefect" / "bytecode"),
        "SCENARIO_REPORT": str(home / "report.json"),
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code, what it said, and what it reported."""

    code: int
    said: str
    report: Mapping[str, Any]


def play(version: str, program: str, home: Path, url: str, *, patience: float = PATIENCE) -> Ended:
    """Run a program with a version of Prefect against a server, to its end, for at most so many seconds."""
    home.mkdir(parents=True)
    with (home / "said.log").open("wb") as said:
        process = subprocess.Popen(
            [python_of(version), PROGRAMS / program], env=told(home, url), cwd=home, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            end_group(process.pid)
            process.wait()
    report = home / "report.json"
    return Ended(
        code,
        (home / "said.log").read_text(errors="replace"),
        json.loads(report.read_text()) if report.exists() else {},
    )


def end_group(leader: int) -> None:
    """Kill what is left of a program and of the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, 9)
