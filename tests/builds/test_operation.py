"""Stages as jobs: workers run them, and what comes of them is recorded as if one runner had done it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from consumers.jobs import Worker
from ledger import Ledger
from ledger.jobs import Jobs

from .given_builds import CHAIN, GivenBuild


def test_stages_run_as_jobs(log: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "machine"))
    build = GivenBuild(log, tmp_path / "p", CHAIN + '[stages.bad]\ncommand = "echo no luck >&2; false"\n')
    build.write("in.txt", "1x")
    build.write("other.txt", "o")
    stop = threading.Event()
    worker = Worker(log, "consumers.builds.operation:registry", queues=["builds"], concurrency=2)
    working = threading.Thread(target=worker.run, args=[stop])
    working.start()
    try:
        ended = build.run(queue="builds", keep_going=True)
        assert (ended.status, ended.ran, ended.failed) == ("failed", 3, 1)
        assert build.said["bad"] == ("failed", "the command ended with exit code 1: no luck")
        assert build.read("c.txt") == "1o"
        stages = build.manifest(ended.run)["stages"]
        assert {name: record["status"] for name, record in stages.items()} == {
            "a": "ran", "b": "ran", "c": "ran", "bad": "failed",
        }  # fmt: skip
        build.write("in.txt", "2x")
        assert build.run("c", queue="builds").ran == 3
        build.write("in.txt", "1x")
        assert build.run("c", queue="builds").skipped == 3
        assert build.said["c"] == ("skipped", "unchanged (run cache)")
        assert build.generation("c.txt") == 3
    finally:
        stop.set()
        working.join()
    assert build.run("c").skipped == 3  # without workers: nothing is to be done
    assert len(log.streams("job/")) == 10
    assert Jobs(log).get(log.streams("job/")[0].stream.partition("/")[2]).status == "succeeded"
