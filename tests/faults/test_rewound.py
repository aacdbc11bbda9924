"""The log is put back to an earlier point: no follower that had read further skips what comes then."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest

from ledger import Cursor, CursorMismatch, Ledger, Recorded
from ledger.embedded import Embedded
from ledger.log import install
from projections import Follower
from projections.engine.follower import BaseFollower
from tests.faults.backup import LOST, NEW, OLD, Backup, append, patiently
from tests.faults.schedules import as_owner
from tests.lamp import LampRead


def everything(follower: BaseFollower[Recorded]) -> list[int]:
    """The positions that a follower delivers until nothing more is there."""
    found = []
    while events := patiently(follower.poll):
        found += [event.position for event in events]
    return found


def at_the_end(log: Ledger) -> Follower:
    """A follower that delivered nothing yet, from a cursor at the end of the log."""
    first = Follower(log)
    everything(first)
    return Follower(log, Cursor.parse(str(first.cursor)))


def test_a_follower_from_a_cursor_that_was_idle_until_the_restore_is_refused(
    log: Ledger, backup: Backup
) -> None:
    append(log, LOST)
    idle, silent = at_the_end(log), at_the_end(log)
    assert idle.poll() == []
    backup.put_back()
    append(log, NEW)
    for follower in (idle, silent):
        with pytest.raises(CursorMismatch, match="is not the one"):
            everything(follower)


def test_every_follower_of_a_ledger_looks_for_itself(log: Ledger, backup: Backup) -> None:
    append(log, LOST)
    followers = [Follower(log), Follower(log), Follower(log, batch=7), at_the_end(log)]
    for follower in followers:
        everything(follower)
    backup.put_back()
    append(log, NEW)
    for _ in range(2):  # also once the tail's connection is not new any more
        for follower in followers:
            with pytest.raises(CursorMismatch):
                everything(follower)


def test_who_waits_for_events_is_refused_before_any_comes(log: Ledger, backup: Backup) -> None:
    append(log, LOST)
    followers = [at_the_end(log), at_the_end(log)]
    backup.put_back()
    for follower in followers:
        with pytest.raises(CursorMismatch, match="no event at position"):
            patiently(follower.poll)
    append(log, LOST)  # now the log is as long as it was
    for follower in followers:
        with pytest.raises(CursorMismatch, match="is not the one"):
            patiently(follower.poll)


def test_a_follower_that_had_not_come_to_the_lost_events_goes_on(log: Ledger, backup: Backup) -> None:
    follower, second = Follower(log, batch=OLD), Follower(log, batch=10)
    first = [event.position for event in patiently(follower.poll)]
    early = [event.position for event in second.poll()]
    append(log, LOST)
    backup.put_back()
    last = append(log, NEW)
    assert first + everything(follower) == list(range(1, last + 1))
    assert early + everything(second) == list(range(1, last + 1))


def test_a_plain_position_counts_as_the_event_that_was_there_at_the_first_look(
    log: Ledger, backup: Backup
) -> None:
    last = append(log, LOST)
    follower = Follower(log, after=last)
    assert follower.poll() == []
    backup.put_back()
    append(log, NEW)
    with pytest.raises(CursorMismatch):
        everything(follower)


def test_a_plain_position_in_a_gap_is_no_bound_to_go_on_from(
    log: Ledger, connect: Callable[..., psycopg.Connection]
) -> None:
    """After a crash the gap may be filled: so it stands for the event before it."""
    last = append(log, 5)
    lost = connect()
    with lost.transaction(force_rollback=True), log.join(lost) as joined:
        joined.append("lamp/b", LampRead(), LampRead())
    end = log.bound()
    assert end > last
    follower = Follower(log, after=end)
    assert follower.poll() == []
    assert follower.cursor == Cursor.after(log.identity.ledger, log.read("lamp/a")[-1])
    future = Follower(log, after=end + 2)
    assert future.poll() == []
    append(log, 3)
    assert everything(follower) == [end + 1, end + 2, end + 3]
    assert everything(future) == [end + 3]


def test_another_ledger_stays_another_ledger(
    log: Ledger, postgres: Embedded, database: str, backup: Backup
) -> None:
    follower, second = Follower(log), Follower(log)
    with psycopg.connect(postgres.dsn(database)) as connection:
        as_owner(connection, "UPDATE identity SET ledger = %s", uuid4())
        connection.commit()
        install.init(connection)
    for _ in range(2):
        with pytest.raises(CursorMismatch, match="the ledger was"):
            log.check_again()
    for one in (follower, second):
        with pytest.raises(CursorMismatch, match="of ledger"):
            everything(one)
