"""The weaknesses of the origin's state (spec 1.10): each check fails on a model of it, and holds here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
import pytest

from ledger import Refused
from ledger.pipelines import LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId
from tests.pipelines.sides import Side, both, doomed, holds

PROJECT, CHANNEL, STRIP = LSMProjectId("p"), LSMChannelId("p", 1, 1), LSMStripId("p", 1, 1, 2)
OTHER = LSMStripId("p", 1, 1, 1)


@both
def test_w0_01_reading_writes_nothing(side: Side) -> None:
    with side.lsm.open_item(STRIP) as strip:
        strip.set_archived()
    before = side.footprint()
    for ident in (PROJECT, LSMSliceId("p", 1), CHANNEL, STRIP, LSMProjectId("nobody")):
        side.lsm.read_item(ident)
        side.lsm.peek_item(ident)
    side.show("p")
    holds(side.footprint() == before, "reading wrote")


@both
def test_w0_02_an_update_is_not_lost_where_no_lock_helps(side: Side) -> None:
    first, second = side.unlocked(), side.unlocked()
    with suppress(Refused), first.open_item(STRIP) as strip:
        with second.open_item(STRIP) as other:
            other.set_archived()
        strip.set_compressed()
    holds(side.lsm.peek_item(STRIP).archived, "the last writer won, without a word")


@both
def test_w0_03_a_killed_holder_blocks_nobody(side: Side) -> None:
    with doomed(side, "hold") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "there\n"
        with pytest.raises(TimeoutError), side.lsm.open_item(STRIP, timeout_seconds=0.2):
            pytest.fail("it is open elsewhere")
        holder.kill()
        holder.wait(20)
    with suppress(TimeoutError), side.lsm.open_item(STRIP, timeout_seconds=3) as strip:
        strip.set_archived()
    found = side.lsm.peek_item(STRIP)
    holds(found is not None and found.archived, "the lock outlived its holder")


@both
def test_w0_03_who_lost_the_lock_cannot_store_over_a_successor(side: Side) -> None:
    loaded, go_on = threading.Event(), threading.Event()

    def zombie() -> None:
        with suppress(Refused), side.lsm.open_item(STRIP) as strip:
            loaded.set()
            assert go_on.wait(30)
            strip.set_compressed()

    with side.lsm.open_item(STRIP):
        pass
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(zombie)
        assert loaded.wait(30)
        side.free_locks()
        with side.lsm.open_item(STRIP, timeout_seconds=20) as strip:
            strip.set_archived()
        go_on.set()
        working.result(timeout=30)
    holds(side.lsm.peek_item(STRIP).archived, "a zombie stored over its successor")


@both
def test_w0_05_a_restarted_item_is_not_finished(side: Side) -> None:
    for change in ("mark_started", "mark_completed", "mark_started"):
        with side.lsm.open_item(OTHER) as strip:
            getattr(strip, change)()
    channel = side.lsm.peek_item(CHANNEL)
    assert channel.strips[1].processing_state == "running"
    holds(not channel.all_completed(1), "a channel is complete while its strip is running again")


@both
def test_w0_06_what_happened_is_known_afterwards_and_who_did_it(side: Side) -> None:
    side.fail(STRIP, "no focus", "mina")
    with side.lsm.open_item(STRIP) as strip:
        strip.mark_started()
        strip.mark_completed()
    holds(
        ("failed", "no focus", "mina") in side.history(STRIP),
        "the failure, its reason and its actor are lost",
    )


@both
def test_w0_13_a_project_with_slices_can_be_reset(side: Side) -> None:
    for slice_id in (1, 2):
        with side.lsm.open_item(LSMSliceId("p", slice_id)):
            pass
    try:
        side.reset_all("p")
    except RuntimeError as error:
        holds(False, f"reset --all stopped: {error}")
    assert not side.lsm.peek_item(PROJECT).slices


@both
def test_w0_13_a_reset_of_nothing_is_no_success(side: Side) -> None:
    with suppress(ValueError):
        side.reset_all("p")
        holds(False, "nothing was there, and its reset was reported")


@both
def test_w0_14_two_spellings_are_one_project(side: Side) -> None:
    with side.lsm.open_item(LSMStripId("A_b", 1, 1, 2)) as strip:
        strip.set_archived()
    found = side.lsm.peek_item(LSMStripId("a-B", 1, 1, 2))
    holds(found is not None and found.archived, "two spellings fork the state")


@both
def test_w0_15_a_strip_does_not_wait_for_another(side: Side) -> None:
    with side.lsm.open_item(OTHER), ThreadPoolExecutor(1) as pool:

        def work() -> None:
            with side.lsm.open_item(STRIP, timeout_seconds=0.5) as strip:
                strip.set_archived()

        working = pool.submit(work)
        with suppress(TimeoutError):
            working.result(timeout=20)
    found = side.lsm.peek_item(STRIP)
    holds(found is not None and found.archived, "one open strip blocks all the others")


@both
def test_w0_15_a_flag_costs_the_same_in_a_large_project(side: Side) -> None:
    small = written(side, "small", 2)
    large = written(side, "large", 300)
    holds(large < 3 * small, f"a flag writes {small} bytes in a project of 2 strips, and {large} of 300")


def written(side: Side, project: str, strips: int) -> int:
    """Bytes of the server's log for one flag of one strip, the least of some, among so many strips."""
    channel = LSMChannelId(project, 1, 1)
    with side.lsm.open_item(channel) as opened:
        for strip_id in range(1, strips + 1):
            opened.get_or_create_strip(strip_id).mark_completed()
    return min(_wal(side, LSMStripId(project, 1, 1, 1)) for _ in range(5))


def _wal(side: Side, strip: LSMStripId) -> int:
    with psycopg.connect(side.dsn, autocommit=True) as connection:
        (before,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or ("",)
        with side.lsm.open_item(strip) as opened:
            opened.set_archived()
        ((bytes_,),) = connection.execute(
            "SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [before]
        ).fetchall()
    return int(bytes_)


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """A host in another place of the world."""
    was = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if was is None else os.environ.update(TZ=was)
        time.tzset()


@both
def test_w0_16_work_does_not_end_before_it_began(side: Side) -> None:
    with in_zone("Asia/Tokyo"), side.lsm.open_item(STRIP) as strip:
        strip.mark_started()
    with in_zone("America/New_York"), side.lsm.open_item(STRIP) as strip:
        strip.mark_completed()
    seen = side.lsm.peek_item(STRIP)
    holds(seen.processing_finished_at >= seen.processing_started_at, "it ended before it began")
    assert seen.processing_started_at.utcoffset() is not None


@both
def test_w0_20_there_is_one_way_to_clear_a_flag(side: Side) -> None:
    for ident, clear in ((STRIP, "set_compressed"), (OTHER, "reset_compressed")):
        with side.lsm.open_item(ident) as strip:
            strip.set_compressed()
            strip.set_uploaded()
        with side.lsm.open_item(ident) as strip:
            getattr(strip, clear)(*([False] if clear.startswith("set") else []))
    one, other = side.lsm.peek_item(STRIP), side.lsm.peek_item(OTHER)
    assert not one.compressed
    holds(one.uploaded == other.uploaded, "set_x(False) leaves what reset_x() clears")
