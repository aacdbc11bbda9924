"""The lock on a real Prefect server: whom it holds off, the limit behind it, and what its loss does not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from consumers.prefect_flows import LimitUnfit, PrefectLocks, ensure_limit, limits
from consumers.prefect_flows.limits import own_client
from ledger import AlreadyOpen, BadInput, Ledger, ServerUnavailable, StreamConflict
from ledger.errors import LockTimeout
from ledger.log.scope_locks import HeldLock, Path
from ledger.pipelines import LSMStateService, ProcessingState

pytestmark = [
    pytest.mark.usefixtures("flows", "tidy"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # an empty flow of Prefect's leaves some
]

PROJECT = ("lsm.project/p",)
STRIP = (*PROJECT, "lsm.slice/p/1", "lsm.channel/p/1/1", "lsm.strip/p/1/1/1")
OTHER = (*STRIP[:-1], "lsm.strip/p/1/1/2")


@contextmanager
def held_elsewhere(locks: PrefectLocks, *, path: Path = STRIP) -> Iterator[None]:
    """Another thread holds the path while the block runs."""
    there, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.exclusive(path, timeout_seconds=30):
            there.set()
            enough.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert there.wait(30)
        yield
    finally:
        enough.set()
        thread.join(60)


def in_thread(work: Callable[[], None]) -> None:
    """Do the work in another thread, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(60)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def limit_of(name: str) -> Any:
    with own_client() as client:
        return client.read_global_concurrency_limit_by_name(name)


# The lock


@pytest.mark.parametrize("path", [PROJECT, STRIP, OTHER], ids=["project", "same", "other strip"])
def test_a_scope_waits_for_any_other_of_its_project(locks: PrefectLocks, path: Path) -> None:
    with held_elsewhere(locks):
        for wait in (locks.exclusive, locks.shared):
            begun = time.monotonic()
            with pytest.raises(LockTimeout, match=r"lsm\.project/p is still open elsewhere after 0\.3 s"):
                with wait(path, timeout_seconds=0.3):
                    pass
            assert 0.3 <= time.monotonic() - begun < 3
    with locks.exclusive(path, timeout_seconds=20) as held:
        assert not held.lost


def test_a_timeout_holds_beside_a_thread_that_waits_for_ever(locks: PrefectLocks) -> None:
    def wait() -> None:
        with locks.exclusive(OTHER, timeout_seconds=None):
            pass

    patient = threading.Thread(target=wait)
    with held_elsewhere(locks):
        patient.start()
        begun = time.monotonic()
        with pytest.raises(LockTimeout), locks.exclusive(STRIP, timeout_seconds=0):
            pass
        assert time.monotonic() - begun < 3
        assert patient.is_alive()
    patient.join(30)
    assert not patient.is_alive()


def test_it_is_the_lock_of_other_code(locks: PrefectLocks) -> None:
    from prefect.concurrency.sync import concurrency

    with concurrency("p_lsm_state_lock", occupy=1, strict=True):
        with pytest.raises(LockTimeout), locks.exclusive(STRIP, timeout_seconds=0):
            pass
    with held_elsewhere(locks), pytest.raises(TimeoutError):
        with concurrency("p_lsm_state_lock", occupy=1, strict=True, timeout_seconds=0.5):
            pass


def test_projects_and_pipelines_do_not_wait_for_each_other(locks: PrefectLocks) -> None:
    oct_locks = PrefectLocks("oct")
    assert oct_locks.ensure_lock("P") == "p_oct_state_lock"
    assert locks.ensure_lock("Brain_7") == "brain-7_lsm_state_lock"
    with held_elsewhere(locks):
        with oct_locks.exclusive(("psoct.project/p",), timeout_seconds=0):
            with locks.exclusive(("lsm.project/brain-7",), timeout_seconds=0):
                pass


def test_nested_scopes_of_a_thread(locks: PrefectLocks) -> None:
    with locks.exclusive(STRIP, timeout_seconds=0):
        for path in (PROJECT, STRIP):
            with pytest.raises(AlreadyOpen), PrefectLocks("lsm").exclusive(path, timeout_seconds=0):
                pass
        with locks.exclusive(OTHER, timeout_seconds=0), locks.shared(PROJECT, timeout_seconds=0) as held:
            assert not held.lost
    with held_elsewhere(locks):
        pass


