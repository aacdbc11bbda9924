"""Scopes of project state wait for each other, and one that lost its lock stores nothing that is stale."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from ledger import AlreadyOpen, BadInput, Ledger, LockLost, LockTimeout, StreamConflict
from ledger.pipelines import LSM, LSMStateService, LSMStripId, OCTStateService, ProjectStore
from tests.log import scopes
from tests.log.scopes import elsewhere, eventually, is_free, waits
from tests.pipelines.recorded_facts import recorded, words

Connection = psycopg.Connection[Any]
Scope = AbstractContextManager[Any]
IDS = {"slice_id": 1, "channel_id": 0}
STRIP = LSMStripId("p", 1, 0, 2)


@pytest.fixture(autouse=True)
def no_locks_left(connection: Connection) -> Iterator[None]:
    yield
    scopes.all_ended(connection)


@pytest.fixture
def lose(log: Ledger, connection: Connection) -> Callable[[], None]:
    """Ends the sessions of all open scopes, as a restart of the server would."""

    def end_them() -> None:
        ended = connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {scopes.SCOPES}").fetchall()  # type: ignore[arg-type]
        assert ended

    return end_them


# Who waits


def test_different_strips_of_one_project_do_not_wait(grown: LSMStateService) -> None:
    with grown.open_strip("p", **IDS, strip_id=1) as one:
        with elsewhere(grown.open_strip("p", **IDS, strip_id=2, timeout_seconds=0)):
            assert is_free(grown.open_strip("p", slice_id=2, strip_id=1, timeout_seconds=0))
        one.mark_completed()


def test_open_project_waits_for_all_below_and_they_for_it(grown: LSMStateService) -> None:
    with grown.open_strip(STRIP):
        assert not is_free(grown.open_project("p", timeout_seconds=0))
        assert not is_free(grown.open_channel("p", **IDS, timeout_seconds=0))
        assert is_free(grown.open_slice("p", slice_id=2, timeout_seconds=0))
    with grown.open_project("p"):
        for scope in (
            grown.open_strip(STRIP, timeout_seconds=0),
            grown.open_slice("p", slice_id=9, timeout_seconds=0),
        ):
            assert not is_free(scope)


def test_projects_and_pipelines_never_wait_for_each_other(service: LSMStateService, log: Ledger) -> None:
    """Spec S0-11, S0-12."""
    with service.open_project("p"):
        assert is_free(service.open_project("p2", timeout_seconds=0))
        assert is_free(OCTStateService(log).open_project("p", timeout_seconds=0))
        with OCTStateService(log).open_project("p"), service.open_project("pp"):
            pass


@pytest.mark.parametrize(("name", "same"), [("a-b", True), ("A_B", True), ("a_b", True), ("ab", False)])
def test_w0_14_spellings_of_one_project_share_its_locks(
    service: LSMStateService, name: str, same: bool
) -> None:
    with service.open_project("A_b"):
        assert is_free(service.open_project(name, timeout_seconds=0)) is not same
        assert is_free(service.open_strip(name, slice_id=1, strip_id=1, timeout_seconds=0)) is not same
    with service.open_project(name) as project:
        assert project.to_view().project_name == ("A_b" if same else name)


def test_a_read_waits_for_scopes_on_it_and_above_and_sees_what_they_store(
    grown: LSMStateService, connection: Connection
) -> None:
    for scope in (grown.open_strip(STRIP), grown.open_slice("p", slice_id=1)):
        with ThreadPoolExecutor(1) as threads:
            item = scope.__enter__()
            reading = threads.submit(grown.read_strip, STRIP)
            eventually(lambda: scopes.held_by_scopes(connection, waiting=True) == 1)
            assert grown.peek_strip(STRIP) is not None
            (item.find(STRIP) if hasattr(item, "find") else item).mark_started()
            scope.__exit__(None, None, None)
            found = reading.result(30)
        assert found == grown.read_strip(STRIP)
        assert found is not None
        assert found.processing_state == "running"
        grown.store.update_item(STRIP, lambda strip: strip.mark_pending())


def test_a_read_does_not_wait_for_what_is_open_below(grown: LSMStateService) -> None:
    with elsewhere(grown.open_strip(STRIP)):
        assert grown.read_channel("p", **IDS, timeout_seconds=0) is not None
        assert grown.read_project("p", timeout_seconds=0).get_slice(1) is not None
        with pytest.raises(LockTimeout):
            grown.read_strip(STRIP, timeout_seconds=0)
        with pytest.raises(LockTimeout), grown.open_project("p", timeout_seconds=0):
            pass


def test_a_peek_never_waits(grown: LSMStateService) -> None:
    with elsewhere(grown.open_project("p")):
        assert grown.peek_project("p").get_slice(1) is not None
        assert grown.peek_strip(STRIP) is not None
        with pytest.raises(LockTimeout, match="project/p is still open elsewhere by tester"):
            grown.read_strip(STRIP, timeout_seconds=0)


def test_a_read_within_the_own_scope_shows_what_is_stored(grown: LSMStateService) -> None:
    with grown.open_strip(STRIP) as strip:
        strip.mark_started()
        stored = grown.read_strip(STRIP, timeout_seconds=1)
        assert stored is not None
        assert stored.processing_state == "pending"


def test_bad_timeouts_are_refused_before_anything(service: LSMStateService, log: Ledger) -> None:
    with pytest.raises(BadInput, match="timeout_seconds '3' must be a number"):
        service.read_project("p", timeout_seconds="3")  # type: ignore[arg-type]
    with pytest.raises(BadInput), service.open_project("p", timeout_seconds=-1):
        pass
    assert log.streams() == []


# Scopes within scopes, and their ends


def test_a_nested_open_of_one_path_names_the_outer_scope(grown: LSMStateService) -> None:
    inner: list[Scope] = [grown.open_strip(STRIP), grown.open_channel("p", **IDS), grown.open_project("P")]
    with grown.open_strip(STRIP) as strip:
        for scope in inner:
            with pytest.raises(AlreadyOpen, match="strip/p/1/0/2 of this thread"), scope:
                pass
        with grown.open_strip("p", **IDS, strip_id=1) as sibling:
            sibling.mark_completed()
        strip.mark_completed()
    channel = grown.read_channel("p", **IDS)
    assert channel is not None
    assert channel.all_succeeded(2)


def test_an_exception_stores_nothing_and_frees(grown: LSMStateService, log: Ledger) -> None:
    """Spec S0-05."""
    before = recorded(log)

    def fail() -> None:
        with grown.open_project("p") as project:
            project.mark_completed()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert recorded(log) == before
    assert is_free(grown.open_project("p", timeout_seconds=5))


def test_changes_of_many_threads_wait_and_none_is_refused(grown: LSMStateService) -> None:
    def work() -> None:
        for _ in range(5):
            with grown.open_strip(STRIP, timeout_seconds=60) as strip:
                strip.mark_started()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    view = grown.peek_strip(STRIP)
    assert view is not None
    assert view.attempts == 30


def test_the_store_of_a_pipeline_locks_too(log: Ledger) -> None:
    store = ProjectStore(LSM, log)
    with store.locked("p"):
        assert not is_free(store.locked("P", timeout_seconds=0))
        assert not is_free(store.open("p", lambda project: project, timeout_seconds=0))
        with pytest.raises(AlreadyOpen):
            store.update("p", lambda project: project.touch())
        assert store.read("p", lambda project: project.slices) == {}
    with elsewhere(store.locked("p")), pytest.raises(LockTimeout):
        store.read("p", lambda project: project, timeout_seconds=0)


# Lost locks


def test_a_stale_scope_is_refused_and_stores_nothing(
    grown: LSMStateService, log: Ledger, lose: Callable[[], None]
) -> None:
    """Spec W0-02, W0-03."""

    def stale() -> None:
        with grown.open_strip(STRIP) as strip:
            strip.mark_completed()
            lose()
            with ThreadPoolExecutor(1) as threads:
                threads.submit(takes_over).result(30)

    def takes_over() -> None:
        with grown.open_strip(STRIP, timeout_seconds=5) as strip:
            strip.mark_failed("taken over")

    with pytest.raises(StreamConflict) as caught:
        stale()
    assert caught.value.stream == "lsm.strip/p/1/0/2"
    assert words(log, "lsm.strip/p/1/0/2") == ["created", "uploaded", "failed"]


def test_a_lost_lock_alone_refuses_no_leaf(grown: LSMStateService, lose: Callable[[], None]) -> None:
    with grown.open_strip(STRIP) as strip:
        lose()
        strip.mark_completed()
    view = grown.read_strip(STRIP)
    assert view is not None
    assert view.succeeded


def test_what_was_only_looked_at_below_is_not_trusted_without_the_lock(
    grown: LSMStateService, log: Ledger, lose: Callable[[], None]
) -> None:
    before = recorded(log)

    def decide() -> None:
        with grown.open_channel("p", **IDS) as channel:
            if len(channel.strips) == 2:
                channel.set_mip_stitched()
            lose()

    with pytest.raises(LockLost, match=r"lsm\.channel/p/1/0: .* nothing was stored"):
        decide()
    assert recorded(log) == before
    with grown.open_channel("p", **IDS) as again:
        again.set_mip_stitched()
        lose()
    view = grown.read_channel("p", **IDS)
    assert view is not None
    assert view.mip_stitched


def test_a_scope_that_lost_its_lock_lets_others_in_at_once(
    grown: LSMStateService, connection: Connection, lose: Callable[[], None]
) -> None:
    with grown.open_project("p"):
        waiter = waits(connection, grown.open_strip(STRIP))
        connection.execute(
            f"SELECT pg_terminate_backend(pid, 5000) {scopes.SCOPES} AND wait_event_type <> 'Lock'"  # type: ignore[arg-type]
        )
        begin = time.monotonic()
        waiter.entered()
        waiter.leave()
        assert time.monotonic() - begin < 20
