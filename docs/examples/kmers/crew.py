"""
The crew: worker processes, some of which it kills with SIGKILL in the middle of a batch.

It does not hand out work or take it back from dead workers. When the leases of a dead worker run out, another
worker repeats its batch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ledger import Ledger, Recorded
from ledger.jobs.batch import BatchReported, BatchStarted
from projections.engine.follower import Follower

ROOT: Final = Path(__file__).parents[3]
REGISTRY: Final = "docs.examples.kmers.operations:registry"
GRACE: Final = 10.0
"""Seconds for workers to end after SIGTERM."""
MOST_DEATHS: Final = 20
"""Unexpected deaths of workers before the run gives up."""


class CrewFailed(Exception):
    """The run cannot go on; the message contains the reason."""


class Crew:
    """The workers of one run, and their work on one job according to the log.

    in_hand: the batches that are begun and not ended, with the worker, the latest last. children: which
    process computes which batch, as it reports itself. killed: descriptions of the killed processes.
    """

    def __init__(
        self, log: Ledger, environment: dict[str, str], out: Path, *, slots: int, lease: float
    ) -> None:
        paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        self.environment = environment | {"PYTHONPATH": os.pathsep.join(paths)}
        self.slots, self.lease, self.said = slots, lease, out / "workers.log"
        self.follower = Follower(log, after=log.bound())
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.in_hand: dict[str, str] = {}
        self.children: dict[str, int] = {}
        self.killed: list[str] = []
        self.hired = self.deaths = self.computed = 0

    def hire(self) -> None:
        """Start a worker with the command that one would use in a shell."""
        self.hired += 1
        name = f"kmers-{os.getpid()}-{self.hired}"
        command = [
            sys.executable, "-m", "gateway.cli.main", "worker", "run",
            "--operations", REGISTRY, "--name", name,
            "--concurrency", str(self.slots), "--lease-seconds", str(self.lease),
        ]  # fmt: skip
        self.said.parent.mkdir(parents=True, exist_ok=True)
        with self.said.open("ab") as said:
            self.workers[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                process_group=0,  # only the crew gets Ctrl-C; it then stops the workers
            )  # fmt: skip

    def look(self, job: str) -> None:
        """Read new events of the log; replace dead workers. Raises CrewFailed."""
        while events := self.follower.poll():
            for recorded in events:
                if recorded.stream.startswith(f"batch/{job}/"):
                    self.note(recorded)
        for name, worker in list(self.workers.items()):
            if (code := worker.poll()) is None:
                continue
            del self.workers[name]
            self.deaths += 1
            if code > 0 or self.deaths > MOST_DEATHS + len(self.killed):
                raise CrewFailed(f"worker {name} ended with {code}: {self.last_words()}")
            self.hire()

    def note(self, recorded: Recorded) -> None:
        """Note which worker has which batch."""
        match recorded.event:
            case BatchStarted(worker=worker):
                self.in_hand.pop(recorded.stream, None)
                self.in_hand[recorded.stream] = worker
                self.children.pop(recorded.stream, None)
            case BatchReported(event="part.begun", fields=fields):
                self.children[recorded.stream] = int(str(fields["pid"]))
            case _:
                self.in_hand.pop(recorded.stream, None)
                self.children.pop(recorded.stream, None)
                self.computed += recorded.topic == "batch.computed"

    def kill(self) -> bool:
        """Kill one that computes a batch of the job: alternately a worker and a worker's child process."""
        for stream, name in reversed(self.in_hand.items()):
            worker, child = self.workers.get(name), self.children.get(stream)
            if worker is None or child is None:  # not ours, or not computing
                continue
            del self.children[stream]
            if len(self.killed) % 2 == 0:
                worker.kill()
                self.killed.append(f"worker {name} in the middle of {stream}")
                return True
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                self.killed.append(f"process {child} of worker {name} in the middle of {stream}")
                return True
        return False

    def last_words(self) -> str:
        """The end of the workers' output."""
        return "\n".join(self.said.read_text(errors="replace").splitlines()[-20:])

    def dismiss(self) -> None:
        """Ask the workers to stop; kill those that take too long."""
        for worker in self.workers.values():
            worker.terminate()
        for worker in self.workers.values():
            try:
                worker.wait(GRACE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers.clear()
