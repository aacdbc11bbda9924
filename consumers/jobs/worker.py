"""
A worker: takes work, claims it, lets processes of their own run it, and records what came of it.

    Worker(log, "mypipeline.operations:registry", concurrency=4).run()

Claim and outcome are two short transactions around a long run (spec S1-21): nothing is open meanwhile. What
is recorded is guarded by the token of the claim, so a worker that was taken over changes nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from typing import Any, Final
from uuid import uuid4

from ledger import Ledger, LedgerError, SchemaMismatch, ServerUnavailable
from ledger.errors import AppendUncertain, LedgerBusy, StorageFull
from ledger.jobs import OpenBatch, OpenWork
from ledger.store.leases import Held, Leases, Seen

from .election import Election
from .heart import Heart
from .messages import Stopped, Task
from .operation import registry_at
from .recording import Claimed, Part, Recording, claiming, ending
from .services import KeepingWork, serving
from .slot import Slot
from .taking import LogOffers, Offers, Taken

LEASE: Final = 30.0
"""Seconds that a lease holds without being renewed; it is renewed three times as often, or more."""
GRACE: Final = 10.0
"""Seconds that an operation has to stop by itself once its claim is over."""
DRAIN: Final = 30.0
"""Seconds that a worker which was told to end waits for what runs (spec S1-32)."""
FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.1
"""Seconds between two looks for work, when there was none and the view did not move: some may be due."""
AWAY: Final = 0.2
"""Seconds between two attempts at a server that is away; less where the view moves or an operation ends."""
_AWAY: Final = (ServerUnavailable, AppendUncertain, LedgerBusy, StorageFull, SchemaMismatch)
"""What is waited for: a server, room in it, or the view `work`, which a projector makes when it begins."""

_log = logging.getLogger(__name__)


class Worker:
    """Runs operations of a registry (`MODULE:NAME`), up to `concurrency` at once.

    queues: takes from these, from all where none are given. lease_seconds: after so long without a sign of
    life its claims are over. grace_seconds: how long an operation has to stop once its claim is over.
    drain_seconds: how long a worker that shall end waits for what runs. projecting: whether it keeps the view
    `work`, unless another projector does. services: whether it also runs what closes parents, passes cancels
    on, submits on schedule, and rescues the lost. memory_mb: what an operation's process may take.

    done: how many claims came to an end. draining: it takes nothing any more.
    """

    def __init__(
        self,
        ledger: Ledger,
        registry: str,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 1,
        name: str | None = None,
        lease_seconds: float = LEASE,
        grace_seconds: float = GRACE,
        drain_seconds: float = DRAIN,
        memory_mb: int | None = None,
        offers: Offers | None = None,
        projecting: bool = True,
        services: bool = True,
    ) -> None:
        self.ledger, self.place, self.queues = ledger, registry, queues
        self.registry = registry_at(registry)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self.concurrency, self.lease_seconds, self.memory_mb = concurrency, lease_seconds, memory_mb
        self.grace_seconds, self.drain_seconds = grace_seconds, drain_seconds
        self.projecting, self.serves = projecting, services
        self.offers = offers or LogOffers(ledger, self.name, queues, lease_seconds)
        self.recording = Recording(ledger, self.name)
        self.done, self.draining = 0, False
        self.slots: list[Slot] = []
        self._claims: dict[str, Claimed] = {}
        self._parts: list[Part] = []
        self._over: list[tuple[str, int]] = []
        self._lost: dict[str, Seen] = {}
        self._told: dict[Slot, tuple[Task, float]] = {}
        self._view: KeepingWork | None = None
        self._said = ""

    def run(self, stop: threading.Event | None = None) -> bool:
        """Work until `stop` is set, then until what runs is done; whether something had to be given back.

        A server that goes away is waited for: what came of operations meanwhile is recorded when it is back.
        Raises BadInput where the processes of its operations cannot import their registry.
        """
        stopped = stop or threading.Event()
        with ExitStack() as stack:
            stands = None
            if self.projecting:
                self._view = stack.enter_context(KeepingWork(self.ledger))
            if self.serves:
                election = Election(Leases(self.ledger), self.name, self.lease_seconds)
                for service in serving(self.ledger, self.lease_seconds, election):
                    stack.enter_context(service)
                stack.callback(election.resign)
                stands = election.stand
            heart = Heart(
                self.ledger, self.name, self._held, self._is_lost,
                seconds=self.lease_seconds, figures=self._figures, also=stands,
            )  # fmt: skip
            stack.callback(heart.stop)
            self._open_slots(stack)
            heart.start()
            try:
                self._work(stopped)
                self.draining = True
                heart.beat_now()
                self._drain()
            finally:
                gave_back = self._give_back()
        return gave_back

    def _open_slots(self, stack: ExitStack) -> None:
        where = {"dsn": self.ledger.target.conninfo, "schema": self.ledger.schema, "actor": self.name}
        self.slots = []
        for _ in range(self.concurrency):
            self.slots.append(Slot(self.place, where, memory_mb=self.memory_mb))
            stack.callback(self.slots[-1].close)

    # The loop

    def _work(self, stopped: threading.Event) -> None:
        pause = FIRST_PAUSE
        while not stopped.is_set():
            busy = self._cycle(pause)
            pause = FIRST_PAUSE if busy else min(pause * 2, LONGEST_PAUSE)

    def _cycle(self, seconds: float) -> bool:
        """Record what came, claim what fits, and wait for either; whether there was something to do."""
        try:
            self._came()
            self._take()
            if self._parts:
                self._record()
                return True
            self._said = ""
            self._end_what_must()
            if not self._rest(seconds) and self._over:
                self._take(most=0)
            return False
        except _AWAY as error:
            if self._said != str(error):
                self._said = str(error)
                _log.warning("%s tries again: %s", self.name, error)
            self._rest(AWAY)
            return False

    def _rest(self, seconds: float) -> bool:
        """Wait until a task says something, or the view moved; False where the time is over without."""
        view: list[Any] = [] if self._view is None else [self._view]
        ready = wait([*(slot.pipe for slot in self.slots), *view], seconds)
        if self._view is not None and view[0] in ready:
            self._view.seen()
        return bool(ready)

    def _came(self) -> None:
        """What came of tasks is to be recorded."""
        for slot in self.slots:
            if slot.pipe.poll() and (outcome := slot.answer()) is not None:
                claim = self._claims.get(outcome.stream)
                if claim is not None and claim.token == outcome.token:
                    self._parts.append(ending(claim, outcome))

    def _take(self, most: int | None = None) -> None:
        """Take leases on as much as there are free slots, and give back those that are over."""
        free = 0 if self.draining else sum(slot.free for slot in self.slots)
        free -= sum(part.taken is not None for part in self._parts)
        wanted = free if most is None else most
        if wanted < 1 and most is None:
            return
        over, self._over = self._over, []
        try:
            taken = self.offers.take(wanted, over)
        except BaseException:
            self._over = over + self._over
            raise
        self._over += [(one.work.name, one.token) for one in taken if not one.due]
        self._parts += [claiming(one, self.name) for one in taken if one.due]

    def _record(self) -> None:
        """Append claims and outcomes together; what is claimed begins."""
        try:
            self.recording.record(self._parts)
        finally:
            ready = [part for part in self._parts if part.recorded is not None]
            self._parts = [part for part in self._parts if part.recorded is None]
            for part in ready:
                self._settle(part)

    def _settle(self, part: Part) -> None:
        work, token = part.claim
        if part.taken is None:
            self._claims.pop(work.name, None)
            self._over.append((work.name, token))
            self.done += 1
        elif part.recorded and part.claimed:
            self._claims[work.name] = part.claim
            slot = next((slot for slot in self.slots if slot.free), None)
            if slot is None:  # its process died meanwhile
                self._parts.append(ending(part.claim, Stopped(work.name, token)))
            else:
                slot.give(_task(part.taken))
        else:
            self._over.append((work.name, token))

    # The end

    def _drain(self) -> None:
        """Wait for what runs, and until it is recorded, but not for ever."""
        deadline = time.monotonic() + self.drain_seconds
        while (self._claims or self._parts) and time.monotonic() < deadline:
            self._cycle(min(LONGEST_PAUSE, max(0.0, deadline - time.monotonic())))

    def _give_back(self) -> bool:
        """End what still runs, and offer it again (spec S1-32); whether there was something."""
        self.draining = True
        ended = {part.claim.work.name for part in self._parts}
        left = [claim for name, claim in self._claims.items() if name not in ended]
        for slot in self.slots:
            if slot.task is not None:
                slot.kill()
        self._parts += [
            ending(claim, Stopped(claim.work.name, claim.token, reason="shutdown")) for claim in left
        ]
        try:
            self._record()
            Leases(self.ledger).release(self._over)
        except LedgerError as error:  # their leases will be over
            _log.error("%s could not give back what it had: %s", self.name, error)
        return bool(left)

    # Leases

    def _held(self) -> list[Held]:
        return [
            Held(claim.work.name, claim.token, claim.work.state.operation)
            for claim in [*self._claims.values()]
        ]

    def _is_lost(self, seen: Seen) -> None:
        self._lost[seen.stream] = seen

    def _end_what_must(self) -> None:
        """Tell operations whose claims are over to stop, and end what takes longer than it may."""
        now = time.monotonic()
        for slot in self.slots:
            task = slot.task
            if task is None:
                continue
            if slot.overdue():
                slot.kill()
            seen = self._lost.get(task.stream)
            if seen is not None and seen.token == task.token:
                slot.tell_stop("it was cancelled" if seen.status == "cancelled" else "its lease was lost")
                if self._told.get(slot, (None,))[0] is not task:
                    self._told[slot] = task, now + self.grace_seconds
        self._lost.clear()
        for slot, (task, deadline) in [*self._told.items()]:
            if slot.task is not task:
                del self._told[slot]
            elif now > deadline:
                slot.kill()
                del self._told[slot]

    def _figures(self) -> dict[str, Any]:
        return {
            "host": socket.gethostname(), "pid": os.getpid(), "queues": self.queues and list(self.queues),
            "operations": list(self.registry.names), "slots": self.concurrency, "busy": len(self._claims),
            "draining": self.draining, "done": self.done,
        }  # fmt: skip


def _task(one: Taken) -> Task:
    work: OpenWork[Any, Any] = one.work
    state = work.state
    job, batch = (state.job, state.nr) if isinstance(work, OpenBatch) else (state.id, None)
    return Task(
        work.name, one.token, work.version, state.operation, one.payload, job, state.attempt, batch,
        state.timeout_seconds,
    )  # fmt: skip
