"""
Leases of stages: one runner at a time is at a stage, wherever the runners are.

A lease is a row that its runner renews; it says who lives. The token of the claim, in the stage's stream,
says who may record (`ledger.builds.stage`). A runner that finds a lease of another one waits until that has
recorded its result, or its lease has run out, or this machine knows that it is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledger import Ledger, LedgerError
from ledger.jobs.leases import HeldLease, Leases
from ledger.log.sql import Statements

from .command import Stop
from .presence import Presence, is_gone

SQL = Statements(__package__, "stage_leases")
SECONDS: Final = 10.0
"""How long a lease holds that is not renewed."""
RENEWED: Final = 2.0
"""Seconds between two renewals."""
LOOKED: Final = 0.2
"""Seconds between two looks at the lease of another runner."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StageLease:
    """A lease that this runner has on a stage. lost: called when its claim is over."""

    stream: str
    token: int
    lost: Callable[[], object] = field(compare=False)


class StageLeases:
    """The leases of one runner; a thread renews those of claims.

    gone: runners that are known to have ended.
    """

    def __init__(self, ledger: Ledger, root: Path, presence: Presence, gone: Collection[str]) -> None:
        self.ledger, self.root, self.runner, self._gone = ledger, root, presence.name, gone
        self._leases = Leases(ledger)
        self._held: dict[str, StageLease] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, stream: str, token: int, lost: Callable[[], object]) -> StageLease | str:
        """Take the lease of a stage for the claim with this token; else the runner that has it.

        Raises ServerUnavailable.
        """
        holder, held = self._take(stream, token, [])
        if (holder, held) != (self.runner, token) and self._is_gone(holder):
            holder, held = self._take(stream, token, [holder])
        if (holder, held) != (self.runner, token):
            return holder
        return StageLease(stream, token, lost)

    def hold(self, lease: StageLease) -> None:
        """Renew a lease from now on, because its claim is recorded; before, it would seem to be lost."""
        with self._lock:
            self._held[lease.stream] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases of stages", daemon=True)
                self._thread.start()

    def _take(self, stream: str, token: int, gone: list[str]) -> tuple[str, int]:
        """Ask for a lease; who has it then, and for which token. gone: runners that have ended."""
        holder, held, _ = self.ledger.query(
            SQL.take_stage_lease, stream=stream, token=token, gone=gone, worker=self.runner, seconds=SECONDS
        )[0]
        return holder, held

    def give_back(self, lease: StageLease) -> None:
        """Release a lease. A server that is away costs the next runner the time until it runs out."""
        with self._lock:
            self._held.pop(lease.stream, None)
        try:
            self._leases.release([(lease.stream, lease.token)])
        except LedgerError as error:
            _log.warning("the lease of %s could not be released: %s", lease.stream, error)

    def wait(self, stream: str, holder: str, stop: Stop) -> None:
        """Wait until another runner's lease is over, however it ended, or until `stop` is asked."""
        while not stop.wait(LOOKED):
            _, seconds = self.ledger.query(SQL.claim_of, stream=stream)[0]
            if seconds is None or seconds <= 0 or self._is_gone(holder):
                return

    def _is_gone(self, runner: str) -> bool:
        return runner in self._gone or is_gone(self.root, runner)

    def close(self) -> None:
        """Renew nothing any more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(RENEWED):
            try:
                self.renew()
            except LedgerError as error:  # the leases hold until they run out
                _log.warning("leases of stages could not be renewed: %s", error)

    def renew(self) -> None:
        """Renew the leases once; those whose claims are over are told. Raises ServerUnavailable."""
        with self._lock:
            held = [*self._held.values()]
        wanted = [HeldLease(lease.stream, lease.token, "build_stage") for lease in held]
        over = {seen.stream for seen in self._leases.renew(self.runner, wanted, SECONDS) if not seen.holds}
        for lease in held:
            with self._lock:
                lost = lease.stream in over and self._held.get(lease.stream) is lease
            if lost:
                lease.lost()
