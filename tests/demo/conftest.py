"""Images to run the demo on, and the demo as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from imageio.v3 import imwrite

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs" / "examples" / "lsm_pipeline" / "run.py"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def images(tmp_path: Path) -> dict[str, list[Any]]:
    """A folder `images` of three files; the channels of each by name, as depth × rows × columns."""
    folder, noise = tmp_path / "images", np.random.default_rng(7)
    folder.mkdir()
    deep = noise.integers(0, 65536, (3, 40, 63), dtype="u2")
    tifffile.imwrite(folder / "a.tif", deep, photometric="minisblack")
    colours = noise.integers(0, 256, (37, 61, 3), dtype="u1")
    imwrite(folder / "b.png", colours)
    narrow = noise.integers(0, 256, (31, 2), dtype="u1")
    imwrite(folder / "c.png", narrow)
    (folder / "notes.txt").write_text("not an image")
    return {"a": [deep], "b": [colours[None, :, :, k] for k in range(3)], "c": [narrow[None]]}


@pytest.fixture
def start(dsn: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the demo on this test's ledger; what is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": paths, "NO_COLOR": "1"} | environment
        ways: dict[str, Any] = {"cwd": tmp_path, "env": env, "text": True}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, str(RUN), *arguments], **pipes, **ways))
        return started[-1]

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def demo(start: Start) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the demo to its end."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run
