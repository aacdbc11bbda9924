"""Odd corners of the core: names, lost heads, locks of other ledgers, settings of a server, small roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql as compose
from psycopg.conninfo import make_conninfo

from ledger import NO_LOCKS, Ledger, NoPermission, StreamConflict, connect
from ledger.domain.known import KNOWN
from ledger.embedded import Embedded
from ledger.log.read import SQL as READ
from ledger.pipelines import LSM, LSMChannelId, LSMSliceId, LSMStateService, LSMStripId
from tests.log.scopes import waits
from tests.pipelines.recorded_facts import check_heads, recorded, words

Connection = psycopg.Connection[Any]
STRIP = LSMStripId("p", 1, 0, 2)
NAMES = [
    'q"uote', "back\\slash", "\\", '"', '"},{"', "{a,b}", "NULL", "sp ace", " ", "größe 日本", "a/b",
    "100%", "%2F", "'", "\n\t", "\U0010ffff", "$1", "%s", "x" * 900,
]  # fmt: skip


@pytest.fixture
def other(postgres: Embedded, database: str) -> Iterator[Ledger]:
    """Another ledger on the same server."""
    name = compose.Identifier(f"{database}_other")
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(compose.SQL("CREATE DATABASE {}").format(name))
    with connect(postgres.dsn(f"{database}_other"), create=True) as opened:
        yield opened
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(compose.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@contextmanager
def starting(service: LSMStateService) -> Iterator[None]:
    """A scope that marks the strip as started."""
    with service.open_strip(STRIP) as strip:
        strip.mark_started()
        yield


# Who is read, and how


def test_locks_of_another_ledger_lock_and_are_not_read(grown: LSMStateService, other: Ledger) -> None:
    service = LSMStateService(other, locks=grown.ledger.locks)
    with service.open_strip(STRIP) as strip:
        assert not strip.uploaded
    assert words(other, "lsm.strip/p/1/0/2") == ["created"]


def test_any_name_and_big_ids_come_back_as_given(service: LSMStateService, log: Ledger) -> None:
    for name in NAMES:
        ident = LSMStripId(name, 2**62, 2**63 - 1, 0)
        for _ in range(2):  # the second time, the path is there
            with service.open_strip(ident) as strip:
                strip.mark_started()
        view = service.read_project(name)
        assert [view.project_name, *(each.attempts for each in view.iter_strips())] == [name, 2]
        with service.open_project(name) as project:
            assert project.slices[2**62].channels[2**63 - 1].strips[0] is project.find(ident)
    assert check_heads(log) == 4 * len(NAMES)


def test_names_are_utf_8_whatever_the_client_is_set_to(
    service: LSMStateService, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ident = LSMStripId("größe", 1, 1, 1)
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    with connect(dsn) as latin:
        for _ in range(2):
            with LSMStateService(latin).open_strip(ident) as strip:
                strip.mark_failed("müde")
    view = service.read_strip(ident)
    assert view is not None
    assert view.reason == "müde"


def test_a_scope_sees_what_was_stored_while_it_waited_whatever_the_isolation(
    grown: LSMStateService, postgres: Embedded, database: str, dsn: str, connection: Connection
) -> None:
    setting = "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'"
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(compose.SQL(setting).format(compose.Identifier(database)))
    with connect(dsn) as strict:
        with grown.open_strip(STRIP) as strip:
            waiter = waits(connection, starting(LSMStateService(strict)))
            strip.mark_started()
        waiter.entered()
        waiter.leave()
    assert waiter.error is None
    view = grown.read_strip(STRIP)
    assert view is not None
    assert view.attempts == 2


def test_a_path_that_is_deleted_while_a_scope_waits_begins_anew(
    grown: LSMStateService, log: Ledger, connection: Connection
) -> None:
    with grown.open_project("p") as project:
        waiter = waits(connection, starting(grown))
        project.delete_slice(1)
        project.get_or_create_slice(1)
    waiter.entered()
    waiter.leave()
    assert waiter.error is None
    view = grown.read_strip(STRIP)
    assert view is not None
    assert (view.uploaded, view.attempts) == (False, 1)
    assert words(log, "lsm.slice/p/1") == ["created", "deleted", "created"]


# Heads that are gone, behind, or nobody's


def test_where_heads_are_gone_items_are_folded_from_their_events(
    grown: LSMStateService, connection: Connection
) -> None:
    connection.execute("SET ROLE ledger_owner")
    connection.execute("TRUNCATE ledger.heads")
    with grown.open_strip(STRIP) as strip:
        assert strip.uploaded
        strip.mark_started()
    with grown.open_slice("p", slice_id=1) as one:
        assert one.find(STRIP).attempts == 1
        assert one.get_or_create_channel(1).get_or_create_strip(1).uploaded
    view = grown.read_strip(STRIP)
    assert view is not None
    assert (view.uploaded, view.attempts) == (True, 1)


def test_what_is_above_and_behind_its_events_hides_what_is_below(grown: LSMStateService, log: Ledger) -> None:
    log.append("lsm.slice/p/1", KNOWN.events["lsm.slice.deleted"](), head=False)
    assert grown.read_strip(STRIP) is None
    assert [*grown.read_project("p").slices] == [2]
    with grown.open_strip(STRIP) as strip:
        assert not strip.uploaded
    assert words(log, "lsm.slice/p/1") == ["created", "deleted", "created"]
    one = grown.read_slice("p", slice_id=1)
    assert one is not None
    assert [*one.channels] == [0]


@pytest.mark.parametrize("stray", ["notes", "1/2", "01", "-1", ""])
def test_a_stream_that_is_no_item_hides_none(grown: LSMStateService, log: Ledger, stray: str) -> None:
    before = grown.read_project("p")
    log.append(f"lsm.slice/p/{stray}", KNOWN.events["lsm.slice.created"]())
    assert grown.read_project("p") == before
    with grown.open_project("p") as project:
        assert project.to_view() == before


# Scopes that meet


@pytest.mark.parametrize("locks", [None, NO_LOCKS])
def test_deletions_in_two_slices_both_go_through(log: Ledger, grown: LSMStateService, locks: Any) -> None:
    service = LSMStateService(log, locks=locks)
    with service.open_slice("p", slice_id=1) as one:
        assert one.delete(LSMChannelId("p", 1, 0))
        with service.open_slice("p", slice_id=2) as two:
            assert two.delete(LSMChannelId("p", 2, 0))
    slices = grown.read_project("p").slices
    assert [[*each.channels] for each in slices.values()] == [[1], [1]]
    assert words(log, "lsm.project/p") == ["created", "touched", "touched"]
    check_heads(log)


def test_a_touch_does_not_go_through_where_the_item_is_deleted(grown: LSMStateService, log: Ledger) -> None:
    service = LSMStateService(log, locks=NO_LOCKS)

    def touch() -> None:
        with service.open_slice("p", slice_id=1) as one:
            one.touch()
            with service.open_project("p") as project:
                project.delete_slice(1)

    with pytest.raises(StreamConflict, match=r"lsm\.slice/p/1"):
        touch()
    assert words(log, "lsm.slice/p/1") == ["created", "deleted"]


# What one scope hands out


def test_an_item_is_one_object_however_it_is_reached(grown: LSMStateService) -> None:
    with grown.open_project("p") as project:
        mine = {i: project.get_or_create_slice(i) for i in range(10)}  # more than are loaded one by one
        strip = mine[1].find_or_create(STRIP)
        strip.mark_started()
        new = mine[7].get_or_create_channel(3).get_or_create_strip(9)
        assert all(project.slices[i] is one for i, one in mine.items())
        assert mine[1].channels[0].strips[2] is project.find(STRIP) is strip
        assert mine[7].channels[3].strips[9] is project.find(LSMStripId("p", 7, 3, 9)) is new
        assert mine[1].channels[0].strips[1].uploaded
    view = grown.read_project("p")
    assert [*view.slices] == [*range(10)]
    assert view.slices[1].channels[0].strips[2].attempts == 1


def test_what_was_deleted_does_not_find_itself(grown: LSMStateService) -> None:
    with grown.open_project("p") as project:
        one = project.slices[1]
        assert one.find(LSMSliceId("p", 1)) is one
        project.delete_slice(1)
        assert one.find(LSMSliceId("p", 1)) is None


# Rights and plans


def test_a_reader_reads_and_changes_nothing(grown: LSMStateService, log: Ledger, dsn: str) -> None:
    before = recorded(log)
    with connect(make_conninfo(dsn, options="-c role=ledger_reader")) as reading:
        service = LSMStateService(reading)
        assert service.read_project("p") == service.peek_project("p") == grown.read_project("p")
        with pytest.raises(NoPermission), starting(service):
            pass
    assert recorded(log) == before


def test_a_state_of_the_past_is_asked_for_once_a_stream(log: Ledger, admin_dsn: str) -> None:
    given = {"prefixes": ["lsm.strip/p/"], "state_schemas": [LSM[3].state_schema()], "upto": 1}
    with psycopg.connect(admin_dsn) as connection:
        found = connection.execute(b"EXPLAIN " + READ.states_below_at.text("ledger"), given).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert plan.count("version = ") == 1, plan