def test_a_strange_name_has_a_lock_too() -> None:
    locks = PrefectLocks("lsm")
    assert locks.ensure_lock("a/b?c%d e{f}ü") == "a~2Fb~3Fc~25d e{f}ü_lsm_state_lock"
    with locks.exclusive(("lsm.project/a%2Fb?c%25d e{f}ü",), timeout_seconds=0):
        pass


# The limit


def test_a_missing_limit_is_an_error() -> None:
    locks = PrefectLocks("lsm")
    with pytest.raises(LimitUnfit, match=r"'absent_lsm_state_lock' does not exist.*ensure_lock") as caught:
        with locks.exclusive(("lsm.project/absent",), timeout_seconds=0):
            pass
    assert isinstance(caught.value, ServerUnavailable)


@pytest.mark.parametrize(("slots", "wrong"), [(0, "has no slot"), (3, "has 3 slots")])
def test_a_limit_that_locks_nothing_is_an_error_until_it_is_set_right(
    locks: PrefectLocks, slots: int, wrong: str
) -> None:
    ensure_limit("p_lsm_state_lock", slots)
    with pytest.raises(LimitUnfit, match=wrong), locks.exclusive(STRIP, timeout_seconds=0):
        pass
    locks.ensure_lock("p")
    with locks.exclusive(STRIP, timeout_seconds=0):
        pass


def test_ensure_limit_creates_and_updates() -> None:
    with own_client() as client:
        from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate

        for slots in (2, 5):
            ensure_limit("shared", slots)
            assert (limit_of("shared").limit, limit_of("shared").active) == (slots, True)
            client.update_global_concurrency_limit("shared", GlobalConcurrencyLimitUpdate(active=False))
    for wrong in (-1, True, 1.0, "1"):
        with pytest.raises(BadInput, match="a number of slots"):
            ensure_limit("shared", wrong)  # type: ignore[arg-type]


def test_a_server_that_is_away_is_named(locks: PrefectLocks) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        with (
            pytest.raises(ServerUnavailable, match="PREFECT_API_URL"),
            locks.exclusive(STRIP, timeout_seconds=0),
        ):
            pass


# Losing it


def revoke(held: HeldLock) -> None:
    """Let the server forget the lease, as when it expires."""
    with own_client() as client:
        client.release_concurrency_slots_with_lease(held._id)  # type: ignore[attr-defined]


def test_a_lease_that_the_server_forgot_is_lost(locks: PrefectLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RENEWALS", 600)  # every 0.1 s
    with locks.exclusive(STRIP, timeout_seconds=0) as held:
        assert not held.lost
        revoke(held)
        eventually(lambda: held.lost)
        with held_elsewhere(locks):
            assert held.lost


def test_a_lease_that_could_not_be_renewed_is_lost(
    locks: PrefectLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locks.exclusive(STRIP, timeout_seconds=0) as held:
        later = limits.clock() + 60.5
        monkeypatch.setattr(limits, "clock", lambda: later)
        assert held.lost


def test_a_lost_lock_loses_no_update(locks: PrefectLocks, log: Ledger) -> None:
    service = LSMStateService(log, locks=locks)
    with service.open_strip("p", slice_id=1, strip_id=1):
        pass

    def first() -> None:
        with service.open_strip("p", slice_id=1, strip_id=1, timeout_seconds=20) as early:
            early.mark_failed("first")

    def late() -> None:
        with service.open_strip("p", slice_id=1, strip_id=1) as strip:
            with locks.shared(PROJECT, timeout_seconds=0) as held:
                revoke(held)
            in_thread(first)
            strip.mark_completed()

    with pytest.raises(StreamConflict):
        late()
    strip = service.read_strip("p", slice_id=1, strip_id=1)
    assert strip is not None
    assert (strip.processing_state, strip.reason) == (ProcessingState.FAILED, "first")


@pytest.mark.slow
def test_the_slot_of_a_killed_holder_comes_back(locks: PrefectLocks, environment: dict[str, str]) -> None:
    program = (
        "import time; from consumers.prefect_flows import PrefectLocks\n"
        f"with PrefectLocks('lsm').exclusive({STRIP!r}, timeout_seconds=5):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with locks.exclusive(STRIP, timeout_seconds=90):
        pass
