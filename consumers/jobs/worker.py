"""
A worker: claims work, runs it in child processes, and records the outcome.

    Worker(log, "mypipeline.operations:registry", concurrency=4).run()

Claim and outcome are two short transactions around a long run (spec S1-21); no transaction is open meanwhile.
The outcome is guarded by the token of the claim, so a worker that lost its claim changes nothing. claim.py
takes work, record.py records, lease_renewal.py keeps the leases, sandbox/ runs operations.
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

from consumers.service import Service
from ledger import Ledger, LedgerError, SchemaMismatch, ServerUnavailable
from ledger.errors import AppendUncertain, LedgerBusy, StorageFull
from ledger.jobs.leases import HeldLease, LeaseStatus
from ledger.roles import require_roles

from .claim import Claim, LogOffers, Offers, OffersAhead, task_of
from .hints import HintedOffers, Hints
from .lease_renewal import LeaseRenewal
from .messages import Stopped, Task, UnknownHere
from .operation import registry_at
from .outcome_log import log_outcome
from .record import Part, Recorder, claim_part, outcome_part
from .sandbox.slot import Slot
from .services import WorkProjector, background_services, candidate_for_services
from .signal import Signal

LEASE: Final = 30.0
"""Seconds that a lease holds without a renewal; it is renewed at least three times in them."""
GRACE: Final = 10.0
"""Seconds that an operation has to stop once its claim is over, before its process is killed."""
DRAIN: Final = 30.0
"""Seconds that a stopped worker waits for running operations (spec S1-32)."""
MIN_PAUSE: Final = 0.002
MAX_PAUSE: Final = 0.1
"""Seconds between two attempts to take work when there was none and the view did not move."""
LAST_TIMEOUT: Final = 1.0
"""Seconds that an ending worker waits for each answer of an unavailable server."""
RETRY_PAUSE: Final = 0.2
"""Seconds between two attempts while the server is away; less when an operation ends."""
_RETRIED: Final = (ServerUnavailable, AppendUncertain, LedgerBusy, StorageFull, SchemaMismatch)
"""Errors after which the worker tries again: no server, no room in it, or no view `work` yet."""

_log = logging.getLogger(__name__)


class Worker:
    """Runs operations of a registry (`MODULE:NAME`), up to `concurrency` at once.

    queues: take work from these only; by default from all. name: the actor of all events that it and its
    operations record. lease_seconds: its claims are over after so long without a renewal. grace_seconds: how
    long an operation has to stop once its claim is over. drain_seconds: how long a stopped worker waits for
    running operations. projecting: whether it keeps the views `work` and `jobs`, unless another projector
    does. services: whether it also runs fan-in, cascade, scheduler and reaper. memory_mb: the address space
    of an operation's process. hints: who says that work may have been offered; without, it asks all the time.

    done: how many claims ended. draining: it takes no more work. known: the operations that it takes: those
    of its registry, without any that one of its processes does not know.
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
        hints: Hints | None = None,
        projecting: bool = True,
        services: bool = True,
    ) -> None:
        self.ledger, self.place, self.queues = ledger, registry, queues
        self.registry = registry_at(registry)
        self.name = name or f"{ledger.actor}:{os.getpid()}:{uuid4().hex[:6]}"
        self.concurrency, self.lease_seconds, self.memory_mb = concurrency, lease_seconds, memory_mb
        self.drain_seconds = drain_seconds
        self.projecting, self.serves = projecting, services
        self.known = set(self.registry.names)
        self.offers = offers or OffersAhead(
            LogOffers(ledger, self.name, queues, lease_seconds, operations=self.known)
        )
        self.hints = hints
        if hints is not None:
            self.offers = HintedOffers(self.offers, hints)
        self.recording = Recorder(ledger, self.name)
        self.done, self.draining = 0, False
        self.slots: list[Slot] = []
        self._claims: dict[str, Claim] = {}
        self._started_at: dict[str, float] = {}
        self._parts: list[Part] = []
        self._over: list[tuple[str, int]] = []
        self._stop_requests = StopRequests(grace_seconds)
        self._signals: list[Signal] = []
        self._services: list[Service] = []
        self._last_error = ""

    def run(self, stop: threading.Event | None = None) -> bool:
        """Work until `stop` is set, then until running operations end; whether work had to be given back.

        It waits for a server that goes away: outcomes of operations are recorded when it is back.
        Raises NoPermission, and BadInput where the child processes cannot import the registry.
        """
        stopped = stop or threading.Event()
        require_roles(self.ledger, f"pledger worker run{'' if self.projecting else ' --no-views'}")
        with ExitStack() as stack:
            also = None
            if self.projecting:
                view = stack.enter_context(WorkProjector(self.ledger))
                self._services.append(view)
                self._signals.append(view.signal)
            if self.hints is not None:
                self._signals.append(stack.enter_context(self.hints).signal)
            if self.serves:
                election = candidate_for_services(self.ledger, self.name, self.lease_seconds)
                for service in background_services(
                    self.ledger, self.lease_seconds, election, projecting=self.projecting
                ):
                    self._services.append(stack.enter_context(service))
                stack.callback(election.resign)
                also = election.renew
            renewal = LeaseRenewal(
                self.ledger, self.name, self._held, self._stop_requests.lost,
                seconds=self.lease_seconds, figures=self._status, also=also,
            )  # fmt: skip
            stack.callback(renewal.stop)
            self._open_slots(stack)
            renewal.start()
            try:
                self._work(stopped)
                self.draining = True
                renewal.renew_now()
                self._drain()
                self._shorten_timeouts(stack)
            finally:
                gave_back = self._give_back()
        return gave_back

    def _open_slots(self, stack: ExitStack) -> None:
        connect = {"dsn": self.ledger.address.conninfo, "schema": self.ledger.schema, "actor": self.name}
        self.slots = []
        for _ in range(self.concurrency):
            self.slots.append(Slot(self.place, connect, memory_mb=self.memory_mb))
            stack.callback(self.slots[-1].close)

    # The loop

    def _work(self, stopped: threading.Event) -> None:
        pause = MIN_PAUSE
        while not stopped.is_set():
            busy = self._cycle(pause)
            pause = MIN_PAUSE if busy else min(pause * 2, MAX_PAUSE)

    def _cycle(self, seconds: float) -> bool:
        """Record outcomes, claim work for free slots, wait for either; whether there was something to do."""
        try:
            self._collect_outcomes()
            self._take(self._free())
            if self._parts:
                self._record()
                return True
            self._last_error = ""
            self._stop_requests.act(self.slots)
            self._rest(seconds)
            return False
        except _RETRIED as error:
            if self._last_error != str(error):
                self._last_error = str(error)
                _log.warning("%s tries again: %s", self.name, error)
            self._rest(RETRY_PAUSE)
            return False

    def _rest(self, seconds: float) -> None:
        """Wait until a child answers, the view moves or a hint comes, at most so many seconds."""
        waits: list[Any] = [*(slot.pipe for slot in self.slots), *self._signals]
        wait(waits, seconds)
        for signal in self._signals:
            signal.clear()

    def _collect_outcomes(self) -> None:
        """Take the outcomes that child processes sent; they are recorded next."""
        for slot in self.slots:
            if slot.pipe.poll() and (outcome := slot.read_outcome()) is not None:
                claim = self._claims.get(outcome.stream)
                if claim is not None and claim.token == outcome.token:
                    if isinstance(outcome, UnknownHere):
                        self._forget_operation(claim.work.state.operation)
                    self._parts.append(outcome_part(claim, outcome))

    def _forget_operation(self, operation: str) -> None:
        """The code was replaced while the worker runs: take no more of what its new processes do not know."""
        self.known.discard(operation)
        _log.warning(
            "a process of %s does not know operation %r, because the code changed since the worker started: "
            "the worker takes no more of it; restart the worker", self.name, operation,
        )  # fmt: skip

    def _free(self) -> int:
        """How many slots are free and not promised to a claim."""
        promised = sum(part.taken is not None for part in self._parts)
        return 0 if self.draining else max(0, sum(slot.free for slot in self.slots) - promised)

    def _take(self, free: int) -> None:
        """Take leases for so many slots, and release those that are over."""
        taken = self.offers.take(free, self._over)
        self._over = []
        for one in taken:
            if one.due and one.work.state.operation in self.known:
                self._parts.append(claim_part(one, self.name))
            else:
                self._over.append((one.work.name, one.token))

    def _record(self) -> None:
        """Append claims and outcomes together, and start what is claimed."""
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
            log_outcome(part, self.name, time.monotonic() - self._started_at.pop(work.name, time.monotonic()))
        elif part.recorded and part.claimed:
            self._claims[work.name] = part.claim
            self._started_at[work.name] = time.monotonic()
            slot = next((slot for slot in self.slots if slot.free), None)
            if slot is None:  # its process died meanwhile
                self._parts.append(outcome_part(part.claim, Stopped(work.name, token)))
            else:
                slot.run(task_of(part.taken))
        else:
            self._over.append((work.name, token))

    # The end

    def _drain(self) -> None:
        """Wait until running operations end and are recorded, at most `drain_seconds`."""
        deadline = time.monotonic() + self.drain_seconds
        while (self._claims or self._parts) and time.monotonic() < deadline:
            self._cycle(min(MAX_PAUSE, max(0.0, deadline - time.monotonic())))

    def _shorten_timeouts(self, stack: ExitStack) -> None:
        """From now on wait only briefly for a server: unrecorded work ends with its lease."""
        connections = self.ledger.pool
        stack.callback(setattr, connections, "timeout", connections.timeout)
        connections.timeout = min(connections.timeout, LAST_TIMEOUT)
        for service in self._services:
            service.end()

    def _give_back(self) -> bool:
        """Kill what still runs and release its claims (spec S1-32); whether there was something."""
        self.draining = True
        ended = {part.claim.work.name for part in self._parts}
        left = [claim for name, claim in self._claims.items() if name not in ended]
        for slot in self.slots:
            if slot.task is not None:
                slot.kill()
        self._parts += [
            outcome_part(claim, Stopped(claim.work.name, claim.token, reason="shutdown")) for claim in left
        ]
        try:
            self._record()
            self.offers.release(self._over)
        except LedgerError as error:  # their leases run out
            _log.error("%s could not give back its claims: %s", self.name, error)
        return bool(left)

    # Leases

    def _held(self) -> list[HeldLease]:
        claims = [*self._claims.values()]
        return [HeldLease(claim.work.name, claim.token, claim.work.state.operation) for claim in claims]

    def _status(self) -> dict[str, Any]:
        return {
            "host": socket.gethostname(), "pid": os.getpid(), "queues": self.queues and list(self.queues),
            "operations": sorted(self.known), "slots": self.concurrency, "busy": len(self._claims),
            "draining": self.draining, "done": self.done,
        }  # fmt: skip


class StopRequests:
    """Tells operations to stop, and kills those that do not within `grace_seconds`.

    Another thread may call `lost`.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self._lost: dict[str, LeaseStatus] = {}
        self._told: dict[Slot, tuple[Task, float]] = {}

    def lost(self, seen: LeaseStatus) -> None:
        """Note that a claim is over."""
        self._lost[seen.stream] = seen

    def act(self, slots: Sequence[Slot]) -> None:
        """Tell operations whose claims are over to stop; kill what exceeds its timeout or the grace time."""
        now = time.monotonic()
        for slot in slots:
            task = slot.task
            if task is None:
                continue
            if slot.overdue():
                slot.kill()
            seen = self._lost.get(task.stream)
            if seen is not None and seen.token == task.token:
                slot.request_stop("it was cancelled" if seen.status == "cancelled" else "its lease was lost")
                if self._told.get(slot, (None,))[0] is not task:
                    self._told[slot] = task, now + self.grace_seconds
        self._lost.clear()
        for slot, (task, deadline) in [*self._told.items()]:
            if slot.task is not task:
                del self._told[slot]
            elif now > deadline:
                slot.kill()
                del self._told[slot]
