"""Runners of builds are killed at any moment, alone and two at once: a completion is recorded whole, or not.

The oracle reads the table of events with SQL of its own and shares no code with the runner. From time to time
a run is left in peace, and its outputs must be what a run from nothing makes, byte by byte.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import psycopg
import pytest

from ledger import Ledger
from tests.builds.runner_process import a_runner

from .given_builds import GivenBuild
from .test_run_laws import NAMES, Graph, declared, edit, outputs

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.builds.runner_process"])
LONGEST: Final = 0.8
"""Seconds until a runner is killed, at most: what a run takes."""
GRAPH: Final[Graph] = {
    "s0": (("i0",), ()), "s1": (("i1",), ()), "s2": (("i2",), ("s0",)), "s3": ((), ("s0", "s1")),
    "s4": (("i0",), ("s2", "s3")),
}  # fmt: skip
EVENTS: Final = """
SELECT position, stream, topic, data FROM ledger.events
 WHERE stream LIKE 'build%%/p/%%' AND position > %s ORDER BY position
"""


@dataclass
class Campaign:
    """Kills runners of one project. faults: what the oracle found."""

    log: Ledger
    dsn: str
    folder: Path
    random: random.Random
    in_pieces: bool = False
    runs: int = 0
    kills: int = 0
    at_once: int = 0
    checked: int = 0
    completions: int = 0
    faults: list[str] = field(default_factory=list)
    _seen: int = 0
    _outputs: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.build = GivenBuild(self.log, self.folder / "p", declared(GRAPH, "1"))
        for name in ("i0", "i1", "i2"):
            self.build.write(name, "start")

    def cycle(self) -> None:
        """Edit something, run it with one or two runners, and kill these at some moment."""
        self._edit()
        runners = [self._runner() for _ in range(self.random.choice((1, 1, 2)))]
        self.runs += len(runners)
        self.at_once += len(runners) == 2
        for runner in runners:
            runner.join(self.random.random() * LONGEST)
            if runner.is_alive():
                os.kill(runner.pid or 0, signal.SIGKILL)
                self.kills += 1
            runner.join()
            assert runner.exitcode in (0, -signal.SIGKILL)
        self.look()

    def _runner(self) -> BaseProcess:
        runner = FORKS.Process(
            target=a_runner, args=(self.dsn, str(self.build.root)), kwargs={"in_pieces": self.in_pieces}
        )
        runner.start()
        return runner

    def _edit(self) -> None:
        what = self.random.choice(("input", "input", "input", "lose", "spoil", "cache", "copy", "param"))
        name = {"input": ["i0", "i1", "i2"], "param": ["1", "2"]}.get(what, NAMES)
        edit(self.build, GRAPH, what, self.random.choice(name), f"{self.random.randrange(10**6)}")

    def look(self) -> None:
        """The oracle: each completion since the last look has its end in the run and its outputs with it."""
        with psycopg.connect(self.dsn) as connection:
            events = connection.execute(EVENTS, (self._seen,)).fetchall()
        ends = {position: data for position, _, topic, data in events if topic == "build.stage_finished"}
        for position, stream, topic, data in events:
            self._seen = position
            if topic == "build.output_changed":
                self._outputs[stream] = data["hash"]
            if topic != "build.stage_completed":
                continue
            self.completions += 1
            stage, size = stream.rpartition("/")[2], 2 + len(data["outs"])
            around = range(position - size, position + size + 1)
            if not any(ends.get(near, {}).get("stage") == stage for near in around):
                self.faults.append(f"{position}: {stream} is completed, and its run does not say so")
            after = {place: known["hash"] for at, place, kind, known in events
                     if kind == "build.output_changed" and position < at <= position + size}  # fmt: skip
            for path, hash, *_ in data["outs"]:
                place = f"build_output/p/{path}"
                if after.get(place, self._outputs.get(place)) != hash:
                    self.faults.append(f"{position}: {stream} made {path} {hash}, which has another content")

    def compare(self) -> None:
        """A run in peace leaves what a run from nothing makes."""
        ended = self.build.run()
        self.look()
        nothing = GivenBuild(self.log, self.folder / "nothing", "")
        for name in ("i0", "i1", "i2"):
            shutil.copy(self.build.root / name, nothing.root / name)
        text = self.build.read("pledger-build.toml")
        nothing.write("pledger-build.toml", text.replace('name = "p"', 'name = "nothing"'))
        nothing.run(force=True)
        self.checked += 1
        if ended.status != "succeeded" or outputs(self.build.root) != outputs(nothing.root):
            self.faults.append(f"after {self.kills} kills a run {ended.status}, and left other outputs")

    def figures(self) -> str:
        """What was done, as JSON."""
        names = ("runs", "kills", "at_once", "completions", "checked", "faults")
        return json.dumps({name: getattr(self, name) for name in names})


def test_killed_runners_record_all_of_a_completion_or_nothing(log: Ledger, dsn: str, tmp_path: Path) -> None:
    campaign = Campaign(log, dsn, tmp_path, random.Random(7))
    for _ in range(6):
        campaign.cycle()
    campaign.compare()
    assert campaign.faults == []
    assert campaign.completions


def test_the_oracle_finds_a_completion_in_pieces(log: Ledger, dsn: str, tmp_path: Path) -> None:
    """The control: with the original's order, what is killed between two writes is half recorded."""
    campaign = Campaign(log, dsn, tmp_path, random.Random(7), in_pieces=True)
    for _ in range(40):
        campaign.cycle()
        if campaign.faults:
            return
    pytest.fail(f"the oracle found nothing: {campaign.figures()}")


@pytest.mark.slow
def test_builds_survive_kills_for_minutes(log: Ledger, dsn: str, tmp_path: Path, minutes: float) -> None:
    campaign = Campaign(log, dsn, tmp_path, random.Random())
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for _ in range(10):
            campaign.cycle()
        campaign.compare()
    print(campaign.figures())
    assert campaign.faults == []
