"""
The lock of a project as a global concurrency limit of Prefect, for teams that share one with other code.

One limit locks the whole project, for reading too, whatever is opened below it (spec S0-10): strips of one
project wait for each other, which with the ledger's own locks they do not. The slot has a lease, so a holder
that was killed blocks others until that expires. What is right never rests on it: a stale version is refused
at the append.

Prefect's own `concurrency(…)` takes the same slots, but is not used here. It tells a holder that its lease
was lost by an exception thrown at any instruction, or not at all; and the waiting threads of a process queue,
so that a time limit of 1 s was seen to be raised after 12 s, behind a thread that waited without one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ledger.errors import BadInput, LockTimeout, shown
from ledger.names import split_name
from ledger.store.locks import Held, checked_timeout
from ledger.store.nesting import Nesting, Path

from .limits import Lease, LimitUnfit, clock, ensure_limit, limit_name, own_client, prefect_errors

SHORTEST, LONGEST = 60.0, 86_400.0  # seconds of a lease, as the Prefect server takes them
PAUSE: Final = 2.0
"""Seconds at most until a waiting scope asks again."""
LOCKED, TOO_SMALL = 423, 422

_nesting = Nesting()


class _Thread(threading.local):
    """What this thread holds, by process and limit: a fork holds nothing."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, str], Lease] = {}


_mine = _Thread()


class PrefectLocks:
    """Locks of the project stores, each a global concurrency limit `<project>_<pipeline>_state_lock`.

    pipeline: `lsm` or `oct` (spec S0-11), or the name of your own. lease_seconds: how long a slot stays with
    a holder that is gone, 60 at least; a living one renews it. A limit is made by `ensure_lock`, once.
    """

    def __init__(self, pipeline: str, *, lease_seconds: float = SHORTEST) -> None:
        if not SHORTEST <= lease_seconds <= LONGEST:
            raise BadInput(
                f"lease_seconds {shown(lease_seconds)} must be from {SHORTEST:g} to {LONGEST:g}, as Prefect "
                "takes them"
            )
        self.pipeline, self.lease_seconds = pipeline, lease_seconds

    def ensure_lock(self, project: str) -> str:
        """Make the project's limit, or bring it back to one slot that does not decay; its name."""
        name = limit_name(project, self.pipeline)
        ensure_limit(name, 1, slot_decay_per_second=0.0)
        return name

    @contextmanager
    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> Iterator[Held]:
        """As in Locks. Raises LimitUnfit and ServerUnavailable too."""
        with _nesting.entered(path), self.shared(path, timeout_seconds=timeout_seconds) as held:
            yield held

    @contextmanager
    def shared(self, path: Path, *, timeout_seconds: float | None) -> Iterator[Held]:
        """As in Locks; not shared in truth, for a limit knows no readers. A thread never waits for itself."""
        checked_timeout(timeout_seconds)
        key = (os.getpid(), limit_name(split_name(path[0])[1][0], self.pipeline))
        if outer := _mine.held.get(key):
            yield outer
            return
        with own_client() as client:
            with prefect_errors():
                lease = self._take(client, key[1], path[0], timeout_seconds)
            _mine.held[key] = lease
            try:
                yield lease
            finally:
                del _mine.held[key]
                lease.give_back()

    def _take(self, client: Any, limit: str, stream: str, timeout_seconds: float | None) -> Lease:
        """Wait for the slot. Raises LockTimeout, LimitUnfit."""
        give_up = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            begun = clock()
            said, pause = self._ask(client, limit)
            if said is not None:
                return self._checked(client, limit, said, begun)
            left = pause if give_up is None else give_up - time.monotonic()
            if left <= 0:
                raise LockTimeout(stream, timeout_seconds)
            time.sleep(min(pause, left))

    def _ask(self, client: Any, limit: str) -> tuple[dict[str, Any] | None, float]:
        """What the server granted; or None, and the seconds until it is worth asking again."""
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
            return None, min(PAUSE, float(error.response.headers.get("Retry-After", PAUSE)))

    def _checked(self, client: Any, limit: str, said: dict[str, Any], begun: float) -> Lease:
        """The lease, if what was taken is a lock. Raises LimitUnfit."""
        slots = [found["limit"] for found in said["limits"]]
        if slots != [1]:
            client.release_concurrency_slots_with_lease(said["lease_id"])
            raise LimitUnfit(limit, f"has {slots[0]} slots" if slots else "does not exist")
        return Lease(client, said["lease_id"], self.lease_seconds, begun)


def _holder() -> Any:
    """The present run, so that Prefect can show who holds the slot; None outside of one."""
    from prefect.client.schemas.objects import ConcurrencyLeaseHolder
    from prefect.runtime import flow_run, task_run

    if task_run.id:
        return ConcurrencyLeaseHolder(type="task_run", id=task_run.id)
    return ConcurrencyLeaseHolder(type="flow_run", id=flow_run.id) if flow_run.id else None
