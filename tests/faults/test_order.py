"""The order of the log: a reader that asks for the bound first sees every event once, and in order."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import ANY, Append, DamagedLedger, Ledger
from ledger.log.append import body_of
from ledger.log.cursor import Checkpoint
from tests.faults.conftest import eventually
from tests.faults.readers import (
    Tail,
    bound_then_rows,
    check_delivery,
    in_one_snapshot,
    rows_then_bound,
    skipped,
    without_bound,
)
from tests.faults.schedules import as_owner, look, positions, put
from tests.faults.writers import Event, committed, writing
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]


def campaign(
    log: Ledger, folder: Path, seconds: float, writers: int, steps: list[Any], seed: int = 0, least: int = 0
) -> tuple[dict[int, Event], list[Tail]]:
    """Writers against tailing readers for some seconds, and until the first has seen at least so many events.

    What was committed, and the readers at their end.
    """
    with writing(folder, writers, dsn=log.address.conninfo, seed=seed) as records:
        eventually(lambda: log.bound() > 0)
        tails = [Tail(log, step, seed=seed * 100 + n, pause=0.002 * (1 + n)) for n, step in enumerate(steps)]
        time.sleep(seconds)
        eventually(lambda: len(tails[0].delivered) >= least, seconds=900)
    for tail in tails:
        tail.end()  # after the last writer
    return committed(records), tails


def test_readers_see_every_event_once_and_wrong_readers_do_not(log: Ledger, tmp_path: Path) -> None:
    wrong = [without_bound, rows_then_bound, in_one_snapshot]
    events, tails = campaign(log, tmp_path, 3, 4, [bound_then_rows, bound_then_rows, *wrong])
    assert len(events) > 500
    for tail in tails[:2]:
        check_delivery(events, tail.delivered)
    # Each of them for certain in the schedules below; here it shows that the writers were a danger at all.
    assert any(skipped(events, tail.delivered) for tail in tails[2:])


@pytest.mark.slow
def test_sixteen_writers_and_four_readers(log: Ledger, tmp_path: Path, minutes: float) -> None:
    steps = [bound_then_rows] * 4 + [without_bound, rows_then_bound]
    seconds = max(60 * minutes, 30)
    seed, least = time.time_ns() % 2**20, int(100_000 * min(1.0, minutes))
    events, tails = campaign(log, tmp_path, seconds, 16, steps, seed, least)
    print(f"\norder: {len(events)} events of 16 writers in {seconds:.0f} s;", end=" ")
    print(", ".join(f"{t.step.__name__} skipped {len(skipped(events, t.delivered))}" for t in tails))
    assert len(events) >= least
    for tail in tails[:4]:
        check_delivery(events, tail.delivered)
    assert all(skipped(events, tail.delivered) for tail in tails[4:])


# Negative controls, one schedule each: what the reader must not do, and the writer neither.


@pytest.fixture
def late(log: Ledger, connect: Callable[..., Connection]) -> Connection:
    """A transaction that holds the append of position 1 open, while position 2 is committed."""
    holder = connect()
    assert put(log, holder, "lamp/late").first_position == 1
    assert log.append("lamp/quick", LampRead()).first_position == 2
    return holder


def test_the_right_way_waits_for_the_late_one(log: Ledger, late: Connection) -> None:
    assert (log.bound(), look(log)) == (0, [])
    late.commit()
    assert (log.bound(), look(log)) == (2, [1, 2])


def test_without_a_bound_the_late_one_is_skipped(log: Ledger, late: Connection) -> None:
    seen = positions(without_bound(log, 0, lambda: None, 10))
    late.commit()
    assert seen + positions(without_bound(log, seen[-1], lambda: None, 10)) == [2]


def test_rows_before_the_bound_skip_the_late_one(log: Ledger, late: Connection) -> None:
    assert positions(rows_then_bound(log, 0, late.commit, 10)) == [2]


def test_rows_of_the_same_snapshot_skip_the_late_one(log: Ledger, late: Connection) -> None:
    assert positions(in_one_snapshot(log, 0, late.commit, 10)) == [2]


def test_rows_of_the_same_statement_skip_the_late_one(
    log: Ledger, late: Connection, connection: Connection, connect: Callable[..., Connection]
) -> None:
    """The statement has its snapshot and waits; the late one commits; then the bound is asked."""
    gate, found = connect(autocommit=True), list[Any]()
    gate.execute("SELECT pg_advisory_lock(42)")
    query = (
        "WITH gate AS MATERIALIZED (SELECT pg_advisory_xact_lock(42)::text),"
        " bound AS MATERIALIZED (SELECT ledger.bound() AS b FROM gate)"
        " SELECT position FROM ledger.events, bound WHERE position <= b"
    )
    thread = threading.Thread(target=lambda: found.extend(connection.execute(query).fetchall()))
    thread.start()
    waits = "SELECT FROM pg_locks WHERE NOT granted AND objid = 42"
    eventually(lambda: gate.execute(waits).rowcount)
    late.commit()
    gate.execute("SELECT pg_advisory_unlock(42)")
    thread.join()
    assert found == [(2,)]


def test_a_sequence_with_a_cache_makes_readers_skip(log: Ledger, connect: Callable[..., Connection]) -> None:
    first, second = connect(autocommit=True), connect(autocommit=True)
    as_owner(first, "ALTER SEQUENCE positions CACHE 20")
    assert put(log, first).first_position == 1
    assert put(log, second).first_position == 21
    seen = positions(log.log(0, 21))
    assert put(log, first).first_position == 2
    assert seen + positions(log.log(seen[-1], 21)) == [1, 21]
    with pytest.raises(DamagedLedger, match="CACHE 20"):
        look(log)


def test_a_writer_without_a_mark_is_skipped(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    """Past the append functions, as only the owner could."""
    holder = connect()
    columns = "(position, recorded_at, version, stream, topic, data)"
    values = "(nextval('positions'), clock_timestamp(), 1, 'lamp/late', 'lamp.read', '{}')"
    holder.execute("SET ROLE ledger_owner; SET search_path = ledger")
    holder.execute(f"INSERT INTO events {columns} VALUES {values}")  # type: ignore[call-overload]
    log.append("lamp/quick", LampRead())
    seen = look(log)
    holder.commit()
    assert seen + look(log, seen[-1]) == [2]


def test_a_mark_does_not_trust_a_setting(log: Ledger, connect: Callable[..., Connection]) -> None:
    """A session may write what it likes into the setting that remembers the mark."""
    holder = connect()
    holder.execute("SELECT set_config(ledger.mark_name(), '999999', true)")
    put(log, holder, "lamp/late")
    log.append("lamp/quick", LampRead())
    seen = look(log)
    holder.commit()
    assert seen + look(log, max(seen, default=0)) == [1, 2]


# What holds readers back, and what does not


def test_an_unrelated_write_transaction_holds_nobody_back(
    log: Ledger, connect: Callable[..., Connection]
) -> None:
    other = connect()
    other.execute("CREATE TABLE of_the_user (n integer)")
    other.execute("INSERT INTO of_the_user VALUES (1)")
    assert other.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL").fetchone() == (True,)
    for n in range(100):
        done = log.append(f"lamp/{n % 7}", *[LampRead()] * (1 + n % 3))
        assert log.bound() == done.last_position
        assert look(log, done.first_position - 1) == list(range(done.first_position, done.last_position + 1))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO here", "close", "terminate"])
def test_an_open_append_holds_readers_exactly_until_it_ends(
    log: Ledger, connection: Connection, connect: Callable[..., Connection], end: str
) -> None:
    before = log.append("lamp/a", LampRead()).last_position
    holder = connect()
    holder.execute("SAVEPOINT here")
    held = put(log, holder, "lamp/held", 3)
    for _ in range(20):
        last = log.append("lamp/b", LampRead()).last_position
        assert (log.bound(), look(log, before)) == (before, [])
    if end == "close":
        holder.close()
    elif end == "terminate":
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", [holder.info.backend_pid])
    else:
        holder.execute(end)  # type: ignore[call-overload]
    eventually(lambda: log.bound() == last)
    first = held.first_position if end == "COMMIT" else held.last_position + 1
    assert look(log, before) == list(range(first, last + 1))


def test_a_follower_gets_over_a_gap_at_its_end(log: Ledger, connect: Callable[..., Connection]) -> None:
    """The bound that it keeps is beyond its cursor, and between them is nothing."""
    last = log.append("lamp/a", LampRead()).last_position
    holder = connect()
    put(log, holder, count=3)
    holder.rollback()
    follower = Checkpoint(log.identity.ledger)
    assert positions(log.tail.read(follower, 10)) == [last]
    assert positions(log.tail.read(follower, 10)) == []
    log.append("lamp/a", LampRead())
    assert positions(log.tail.read(follower, 10)) == [last + 4]


def test_after_a_rolled_back_savepoint_the_next_append_is_marked_anew(
    log: Ledger, connect: Callable[..., Connection]
) -> None:
    holder = connect()
    holder.execute("SAVEPOINT here")
    put(log, holder)
    holder.execute("ROLLBACK TO here")
    quick = log.append("lamp/quick", LampRead()).last_position
    late = put(log, holder, "lamp/late").last_position
    log.append("lamp/quick", LampRead())
    assert look(log) == [quick]
    holder.commit()
    assert look(log, quick) == [late, late + 1]


# Positions


@pytest.mark.parametrize("border", [2**31, 2**32])
def test_positions_beyond_the_size_of_an_integer(
    log: Ledger, connection: Connection, connect: Callable[..., Connection], border: int
) -> None:
    as_owner(connection, "SELECT setval('positions', %s)", border - 3)
    first, second = connect(), connect()
    assert put(log, first, "lamp/first").first_position == border - 2
    block = log.append("lamp/block", *[LampRead()] * 4)
    assert (block.first_position, block.last_position) == (border - 1, border + 2)
    assert put(log, second, "lamp/second").first_position == border + 3
    last = log.append("lamp/block", LampRead()).last_position
    assert (log.bound(), look(log)) == (border - 3, [])
    first.commit()
    assert (log.bound(), look(log)) == (border + 2, list(range(border - 2, border + 3)))
    second.commit()
    assert (log.bound(), look(log, border + 2)) == (last, [border + 3, border + 4])


@pytest.mark.parametrize("last", [1, 2])
def test_at_the_end_of_the_positions_nothing_is_stored(
    log: Ledger, connection: Connection, last: int
) -> None:
    end = 2**48 - 1
    as_owner(connection, "SELECT setval('positions', %s)", end - 3)
    assert log.append("lamp/a", LampRead()).last_position == end - 2
    log.append("lamp/a", *[LampRead()] * last)
    for count in (2, 1, 1, 2):
        for head in (True, False):
            with pytest.raises(DamagedLedger, match="position"):
                log.append("lamp/a", *[LampRead()] * count, expected=1 + last, head=head)
    assert look(log, end - 3) == list(range(end - 2, end - 1 + last))
    assert [row.version for row in log.read("lamp/a")] == list(range(1, 2 + last))


def test_the_positions_of_one_append_are_contiguous(log: Ledger) -> None:
    """Eight writers at once, singles and blocks; every position between first and last is of that append."""
    whose: dict[int, str] = {}

    def write(writer: int) -> None:
        for nth in range(60):
            mine = f"{writer}:{nth}"
            bodies = [body_of(LampRead(value=mine))]
            count = 1 if writer % 2 else 2 + nth % 9
            appends = [Append(f"lamp/{n}", bodies * count, ANY) for n in {writer, (writer + nth) % 8}]
            done = log.append_all(appends)
            whose.update(dict.fromkeys(range(done.first_position, done.last_position + 1), mine))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [
        row for after in range(0, log.bound(), 1000) for row in log.log(after, min(after + 1000, log.bound()))
    ]
    assert {row.position: row.event.value for row in rows} == whose  # type: ignore[union-attr]
    assert len(set(whose.values())) == 8 * 60
    assert max(Counter(whose.values()).values()) > 10
