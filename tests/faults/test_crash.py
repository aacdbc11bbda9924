"""kill -9 of the server, and answers that are lost: what was promised holds, and nothing is half there."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ledger
from ledger import ANY, NEW, AppendUncertain, Exact, Ledger, ServerUnavailable
from ledger.embedded import Embedded
from ledger.log import read
from ledger.log.cursor import Checkpoint
from ledger.log.sql import run
from tests.faults.conftest import eventually
from tests.faults.crashes import Proxy, crash, keep_log_in_memory, kill
from tests.faults.readers import Tail, bound_then_rows, check_order, skipped
from tests.faults.schedules import look, put
from tests.faults.writers import committed, writing
from tests.lamp import LampRead, OpenLamp


def survive(
    server: Embedded, log: Ledger, folder: Path, rounds: Callable[[int], bool], seed: int, writers: int
) -> dict[str, int]:
    """Kill the server again and again under writers; check what is left. Returns the figures."""
    dice, kills = random.Random(seed), 0
    with writing(folder, writers, "Survivor", dsn=log.address.conninfo, seed=seed) as records:
        tails = [Tail(log, bound_then_rows, seed=n) for n in range(2)]
        eventually(lambda: all(record.exists() and record.stat().st_size for record in records))
        while rounds(kills):
            seen = len(tails[0].delivered)
            time.sleep(dice.random() * 0.7)
            crash(server)
            kills += 1
            eventually(lambda seen=seen: len(tails[0].delivered) > seen + 20, 60)  # type: ignore[misc]
    everything = [tail.end() for tail in tails]
    promised = committed(records)
    stored = [row for at in range(0, log.bound(), 1000) for row in log.log(at, min(at + 1000, log.bound()))]
    for delivered in everything:
        assert delivered == stored, "a reader that lived on saw another log than there is"
    check_order(stored)
    assert not skipped(promised, stored), "an append that returned is lost"
    check_whole(stored)
    return {"kills": kills, "promised": len(promised), "stored": len(stored), "outages": tails[0].outages}


def check_whole(stored: list[Any]) -> None:
    """All events of an append are there: `of` is how many its writer sent."""
    appends: dict[str, list[Any]] = {}
    for row in stored:
        appends.setdefault(row.event.value, []).append(row)
    for value, rows in appends.items():
        assert len(rows) == int(value.split("/")[1]), f"append {value} is half there"
        assert rows[-1].position - rows[0].position == len(rows) - 1


def test_nothing_promised_is_lost_when_the_server_is_killed(
    durable: Embedded, hardy: Ledger, tmp_path: Path
) -> None:
    survive(durable, hardy, tmp_path, lambda kills: kills < 1, seed=random.randrange(2**20), writers=3)


@pytest.mark.slow
def test_minutes_of_killing_the_server(
    durable: Embedded, hardy: Ledger, tmp_path: Path, minutes: float
) -> None:
    end = time.monotonic() + 60 * minutes
    figures = survive(
        durable, hardy, tmp_path, lambda _: time.monotonic() < end, seed=random.randrange(2**20), writers=8
    )
    print(f"\ncrash: {figures}")


# The sequence falls back


def fall_back(server: Embedded, log: Ledger) -> tuple[int, int]:
    """Hand out positions that nobody commits, and crash: the last one before, and the last one after."""
    with (
        psycopg.connect(server.admin_dsn(), autocommit=True) as admin,
        psycopg.connect(log.address.conninfo) as user,
    ):
        log.append("lamp/a", LampRead())
        keep_log_in_memory(admin)
        for _ in range(100):
            put(log, user, "lamp/lost")
        user.rollback()
        before = log.bound()
        kill(server)
    server.acquire()
    return before, log.bound()


@pytest.fixture
def fallen(durable: Embedded, hardy: Ledger) -> tuple[int, int]:
    """Of a ledger that crashed: the bound before and after, which is less."""
    before, after = fall_back(durable, hardy)
    assert 1 <= after < before == 101
    return before, after


def test_a_sequence_falls_back_and_cursors_go_on(hardy: Ledger, fallen: tuple[int, int]) -> None:
    _, after = fallen
    again = hardy.append("lamp/a", LampRead()).last_position
    assert again == after + 1
    assert look(hardy, cursor=1) == [again]


def test_a_cursor_that_is_the_bound_skips_after_a_crash(hardy: Ledger, fallen: tuple[int, int]) -> None:
    """Negative control: the cursor must be the last event delivered."""
    before, _ = fallen
    hardy.append("lamp/a", LampRead())
    assert look(hardy, cursor=before) == []


def test_a_bound_that_is_kept_over_a_crash_skips(hardy: Ledger, fallen: tuple[int, int]) -> None:
    """Negative control: `known` is of one life of the server; `Ledger.tail` drops it with its connection."""
    before, after = fallen
    with psycopg.connect(hardy.address.conninfo) as holder:
        put(hardy, holder, "lamp/late", before - after - 1)
        assert hardy.append("lamp/quick", LampRead()).last_position == before
        assert hardy.bound() == after
        with hardy.reader() as reader:
            ((kept,),) = run(reader, hardy.schema, read.SQL.bound, known=before)
        assert [row.position for row in hardy.log(after, kept)] == [before]
        holder.commit()
    assert look(hardy, cursor=before) == []


def test_a_follower_that_lives_on_keeps_no_bound_over_a_crash(durable: Embedded, hardy: Ledger) -> None:
    hardy.append("lamp/a", LampRead())
    follower = Checkpoint(hardy.identity.ledger)
    assert len(hardy.tail.read(follower, 10)) == 1
    before, after = fall_back(durable, hardy)
    with psycopg.connect(hardy.address.conninfo) as holder:
        put(hardy, holder, "lamp/late", before - after - 1)
        assert hardy.append("lamp/quick", LampRead()).last_position == before
        with pytest.raises(ServerUnavailable):
            hardy.tail.read(follower, 10)
        assert [row.position for row in hardy.tail.read(follower, 10)] == [2]
        assert hardy.tail.read(follower, 10) == []
        holder.commit()
    rows = hardy.tail.read(follower, 1000)
    assert [row.position for row in rows] == list(range(after + 1, before + 1))


# The answer is lost


@pytest.fixture
def far(proxy: Proxy, log: Ledger) -> Iterator[Ledger]:
    """The ledger of `log`, reached through the proxy, with one connection on which all is prepared."""
    with ledger.connect(proxy.dsn, actor="tester", max_size=1, timeout=3) as far:
        for command in (None, "warm"):  # each has a prepared statement of its own
            for events in (1, 2):
                name = f"warm/{command}/{events}"
                far.append(name, *[LampRead()] * events, expected=NEW, command=command and name)
        yield far


@pytest.mark.parametrize("events", [1, 2])
@pytest.mark.parametrize("expected", [NEW, ANY])
@pytest.mark.parametrize("what", ["answer", "message"])
def test_with_a_command_a_lost_answer_is_no_matter(
    far: Ledger, log: Ledger, proxy: Proxy, what: str, expected: Any, events: int
) -> None:
    proxy.lose(what)
    done = far.append("lamp/a", *[LampRead()] * events, expected=expected, command="once")
    assert (proxy.lost, done.repeated, done.version) == (1, what == "answer", events)
    rows = log.read("lamp/a")
    assert (rows[0].position, rows[-1].position) == (done.first_position, done.last_position)
    assert [row.version for row in rows] == list(range(1, events + 1))


@pytest.mark.parametrize("events", [1, 2])
def test_an_exact_append_whose_answer_is_lost_is_uncertain_and_no_conflict(
    far: Ledger, log: Ledger, proxy: Proxy, events: int
) -> None:
    proxy.lose("answer")
    with pytest.raises(AppendUncertain, match="lamp/a"):
        far.append("lamp/a", *[LampRead()] * events, expected=NEW)
    assert (proxy.lost, len(log.read("lamp/a"))) == (1, events)


def test_an_exact_append_that_never_arrived_is_sent_again(far: Ledger, log: Ledger, proxy: Proxy) -> None:
    log.append("lamp/a", LampRead())
    proxy.lose("message")
    assert far.append("lamp/a", LampRead(), expected=Exact(1)).version == 2
    assert (proxy.lost, len(log.read("lamp/a"))) == (1, 2)


@pytest.mark.parametrize("what", ["answer", "message"])
def test_an_append_at_any_version_is_uncertain(far: Ledger, log: Ledger, proxy: Proxy, what: str) -> None:
    proxy.lose(what)
    with pytest.raises(AppendUncertain):
        far.append("lamp/a", LampRead())
    found = log.load(OpenLamp, "a").version
    assert (proxy.lost, found) == (1, 1 if what == "answer" else 0)
    assert far.append("lamp/a", LampRead()).version == found + 1


@pytest.mark.parametrize(("command", "error"), [(None, AppendUncertain), ("once", ServerUnavailable)])
def test_a_server_that_stays_away_leaves_the_append_uncertain(
    far: Ledger, log: Ledger, proxy: Proxy, command: str | None, error: type[Exception]
) -> None:
    proxy.lose("answer")
    proxy.shut()
    with pytest.raises(error):
        far.append("lamp/a", LampRead(), expected=NEW, command=command)
    proxy.open()
    assert len(log.read("lamp/a")) == 1
    if command:
        assert far.append("lamp/a", LampRead(), expected=NEW, command=command).repeated


def test_a_backend_that_is_terminated_while_it_waits_is_no_conflict(
    log: Ledger, connection: psycopg.Connection[Any], connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """The waiting append did nothing; an exact one is sent again and takes its place."""
    holder = connect()
    put(log, holder, "lamp/a")
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(log.append("lamp/a", LampRead(), expected=NEW)))
    thread.start()
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    eventually(lambda: connection.execute(waits).rowcount)
    ((pid,),) = connection.execute(waits).fetchall()
    connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    holder.rollback()
    thread.join()
    assert [row.version for row in log.read("lamp/a")] == [done[0].version] == [1]
