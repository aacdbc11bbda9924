"""Every request that Prefect's own server answers is answered here, too, or is listed as absent."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gateway.http.runs.document import routes
from tests.prefect.clients import PATIENCE, PROGRAMS, VERSIONS, python_of
from tests.prefect.differences import ABSENT


def plain(request: str) -> str:
    """Without the names of parameters and a final slash."""
    return re.sub(r"\{[^}]*\}", "{}", request).rstrip("/")


@pytest.mark.slow
def test_what_is_absent_is_listed(version: str, tmp_path: Path) -> None:
    told = {**os.environ, "PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [str(python_of(version)), str(PROGRAMS / "requests_of_server.py")]
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=True, timeout=PATIENCE)
    theirs = {plain(line) for line in done.stdout.splitlines()}
    ours = {plain(f"{method} {path}") for method, path, _ in routes()}
    assert len(theirs) > 150
    assert theirs - ours <= set(ABSENT)
    assert version != VERSIONS[0] or theirs - ours == set(ABSENT)
