"""Global concurrency limits of Prefect as locks: their names, their creation, and a held slot."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ledger.domain.names import project_key
from ledger.errors import BadInput, ServerUnavailable, shown

from .extra import needs_extra

logger = logging.getLogger(__name__)

RENEWALS: Final = 3
"""How often a lease is renewed within its length: two renewals may fail before it is lost."""
TIMEOUT: Final = 10.0
"""Seconds to wait for an answer of the Prefect server."""
LOST_STATUSES: Final = (404, 410)

# What Prefect refuses in a name, and what a path of its API cannot carry.
_UNFIT: Final = re.compile(r"[/%&<>?#\\\x00-\x1f\x7f]")


class LimitUnfit(ServerUnavailable):
    """The global concurrency limit that is to be the lock is missing, or would let several in."""

    def __init__(self, name: str, wrong: str) -> None:
        super().__init__(
            f"the global concurrency limit {name!r} {wrong}, so it locks nothing; "
            "PrefectLocks(…).ensure_lock(PROJECT) sets it right, once for each project"
        )
        self.name, self.wrong = name, wrong


def limit_name(project: str, pipeline: str) -> str:
    """The limit's name: `<normalized>_<pipeline>_state_lock` (spec S0-11).

    A character that a limit's name cannot hold is written `~` and its code.
    """
    name = f"{project_key(project)}_{pipeline}_state_lock"
    return _UNFIT.sub(lambda found: f"~{ord(found[0]):02X}", name)


def ensure_limit(name: str, limit: int, **settings: Any) -> None:
    """Create the limit, or bring it to this number of slots, and switch it on (spec S0-10).

    settings: further fields, such as `slot_decay_per_second`. Raises BadInput, ServerUnavailable.
    """
    if not _is_count(limit):
        raise BadInput(f"limit {shown(limit)} must be a number of slots, 0 or more")
    if _UNFIT.search(name):
        raise BadInput(
            f"limit name {shown(name)} has a character that Prefect refuses; limit_name() writes it"
        )
    with own_client() as client, prefect_errors():
        from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
        from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

        wanted: dict[str, Any] = {"limit": limit, "active": True, **settings}
        update = GlobalConcurrencyLimitUpdate(**wanted)
        try:
            client.update_global_concurrency_limit(name, update)
        except ObjectNotFound:
            try:
                client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, **wanted))
            except ObjectAlreadyExists:  # another was faster
                client.update_global_concurrency_limit(name, update)


@contextmanager
def own_client() -> Iterator[Any]:
    """
    A client of the Prefect server, used by nothing else.

    Another thread than the run's renews the lease, and the client of the run ends with the run.
    """
    with needs_extra():
        from prefect.client.orchestration import get_client
    try:
        client = get_client(sync_client=True, httpx_settings={"timeout": TIMEOUT})
    except ValueError as error:  # it names the setting that is missing
        raise ServerUnavailable(str(error)) from None
    with client:
        yield client


@contextmanager
def prefect_errors() -> Iterator[None]:
    """Raise errors of the Prefect server and of the connection as ServerUnavailable."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise ServerUnavailable(
            f"the Prefect server answered {error.response.status_code} to {error.request.url.path}"
        ) from error
    except httpx.HTTPError as error:
        raise ServerUnavailable(
            f"the Prefect server does not answer ({type(error).__name__}): is it running, and is "
            "PREFECT_API_URL its address?"
        ) from error


class Lease:
    """A held slot, which a thread renews until it is released.

    It is lost when the server no longer has it, or could not be reached for as long as it lasts.
    """

    def __init__(self, client: Any, lease_id: str, seconds: float, begun: float) -> None:
        self._client, self._id, self._seconds = client, lease_id, seconds
        self._until, self._gone = begun + seconds, False
        self._ended = threading.Event()
        run = contextvars.copy_context().run  # Prefect keeps its settings there
        self._thread = threading.Thread(target=run, args=(self._renew,), name="prefect lease", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether the server may have given the slot to another."""
        return self._gone or clock() > self._until

    def release(self) -> None:
        """Release the slot. If the server cannot be reached, the lease expires."""
        import httpx

        self._ended.set()
        try:
            self._client.release_concurrency_slots_with_lease(self._id)
        except httpx.HTTPError as error:
            logger.warning("the slot of a scope is free only when its lease expires: %s", error)
        self._thread.join(TIMEOUT)

    def _renew(self) -> None:
        import httpx

        while not self._ended.wait(self._seconds / RENEWALS):
            begun = clock()
            try:
                self._client.renew_concurrency_lease(self._id, self._seconds)
                self._until = begun + self._seconds
            except httpx.HTTPStatusError as error:
                if error.response.status_code in LOST_STATUSES:
                    self._gone = True
                    return
            except httpx.HTTPError as error:
                logger.warning("the lease of a scope could not be renewed, trying again: %s", error)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def clock() -> float:
    """Seconds, including sleep of the machine, during which a lease goes on."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
