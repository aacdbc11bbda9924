"""A process that closes nothing ends at once, and quietly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Python 3.12 warns of every fork beside threads; psycopg of a connection that a fork has from its parent.
IGNORED = ["-W", "error", "-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"]
PROGRAM = """
import os, sys
import ledger
from projections import Follower
from tests.lamp import LampRead

log = ledger.connect()
log.append("lamp/a", LampRead())
Follower(log).poll()
if "fork" in sys.argv:
    child = os.fork()
    if not child:
        log.append("lamp/a", LampRead())
        sys.exit(0)
    os.waitpid(child, 0)
print(log.append("lamp/a", LampRead()).version)
"""


@pytest.mark.parametrize(("word", "version"), [("alone", 2), ("fork", 3)])
def test_a_process_that_closes_nothing_ends_quietly(dsn: str, word: str, version: int) -> None:
    ended = subprocess.run(
        [sys.executable, *IGNORED, "-c", PROGRAM, word],
        env=os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{version}\n", "")
