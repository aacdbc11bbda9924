"""The checksum of a block's schema is the one that Prefect's client computes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from ledger.runs.block_schemas import checksum
from tests.prefect.clients import python_of

PROGRAM = Path(__file__).parent / "programs" / "block_schemas.py"


def test_the_client_and_the_ledger_compute_the_same_checksums(version: str, tmp_path: Path) -> None:
    told = {**os.environ, "PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [str(python_of(version)), str(PROGRAM)]
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=True, timeout=120)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 6
    assert [checksum(one["fields"]) for one in found] == [one["checksum"] for one in found]
