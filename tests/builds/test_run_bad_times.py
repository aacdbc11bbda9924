"""Runs on a disk that is full or cannot be written: they say so, record nothing half, and later work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger import Ledger, StateDBError
from tests.kafka.small_disk import Disk

from .given_builds import GivenBuild

STAGES = """
[stages.small]
command = "echo 1 > small.txt"
outs = ["small.txt"]
[stages.large]
command = "head -c 300000 /dev/zero > large.bin"
deps = ["small.txt"]
outs = ["large.bin"]
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with Disk(tmp_path / "disk") as disk:
        if not disk.can_be_full:
            pytest.skip("a small disk cannot be mounted here: it needs root")
        yield disk


def test_a_full_disk_fails_the_stage_and_a_later_run_goes_on(log: Ledger, disk: Disk) -> None:
    build = GivenBuild(log, disk.folder / "p", STAGES)
    assert build.run("small").status == "succeeded"
    disk.fill()
    failed = build.run()
    assert (failed.status, build.said["large"][0]) == ("failed", "failed")
    assert "No space left on device" in build.said["large"][1]
    assert build.generation("large.bin") == 0
    assert build.stage("large").state.input_hash is None
    disk.free()
    assert build.run().status == "succeeded"
    assert build.said == {"small": ("skipped", "unchanged (generation)"), "large": ("ran", "No previous run")}
    assert len(build.read("large.bin")) == 300_000


def test_a_folder_that_cannot_be_written_is_said_before_anything_runs(log: Ledger, disk: Disk) -> None:
    build = GivenBuild(log, disk.folder / "p", STAGES)
    assert build.run("small").status == "succeeded"
    before = log.bound()
    disk.seal()
    with pytest.raises(StateDBError, match="cannot write the local copy"):
        build.run()
    disk.unseal()
    assert log.bound() == before
    assert build.run().status == "succeeded"
