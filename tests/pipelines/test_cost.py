"""What opening and reading cost: round trips, and plans that never look at more of the log than they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from ledger import Exact, Ledger
from ledger.log.connection import CallingConnection
from ledger.log.read import SQL as READ
from ledger.pipelines import LSM, LSMStateService

IDS = {"slice_id": 1, "channel_id": 0}


@pytest.fixture
def trips(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every use of the server: "read", or the appends that were sent."""
    seen: list[Any] = []
    reader, append_all = log.reader, log.append_all

    @contextmanager
    def reading() -> Iterator[Any]:
        seen.append("read")
        with reader() as connection:
            yield connection

    def appending(appends: Any, **meta: Any) -> Any:
        seen.append(appends)
        return append_all(appends, **meta)

    monkeypatch.setattr(log, "reader", reading)
    monkeypatch.setattr(log, "append_all", appending)
    return seen


def test_marking_a_strip_is_a_lock_that_reads_and_one_lean_append(
    service: LSMStateService, trips: list[Any]
) -> None:
    with service.open_strip("p", **IDS, strip_id=2):
        pass
    trips.clear()
    with service.open_strip("p", **IDS, strip_id=2) as strip:
        strip.mark_completed()
    ((append,),) = trips  # the path is read in the call that takes the lock
    assert (append.stream, append.expected, len(append.events)) == (strip.name, Exact(1), 1)
    assert append.state is not None


def test_a_new_path_is_a_lock_that_reads_and_one_append(service: LSMStateService, trips: list[Any]) -> None:
    with service.open_strip("p", **IDS, strip_id=2) as strip:
        strip.mark_completed()
    (appends,) = trips
    assert [len(append.events) for append in appends] == [1, 1, 1, 2]


def test_each_read_is_one_query(service: LSMStateService, trips: list[Any]) -> None:
    with service.open_project("p") as project:
        for strip_id in range(20):
            project.get_or_create_strip_by_parts(1, strip_id, 0)
    trips.clear()
    assert service.read_strip("p", **IDS, strip_id=2) is not None
    assert service.read_channel("p", **IDS) is not None
    assert service.read_slice("p", slice_id=1) is not None
    assert service.read_project("p").get_slice(1) is not None
    assert trips == ["read"] * 4


def test_the_marks_of_a_channel_do_not_load_its_strips(service: LSMStateService, trips: list[Any]) -> None:
    with service.open_channel("p", **IDS) as channel:
        channel.set_mip_stitched()
    assert len(trips) == 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call in libpq's own words, by its statement; and "waits", where its answer is waited for."""
    seen: list[str] = []
    send, answer = CallingConnection.send, CallingConnection.answer

    def sending(connection: CallingConnection, name: bytes, *rest: Any) -> None:
        seen.append(re.sub("^[0-9a-f]{16}_|_ledger$", "", name.decode()))
        send(connection, name, *rest)

    def answering(connection: CallingConnection) -> bytes:
        seen.append("waits")
        return answer(connection)

    monkeypatch.setattr(CallingConnection, "send", sending)
    monkeypatch.setattr(CallingConnection, "answer", answering)
    return seen


def test_a_lock_is_one_round_trip_and_nobody_waits_for_its_release(
    service: LSMStateService, calls: list[str]
) -> None:
    with service.open_strip("p", **IDS, strip_id=1):
        pass
    with service.open_strip("p", **IDS, strip_id=1) as strip:
        calls.clear()
        with service.open_strip("p", **IDS, strip_id=1_000):
            pass
        assert calls == ["open_scope", "waits", "append_many", "waits", "release_scope"]
        calls.clear()
        strip.mark_completed()
    assert calls == ["append_one", "waits", "waits", "release_scopes"]  # 2nd: its answer is there
    calls.clear()
    assert service.read_strip("p", **IDS, strip_id=1) is not None
    assert calls == [
        "waits",
        "acquire_scope",
        "waits",
        "release_scopes",
    ]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("name", ["open_stream", "states_of", "states_below"])
def test_a_tail_is_read_by_stream_and_version_alone(
    service: LSMStateService, admin_dsn: str, name: str, analyzed: bool
) -> None:
    with service.open_project("p") as project:
        for strip_id in range(3000):
            project.get_or_create_strip_by_parts(1, strip_id, 0)
    schemas = [kind.state_schema() for kind in LSM]
    names = [kind.name_of(*("p", 1, 0, 2)[:depth]) for depth, kind in enumerate(LSM, 1)]
    given = {"stream": names[-1], "state_schema": schemas[-1]} if name == "open_stream" else {}
    given |= {"prefixes": names, "state_schemas": schemas}
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        if analyzed:
            connection.execute("ANALYZE ledger.heads, ledger.events")
        found = connection.execute(b"EXPLAIN " + READ[name].text("ledger"), given).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert "Seq Scan" not in plan
    assert (
        "version >" in plan.partition("events_stream_version")[2].partition("Index Cond:")[2].split("\n")[0]
    )
