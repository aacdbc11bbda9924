"""`/api/events/out`: what happened since a time and what happens, in order, without a gap and each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from gateway.http.runs import socket_feed
from ledger.runs.client_events import ClientEvents
from ledger.runs.flow_runs import FlowRuns
from ledger.runs.records import Records
from ledger.runs.states import State
from ledger.tokens import Role
from tests.gateway.conftest import eventually
from tests.gateway.http.conftest import Running
from tests.runs.raw_socket import RawSocket

_names = count()


@pytest.fixture
def name() -> str:
    """The name of an event of this test's own."""
    return f"thing{next(_names)}.happened"


def since(seconds: float = 60) -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "since": (now - timedelta(seconds=seconds)).isoformat(),
        "until": (now + timedelta(1)).isoformat(),
    }


@contextmanager
def following(
    prefect: Running, given: dict[str, Any], *, seconds: float = 60, **more: Any
) -> Iterator[RawSocket]:
    one = RawSocket(prefect.url, "/api/events/out")
    one.log_in(prefect.tokens[Role.READER])
    one.send({"type": "filter", "filter": {"occurred": since(seconds), **given}} | more)
    one.ping()
    yield one
    one.socket.close()


def happens(prefect: Running, name: str, *numbers: int, ago: float = 0) -> None:
    occurred = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
    resource = {"prefect.resource.id": f"of.{name}"}
    frames = [
        {"id": str(uuid4()), "occurred": occurred, "event": name, "resource": resource, "payload": {"n": n}}
        for n in numbers
    ]
    assert ClientEvents(prefect.log).record(frames) == [None] * len(frames)


def told(one: RawSocket, many: int) -> list[int]:
    messages = [one.message() for _ in range(many)]
    assert {message["type"] for message in messages} == {"event"}
    return [message["event"]["payload"]["n"] for message in messages]


def test_a_change_of_a_flow_run_is_told_as_an_event(prefect: Running) -> None:
    flow = Records(prefect.log).create("flow", {"name": f"cancelled {uuid4()}"})
    run, _ = FlowRuns(prefect.log).create(flow.id)
    other, _ = FlowRuns(prefect.log).create(flow.id)
    wanted = {"event": {"name": ["prefect.flow-run.Running"]}}
    wanted |= {"resource": {"id": [f"prefect.flow-run.{run.id}"]}}
    with following(prefect, wanted) as one:
        for id in (other.id, run.id):
            FlowRuns(prefect.log).set_state(id, State.of({"type": "PENDING"}))
            FlowRuns(prefect.log).set_state(id, State.of({"type": "RUNNING"}))
        event = one.message()["event"]
    current = FlowRuns(prefect.log).get(run.id).state
    assert current is not None
    assert (event["id"], event["event"]) == (current.id, "prefect.flow-run.Running")
    assert event["resource"]["prefect.resource.id"] == f"prefect.flow-run.{run.id}"
    assert {"prefect.resource.id": f"prefect.flow.{flow.id}"}.items() <= event["related"][0].items()


def test_first_what_happened_and_then_what_happens(prefect: Running, name: str) -> None:
    happens(prefect, name, 1, 2)
    happens(prefect, name, 0, ago=120)
    with following(prefect, {"event": {"name": [name]}}) as one:
        assert told(one, 2) == [1, 2]
        happens(prefect, name, 3)
        assert told(one, 1) == [3]


def test_only_what_happens_if_a_client_wishes(prefect: Running, name: str) -> None:
    happens(prefect, name, 1)
    with following(prefect, {"event": {"prefix": [name]}}, backfill=False) as one:
        happens(prefect, name, 2)
        eventually(lambda: [each for each in threading.enumerate() if each.name == "new events"])
        happens(prefect, name, 3)
        got = told(one, 1)
        assert got in ([2], [3]), "never what was before"


@pytest.mark.parametrize("kept", [socket_feed.KEPT, 3])
def test_clients_that_come_meanwhile_miss_nothing_and_get_nothing_twice(
    kept: int, prefect: Running, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kept: with room for three events, clients do not keep up, and read the history again and again."""
    monkeypatch.setattr(socket_feed, "KEPT", kept)
    many, got = 120, dict[int, list[int]]()

    def follow(nth: int) -> None:
        with following(prefect, {"event": {"name": [name]}}) as one:
            got[nth] = told(one, many)

    threads = [threading.Thread(target=follow, args=(nth,)) for nth in range(6)]
    for nth in range(0, many, 10):
        happens(prefect, name, *range(nth, nth + 10))
        if nth % 20 == 0:
            threads[nth // 20].start()
    for thread in threads:
        thread.join(60)
    assert got == {nth: [*range(many)] for nth in range(6)}


def readers() -> list[threading.Thread]:
    """The threads that read new events."""
    return [each for each in threading.enumerate() if each.name == "new events"]


def test_a_client_that_is_gone_before_it_is_subscribed_leaves_no_thread(
    prefect: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, gone, subscribed = (threading.Event() for _ in range(3))
    subscribe, leave = socket_feed.Feed.subscribe, socket_feed.Feed.leave

    def subscribe_late(feed: Any, one: Any) -> None:
        came.set()
        gone.wait(30)
        subscribe(feed, one)
        subscribed.set()

    def leave_and_tell(feed: Any, one: Any) -> None:
        leave(feed, one)
        gone.set()

    eventually(lambda: not readers())
    monkeypatch.setattr(socket_feed.Feed, "subscribe", subscribe_late)
    monkeypatch.setattr(socket_feed.Feed, "leave", leave_and_tell)
    with following(prefect, {}):
        assert came.wait(30)
    assert subscribed.wait(30)
    assert not readers()


def test_the_thread_that_reads_ends_with_the_last_client(prefect: Running, name: str) -> None:
    with following(prefect, {}), following(prefect, {"event": {"name": [name]}}):
        eventually(lambda: len(readers()) == 1)
    eventually(lambda: not readers())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "subscribe"}, "Expected 'filter' message"),
        ({"type": "filter", "filter": {"event": 3}}, "Invalid filter: "),
        ({"type": "filter", "filter": {"occurred": {"since": "yesterday"}}}, "Invalid filter: "),
        ("[]", "Expected 'filter' message"),
        ("{", "Expected 'filter' message"),
    ],
)
def test_what_is_no_filter_ends_the_socket(message: Any, reason: str, prefect: Running) -> None:
    one = RawSocket(prefect.url, "/api/events/out")
    one.log_in(prefect.tokens[Role.READER])
    one.send(message)
    end: Any = one.event()
    assert (end.code, end.reason[: len(reason)]) == (1002, reason)
