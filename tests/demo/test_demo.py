"""The main job: a real pipeline, its archive and images, a killed worker, a run that is interrupted."""

from __future__ import annotations

import json
import lzma
import os
import shlex
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from imageio.v3 import imread
from psycopg.conninfo import conninfo_to_dict

from ledger import Ledger, Recorded
from tests.demo.conftest import ROOT, Start

STRIPS = 4
TOTAL = STRIPS * 4 + 2
Demo = Callable[..., subprocess.CompletedProcess[str]]
Images = dict[str, list[Any]]


def recorded(log: Ledger) -> list[Recorded]:
    """All that the ledger holds."""
    events, bound = [], log.bound()
    while page := log.log(events[-1].position if events else 0, bound):
        events += page
    return events


def strips_of(events: list[Recorded], project: str) -> dict[str, list[str]]:
    """The last words of the topics of each strip of a project, in order."""
    words: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.stream.startswith(f"lsm.strip/{project}/"):
            words[event.stream].append(event.topic.rpartition(".")[2])
    return words


def files(folder: Path) -> dict[str, bytes]:
    """Every archived strip and every projection."""
    kept = [
        path for part in ("archive", "projections") for path in (folder / part).rglob("*") if path.is_file()
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def wait_for(
    log: Ledger, process: subprocess.Popen[str], condition: Callable[[list[Recorded]], bool]
) -> None:
    """Wait until the log fulfils a condition while the demo runs."""
    deadline = time.monotonic() + 120
    while not condition(recorded(log)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def completed(events: list[Recorded]) -> set[str]:
    return {event.stream for event in events if event.topic == "lsm.strip.completed"}


def check_archive(folder: Path, images: Images) -> None:
    """The archive gives the input's pixels again, and the projections are their maximum over the depth."""
    for slice_id, channels in enumerate(images.values(), 1):
        for channel_id, channel in enumerate(channels, 1):
            pieces = np.array_split(channel, min(STRIPS, channel.shape[2]), axis=2)
            for strip_id, piece in enumerate(pieces, 1):
                path = folder / f"archive/slice-{slice_id:03}/channel-{channel_id}/strip-{strip_id:03}.npy.xz"
                with lzma.open(path) as file:
                    found = np.load(file)
                assert found.dtype == piece.dtype
                assert np.array_equal(found, piece)
            stitched = imread(folder / f"projections/slice-{slice_id:03}-channel-{channel_id}.png")
            assert stitched.dtype == channel.dtype
            assert np.array_equal(stitched, channel.max(axis=0))


@pytest.mark.long
def test_a_worker_is_killed_and_nothing_is_lost_or_done_twice(
    demo: Demo, log: Ledger, dsn: str, images: Images, tmp_path: Path
) -> None:
    ran = demo("--input", "images", "--project", "Lab_1", "--workers", "2", "--strips", str(STRIPS), "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    events = recorded(log)
    strips = strips_of(events, "lab-1")
    assert set(said) >= {"strips", "completed", "events", "workers", "killed", "seconds", "dsn"}
    assert (said["strips"], said["completed"], said["workers"], said["killed"]) == (len(strips), TOTAL, 2, 1)
    assert len(strips) == TOTAL
    assert said["events"] == len(events)
    assert 0 < said["seconds"] < 120
    for words in strips.values():
        assert words[0] == "created"
        assert words[-4:] == ["started", "compressed", "archived", "completed"]
        counts = Counter(words)
        assert (counts["completed"], counts["started"]) == (1, 1 + counts["failed"])
    stitched = [event.stream for event in events if event.topic == "lsm.channel.mip_stitched"]
    assert sorted(stitched) == sorted(set(stitched))
    assert len(stitched) == 5
    assert {"completed"} == {event.topic.rpartition(".")[2] for event in last_of_each(events).values()}
    check_archive(tmp_path / "lsm-runs" / "Lab_1", images)
    assert not list(tmp_path.rglob("*.part"))

    alone = demo(
        "--input", "images", "--project", "alone", "--workers", "1", "--strips", str(STRIPS), "--no-kill"
    )
    assert alone.returncode == 0, alone.stderr
    assert "killing" in ran.stderr
    assert "killing" not in alone.stderr
    assert "\x1b" not in ran.stdout + ran.stderr
    secret = conninfo_to_dict(dsn).get("password")
    assert secret
    assert str(secret) not in ran.stdout + ran.stderr
    assert files(tmp_path / "lsm-runs" / "alone") == files(tmp_path / "lsm-runs" / "Lab_1")

    check_pasted(ran.stdout, dsn)


def last_of_each(events: list[Recorded]) -> dict[str, Recorded]:
    return {event.stream: event for event in events}


def check_pasted(stdout: str, dsn: str) -> None:
    """The commands that are shown at the end work."""
    shown = [
        line.strip() for line in stdout.partition("look further:\n")[2].splitlines() if line.startswith("  ")
    ]
    assert len(shown) == 3
    env = os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": str(ROOT)}
    for command in shown:
        pasted = subprocess.run(
            shlex.split(command), env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert pasted.returncode == 0, pasted.stderr
        assert pasted.stdout


@pytest.mark.slow
def test_after_ctrl_c_the_named_project_goes_on(
    start: Start, demo: Demo, log: Ledger, images: Images, tmp_path: Path
) -> None:
    options = ("--project", "brain", "--out", "there", "--strips", str(STRIPS), "--workers", "2")
    process = start("--input", "images", *options)
    wait_for(log, process, lambda events: len(completed(events)) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "--project brain" in err, "Traceback" in err) == (130, True, False), err
    before = strips_of(recorded(log), "brain")
    assert 3 <= sum(words[-1] == "completed" for words in before.values()) < TOTAL
    assert {words[-1] for words in before.values()} <= {"created", "completed", "failed"}
    ran = demo(*options)  # without --input: the run's folder remembers it
    assert ran.returncode == 0, ran.stderr
    check_went_on(before, strips_of(recorded(log), "brain"))
    check_archive(tmp_path / "there", images)


@pytest.mark.slow
@pytest.mark.parametrize("with_workers", [False, True])
def test_after_kill_9_of_the_crew_the_project_goes_on(
    start: Start, demo: Demo, log: Ledger, images: Images, tmp_path: Path, with_workers: bool
) -> None:
    options = (
        "--input",
        "images",
        "--project",
        "brain",
        "--strips",
        str(STRIPS),
        "--no-kill",
        "--workers",
        "2",
    )
    process = start(*options)
    wait_for(log, process, lambda events: len(completed(events)) >= 3)
    workers = psutil.Process(process.pid).children()
    for victim in [process, *workers] if with_workers else [process]:
        victim.kill()
    if with_workers:
        psutil.wait_procs(workers, timeout=60)
    before = strips_of(recorded(log), "brain")
    left = {strip for strip, words in before.items() if words[-1] in ("started", "compressed", "archived")}
    ran = demo(*options, "--json")  # it waits for orphans, which finish what they have in hand
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert (said["completed"], said["events"], said["killed"]) == (TOTAL, len(recorded(log)), 0)
    after = strips_of(recorded(log), "brain")
    check_went_on(before, after)
    assert all(("failed" in after[strip]) == with_workers for strip in left)
    check_archive(tmp_path / "lsm-runs" / "brain", images)


def check_went_on(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    """What was completed was not touched again, and all the rest is completed now."""
    for strip, words in before.items():
        assert after[strip] == words if words[-1] == "completed" else after[strip][: len(words)] == words
    assert {words[-1] for words in after.values()} == {"completed"}
    assert {Counter(words)["completed"] for words in after.values()} == {1}


@pytest.mark.long
def test_the_same_comes_through_kafka(demo: Demo, images: Images, tmp_path: Path) -> None:
    """A relay, a consumer, and a view that is fed in another database."""
    if os.environ.get("LEDGER_KAFKA") == "none":
        pytest.skip("LEDGER_KAFKA=none leaves the tests of Kafka out")
    options = ("--input", "images", "--strips", "1", "--no-kill", "--workers", "1", "--out", "out")
    ran = demo(*options, "--kafka", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["completed"] == 5
    assert (told["kafka"]["counted"], told["kafka"]["in_state"]) == (5, 5)
    assert told["kafka"]["published"] >= told["events"]
