"""Scopes that meet: innocent ones both go through, of two that change one item the second is refused."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ledger import NO_LOCKS, Ledger, StreamConflict
from ledger.pipelines import LSMStateService
from tests.pipelines.recorded_facts import check_heads, words

IDS = {"slice_id": 1, "channel_id": 0}


@pytest.fixture
def service(log: Ledger) -> LSMStateService:
    """Without the courtesy of locks: what is right must hold by the versions alone."""
    return LSMStateService(log, locks=NO_LOCKS)


@contextmanager
def refused(log: Ledger, stream: str) -> Iterator[None]:
    """What is done in the block conflicts on this stream; what it did before that is stored alone."""
    with pytest.raises(StreamConflict) as caught:
        yield
    assert caught.value.stream == stream


def together(threads: int, work: Callable[[int, threading.Barrier], None]) -> None:
    """Run the work in threads that wait for each other at the barrier; the first error is raised."""
    barrier = threading.Barrier(threads, timeout=30)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, i, barrier) for i in range(threads)]:
            done.result(timeout=60)


@pytest.mark.parametrize("marked", [True, False])
def test_eight_threads_create_one_path_and_none_conflicts(
    service: LSMStateService, log: Ledger, marked: bool
) -> None:
    def work(i: int, barrier: threading.Barrier) -> None:
        with service.open_strip("p", **IDS, strip_id=i) as strip:
            barrier.wait()
            if marked:
                strip.mark_completed()

    together(8, work)
    channel = service.read_channel("p", **IDS)
    assert channel is not None
    assert [*channel.strips] == [*range(8)]
    assert all(strip.succeeded is marked for strip in channel.strips.values())
    for above in ("lsm.project/p", "lsm.slice/p/1", "lsm.channel/p/1/0"):
        assert words(log, above) == ["created"]
    check_heads(log)


def test_eight_threads_create_one_strip_once(service: LSMStateService, log: Ledger) -> None:
    def work(_: int, barrier: threading.Barrier) -> None:
        with service.open_strip("p", **IDS, strip_id=2) as strip:
            barrier.wait()
        assert strip.to_view() == service.read_strip("p", **IDS, strip_id=2)

    together(8, work)
    assert [words(log, info.stream) for info in log.streams()] == [["created"]] * 4


def test_of_two_scopes_on_one_strip_the_second_is_refused(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip("p", **IDS, strip_id=2):
        pass
    with refused(log, "lsm.strip/p/1/0/2"), service.open_strip("p", **IDS, strip_id=2) as late:
        with service.open_strip("p", **IDS, strip_id=2) as early:
            early.mark_failed("first")
        late.mark_completed()
        late.set_uploaded()
    assert words(log, "lsm.strip/p/1/0/2") == ["created", "failed"]
    check_heads(log)


def test_a_refused_scope_stores_none_of_its_streams(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip("p", **IDS, strip_id=2):
        pass
    with refused(log, "lsm.strip/p/1/0/2"), service.open_channel("p", **IDS) as channel:
        channel.set_mip_stitched()
        channel.get_or_create_strip(1).mark_completed()
        channel.get_or_create_strip(2).mark_completed()
        with service.open_strip("p", **IDS, strip_id=2) as early:
            early.mark_failed()
    found = service.read_channel("p", **IDS)
    assert found is not None
    assert ([*found.strips], found.mip_stitched) == ([2], False)


def test_two_that_create_and_mark_one_slice_conflict(service: LSMStateService, log: Ledger) -> None:
    with refused(log, "lsm.slice/p/1"), service.open_slice("p", slice_id=1) as late:
        with service.open_slice("p", slice_id=1) as early:
            early.mark_started()
        late.mark_started()
    assert words(log, "lsm.slice/p/1") == ["created", "started"]


def test_a_parent_that_is_marked_meanwhile_is_no_conflict(service: LSMStateService, log: Ledger) -> None:
    with service.open_channel("p", **IDS):
        pass
    with service.open_strip("p", **IDS, strip_id=2) as strip:
        with service.open_channel("p", **IDS) as channel:
            channel.mark_started()
        strip.mark_started()
    assert words(log, "lsm.channel/p/1/0") == ["created", "started"]
    assert words(log, "lsm.strip/p/1/0/2") == ["created", "started"]


def test_another_strip_of_the_channel_is_no_conflict(service: LSMStateService) -> None:
    with service.open_strip("p", **IDS, strip_id=1) as one:
        with service.open_strip("p", **IDS, strip_id=2) as other:
            other.mark_completed()
        one.mark_completed()
    channel = service.read_channel("p", **IDS)
    assert channel is not None
    assert channel.all_succeeded(2)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "there again"])
def test_nothing_is_created_under_a_channel_that_was_deleted(
    service: LSMStateService, log: Ledger, again: bool
) -> None:
    with service.open_channel("p", **IDS):
        pass
    with refused(log, "lsm.channel/p/1/0"), service.open_strip("p", **IDS, strip_id=2) as strip:
        with service.open_project("p") as project:
            project.delete_channel(1, 0)
            if again:
                project.get_or_create_channel(1, 0)
        strip.mark_completed()
    assert log.head("lsm.strip/p/1/0/2") is None


def test_a_strip_created_before_the_deletion_stored_is_deleted_with_it(service: LSMStateService) -> None:
    with service.open_strip("p", **IDS, strip_id=1) as old:
        old.set_uploaded()
    with service.open_project("p") as project:
        project.delete_channel(1, 0)
        with service.open_strip("p", **IDS, strip_id=2) as unseen:
            unseen.set_uploaded()
    assert service.read_strip("p", **IDS, strip_id=2) is None
    with service.open_channel("p", **IDS) as channel:
        assert [*channel.strips] == []
        assert not channel.get_or_create_strip(2).uploaded
    found = service.read_channel("p", **IDS)
    assert found is not None
    assert [(each.strip_id, each.uploaded) for each in found.strips.values()] == [(2, False)]


def test_a_deletion_and_a_mark_do_not_both_go_through(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip("p", **IDS, strip_id=2):
        pass
    with refused(log, "lsm.strip/p/1/0/2"), service.open_project("p") as project:
        project.delete_slice(1)
        with service.open_strip("p", **IDS, strip_id=2) as strip:
            strip.mark_completed()
    assert service.read_strip("p", **IDS, strip_id=2) is not None
    with refused(log, "lsm.strip/p/1/0/2"), service.open_strip("p", **IDS, strip_id=2) as strip:
        strip.mark_failed()
        with service.open_project("p") as project:
            project.delete_slice(1)
    assert service.read_strip("p", **IDS, strip_id=2) is None


def stampede(service: LSMStateService, seconds: float) -> tuple[int, int]:
    """Threads that create, count up by attempts, and delete: how many attempts were stored, how many show."""
    until, stored = time.monotonic() + seconds, [0] * 4

    def work(i: int, barrier: threading.Barrier) -> None:
        dice = random.Random(i)
        barrier.wait()
        while time.monotonic() < until:
            try:
                if i == 0 and dice.random() < 0.5:
                    with service.open_project("p") as project:
                        project.delete_channel(1, dice.randrange(2))
                    continue
                ids = {"slice_id": 1, "channel_id": dice.randrange(3), "strip_id": dice.randrange(3)}
                with service.open_strip("P", **ids) as strip:
                    strip.mark_started()
            except StreamConflict:
                continue
            stored[i] += 1

    together(4, work)
    return sum(stored), sum(strip.attempts for strip in service.read_project("p").iter_strips())


def check_stampede(service: LSMStateService, log: Ledger, seconds: float) -> None:
    stored, shown = stampede(service, seconds)
    started = [
        word for info in log.streams("lsm.strip/") for word in words(log, info.stream) if word == "started"
    ]
    assert len(started) == stored > shown > 0
    kept = [
        strip.attempts
        for strip in service.read_project("p").iter_strips()
        if strip.channel_id == 2  # never deleted: nothing of it may be lost
    ]
    counted = [words(log, info.stream).count("started") for info in log.streams("lsm.strip/p/1/2/")]
    assert sum(kept) == sum(counted) > 0
    check_heads(log)


def test_creations_and_deletions_lose_nothing(service: LSMStateService, log: Ledger) -> None:
    check_stampede(service, log, 1.5)


@pytest.mark.slow
def test_creations_and_deletions_lose_nothing_for_long(
    service: LSMStateService, log: Ledger, minutes: float
) -> None:
    check_stampede(service, log, minutes * 60)
