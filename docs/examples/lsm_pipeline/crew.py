"""
The crew: starts workers, watches them by following the log, kills one on request, and replaces dead ones.

It does not hand out work. From the log it knows which worker has which strip, and it takes a strip back from
a dead worker: it marks the strip as failed, with the reason, and a failed strip can be claimed again. That is
safe because the crew started these workers and sees them die. Workers on other machines need leases that run
out by themselves; they are not part of this example.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from plan import Plan
from show import Progress

from ledger import Ledger, LedgerError, Recorded, StreamConflict
from ledger.pipelines import (
    Completed,
    Failed,
    LSMStateService,
    LSMStripState,
    OpenItem,
    ProcessingState,
    Started,
)
from projections.engine.follower import Follower

WORKER: Final = Path(__file__).with_name("worker.py")
PAUSE: Final = 0.01  # seconds between two looks at the workers and the log
GRACE: Final = (
    10.0  # seconds for the workers to finish the strips in their hands, when the run is interrupted
)
MOST_DEATHS: Final = 20  # before the run gives up: something on this machine kills what it starts


class CrewFailed(Exception):
    """The run cannot continue; the message contains the reason."""


class Crew:
    """The workers of one run by name, and their work according to the log.

    strips: those of the plan, by the names of their streams. in_hand: which worker began which strip, the
    latest last. kill_at: when so many strips are completed, the worker that began the latest one is killed.
    lost: the strips that were taken back.
    """

    def __init__(self, log: Ledger, plan: Plan, out: Path, progress: Progress) -> None:
        self.plan, self.out, self.progress = plan, out, progress
        self.service = LSMStateService(log)
        self.follower = Follower(log, after=log.bound())
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.strips = {LSMStripState.name_of(*strip.key): strip for strip in plan.all_strips()}
        self.in_hand: dict[str, str] = {}
        self.completed: set[str] = set()
        self.kill_at: int | None = None
        self.killed = self.hired = 0
        self.lost: list[str] = []
        self.is_over = False

    def begin(self, *, kill: bool) -> None:
        """Record the plan in one append; take over the finished and unfinished work of an earlier run."""
        with self.service.open_project(self.plan.project) as project:
            for name, ident in self.strips.items():
                strip = project.get_or_create_strip(ident)
                if strip.succeeded:
                    self.completed.add(name)
                elif strip.processing_state is ProcessingState.RUNNING:
                    self.in_hand[name] = "the worker of a run before"
            above: list[OpenItem[Any]] = [project, *project.slices.values()]
            for item in above:
                if item.processing_state is ProcessingState.PENDING:
                    item.mark_started()
            self.is_over = self.plan.is_over(project.to_view())
        left = len(self.strips) - len(self.completed)
        self.kill_at = len(self.completed) + left // 2 if kill and left else None
        self.progress.count(len(self.completed))

    def run(self, size: int, *, lock: IO[bytes], environment: dict[str, str], seed: int) -> None:
        """Keep `size` workers running until all work is done. Raises CrewFailed."""
        try:
            while self.workers or not self.is_over:
                while len(self.workers) < size and not self.is_over:
                    self.hire(lock, environment, seed)
                self.look()
                time.sleep(PAUSE)
            self.follow()
        except BaseException:
            self.dismiss()
            raise

    def end(self) -> None:
        """Record that all of it is done, in one append."""
        with self.service.open_project(self.plan.project) as project:
            above: list[OpenItem[Any]] = [*project.slices.values(), project]
            for item in above:
                if not item.succeeded:
                    item.mark_completed()

    def hire(self, lock: IO[bytes], environment: dict[str, str], seed: int) -> None:
        """Start a worker: a separate program that gets the run's folder and the ledger's address."""
        self.hired += 1
        name = f"worker-{self.hired}"
        command = [sys.executable, str(WORKER), str(self.out), name, str(seed)]
        ours: dict[str, Any] = {"env": environment, "pass_fds": [lock.fileno()]}
        ours["process_group"] = 0  # only the crew gets Ctrl-C; it then closes the workers' input
        self.workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, **ours)

    def look(self) -> None:
        """Check workers and log once: workers first, so that the log then holds all that dead ones did."""
        self.reap()
        self.follow()
        if self.kill_at is not None and len(self.completed) >= self.kill_at:
            self.kill()
        for strip, name in list(self.in_hand.items()):
            if name not in self.workers:
                self.take_back(strip, name)

    def reap(self) -> None:
        """See which workers have ended, and how. Raises CrewFailed."""
        for name, worker in list(self.workers.items()):
            code = worker.poll()
            if code is None:
                continue
            del self.workers[name]
            if code > 0:
                raise CrewFailed(f"{name} failed and printed the reason; finished work is kept")
            if code == 0:
                self.is_over = True
                continue
            self.killed += 1
            self.progress.say(f"{name}, process {worker.pid}, was ended by {signal.Signals(-code).name}")
            if self.killed > MOST_DEATHS:
                raise CrewFailed(
                    f"{self.killed} workers were killed: check whether the memory is enough for so many"
                )

    def follow(self) -> None:
        """Read what is new in the log."""
        while events := self.follower.poll():
            for recorded in events:
                if recorded.stream in self.strips:
                    self.note(recorded)
        self.progress.count(len(self.completed))

    def note(self, recorded: Recorded) -> None:
        """Note which worker has which strip; the actor is in the event's metadata."""
        match recorded.event:
            case Started():
                self.in_hand[recorded.stream] = recorded.meta.actor or "nobody"
            case Failed():
                self.in_hand.pop(recorded.stream, None)
            case Completed():
                self.in_hand.pop(recorded.stream, None)
                self.completed.add(recorded.stream)

    def kill(self) -> None:
        """Kill, once, the worker that began a strip just now."""
        if not self.in_hand:
            return
        strip, name = list(self.in_hand.items())[-1]
        if name in self.workers:
            self.progress.say(f"killing {name} in the middle of {strip}")
            self.workers[name].kill()
            self.kill_at = None

    def take_back(self, strip: str, name: str) -> None:
        """Free a strip that a dead worker left unfinished; decide again if its last event came only now."""
        del self.in_hand[strip]
        reason = f"{name} died while it worked on this strip"
        try:
            with self.service.open_strip(self.strips[strip]) as opened:
                if opened.processing_state is ProcessingState.RUNNING:
                    opened.mark_failed(reason)
                    self.lost.append(strip)
                    self.progress.say(f"freed {strip}: any worker may take it")
        except StreamConflict:
            self.in_hand[strip] = name

    def dismiss(self) -> None:
        """Let the workers finish their strips; kill those that take too long, and free their strips."""
        deadline = time.monotonic() + GRACE
        for worker in self.workers.values():
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self.workers.values():
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers.clear()
        with suppress(LedgerError):  # this may be the original failure; the next run takes the strips back
            self.follow()
            for strip, name in list(self.in_hand.items()):
                self.take_back(strip, name)
