"""
The lock of a project as a global concurrency limit of Prefect, for teams that share one with other code.

One limit locks the whole project, for reading too, whatever is opened below it (spec S0-10): strips of one
project wait for each other, which they do not with the ledger's own locks. The slot has a lease, so a holder
that was killed blocks others until it expires. Correctness does not rest on the lock: the append refuses a
stale version.

Prefect's own `concurrency(…)` takes the same slots, but is not used here. It reports a lost lease by an
exception at any instruction, or not at all; and the waiting threads of a process queue, so that a timeout of
1 s was seen to be raised after 12 s, behind a thread that waited without one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ledger.domain.names import split_name
from ledger.errors import BadInput, LockTimeout, shown
from ledger.log.scope_locks import HeldLock, Nesting, Path, checked_timeout

from .limits import Lease, LimitUnfit, clock, ensure_limit, limit_name, own_client, prefect_errors

MIN_LEASE, MAX_LEASE = 60.0, 86_400.0  # seconds of a lease, as the Prefect server takes them
MAX_PAUSE: Final = 2.0
"""Seconds between two attempts of a waiting scope, at most."""
LOCKED, TOO_SMALL = 423, 422

_nesting = Nesting()


class _ThreadLeases(threading.local):
    """The leases of this thread, by process and limit: a fork holds none."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, str], Lease] = {}


_thread = _ThreadLeases()


class PrefectLocks:
    """Locks of the project stores, each a global concurrency limit `<project>_<pipeline>_state_lock`.

    pipeline: `lsm` or `oct` (spec S0-11), or the name of your own. lease_seconds: how long a slot stays with
    a holder that died, 60 at least; a live one renews it. A limit is made by `ensure_lock`, once.
    """

    def __init__(self, pipeline: str, *, lease_seconds: float = MIN_LEASE) -> None:
        if not MIN_LEASE <= lease_seconds <= MAX_LEASE:
            raise BadInput(
                f"lease_seconds {shown(lease_seconds)} must be from {MIN_LEASE:g} to {MAX_LEASE:g}, as "
                "Prefect takes them"
            )
        self.pipeline, self.lease_seconds = pipeline, lease_seconds

    def ensure_lock(self, project: str) -> str:
        """Make the project's limit, or bring it back to one slot that does not decay; its name."""
        name = limit_name(project, self.pipeline)
        ensure_limit(name, 1, slot_decay_per_second=0.0)
        return name

    @contextmanager
    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> Iterator[HeldLock]:
        """As in Locks. Raises LimitUnfit and ServerUnavailable too."""
        with _nesting.entered(path), self.shared(path, timeout_seconds=timeout_seconds) as held:
            yield held

    @contextmanager
    def shared(self, path: Path, *, timeout_seconds: float | None) -> Iterator[HeldLock]:
        """As in Locks, but exclusive: a limit has no readers. A thread never waits for itself."""
        checked_timeout(timeout_seconds)
        key = (os.getpid(), limit_name(split_name(path[0])[1][0], self.pipeline))
        if outer := _thread.held.get(key):
            yield outer
            return
        with own_client() as client:
            with prefect_errors():
                lease = self._take(client, key[1], path[0], timeout_seconds)
            _thread.held[key] = lease
            try:
                yield lease
            finally:
                del _thread.held[key]
                lease.release()

    def _take(self, client: Any, limit: str, stream: str, timeout_seconds: float | None) -> Lease:
        """Wait for the slot. Raises LockTimeout, LimitUnfit."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            begun = clock()
            granted, pause = self._request(client, limit)
            if granted is not None:
                return self._checked(client, limit, granted, begun)
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise LockTimeout(stream, timeout_seconds)
            time.sleep(min(pause, left))

    def _request(self, client: Any, limit: str) -> tuple[dict[str, Any] | None, float]:
        """The granted slot; or None, and the seconds until the next attempt."""
        import httpx

        try:
            answer = client.increment_concurrency_slots_with_lease(
                [limit], 1, "concurrency", self.lease_seconds, _holder()
            )
            return answer.json(), 0.0
        except httpx.HTTPStatusError as error:
            if error.response.status_code == TOO_SMALL:
                raise LimitUnfit(limit, "has no slot") from None
            if error.response.status_code != LOCKED:
                raise
            return None, min(MAX_PAUSE, float(error.response.headers.get("Retry-After", MAX_PAUSE)))

    def _checked(self, client: Any, limit: str, granted: dict[str, Any], begun: float) -> Lease:
        """The lease, if the limit is a lock. Raises LimitUnfit."""
        slots = [found["limit"] for found in granted["limits"]]
        if slots != [1]:
            client.release_concurrency_slots_with_lease(granted["lease_id"])
            raise LimitUnfit(limit, f"has {slots[0]} slots" if slots else "does not exist")
        return Lease(client, granted["lease_id"], self.lease_seconds, begun)


def _holder() -> Any:
    """The current run, so that Prefect can show who holds the slot; None outside of a run."""
    from prefect.client.schemas.objects import ConcurrencyLeaseHolder
    from prefect.runtime import flow_run, task_run

    if task_run.id:
        return ConcurrencyLeaseHolder(type="task_run", id=task_run.id)
    return ConcurrencyLeaseHolder(type="flow_run", id=flow_run.id) if flow_run.id else None
