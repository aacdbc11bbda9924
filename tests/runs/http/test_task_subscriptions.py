"""`/api/task_runs/subscriptions/scheduled`: each background task run goes to one client, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from consumers.runs import task_offers
from gateway.http.runs import socket_task_runs
from ledger.runs.leases import LeaseKind, RunLeases
from ledger.runs.states import State
from ledger.runs.task_runs import TaskRuns
from ledger.tokens import Role
from tests.gateway.conftest import eventually
from tests.gateway.http.conftest import Running
from tests.runs.raw_socket import RawSocket

_keys = count()
Serving = Callable[..., RawSocket]
DEFERRED = {"type": "SCHEDULED", "state_details": {"deferred": True}}


@pytest.fixture
def key() -> str:
    """The key of a task of this test's own."""
    return f"task-{next(_keys)}"


@pytest.fixture
def serving(prefect: Running) -> Any:
    """A client that serves tasks; all are gone at the end."""
    clients: list[RawSocket] = []

    def serve(*keys: str, client: str | None = None) -> RawSocket:
        one = RawSocket(prefect.url, "/api/task_runs/subscriptions/scheduled")
        one.log_in(prefect.tokens[Role.OPERATOR])
        one.send({"type": "subscribe", "keys": list(keys), "client_id": client or str(uuid4())})
        clients.append(one)
        return one

    yield serve
    for one in clients:
        one.socket.close()


def delayed(prefect: Running, key: str, **state: Any) -> str:
    """A task run that waits for a client: its id."""
    run, _ = TaskRuns(prefect.log).create(key, str(uuid4()), state=State.of(DEFERRED | state))
    return run.id


def begin(prefect: Running, id: str) -> None:
    TaskRuns(prefect.log).set_state(id, State.of({"type": "PENDING"}), force=True)


def taken(one: RawSocket) -> str:
    """The id of the next task run, which the client acknowledges."""
    id: str = one.message()["id"]
    one.send({"type": "ack"})
    return id


def test_what_waits_and_what_comes_is_given_in_order(prefect: Running, serving: Serving, key: str) -> None:
    before = [delayed(prefect, key) for _ in range(3)]
    delayed(prefect, f"{key}-other")
    one = serving(key)
    assert [taken(one) for _ in before] == before
    later = delayed(prefect, key)
    message = one.message()
    assert (message["id"], message["task_key"], message["state"]["type"]) == (later, key, "SCHEDULED")


def test_only_deferred_runs_are_given(prefect: Running, serving: Serving, key: str) -> None:
    one = serving(key)
    TaskRuns(prefect.log).create(key, "0", state=State.of({"type": "SCHEDULED"}))
    deferred = delayed(prefect, key)
    assert taken(one) == deferred


def test_each_goes_to_one_of_many_clients(prefect: Running, serving: Serving, key: str) -> None:
    clients, got = [serving(key, f"{key}-other") for _ in range(5)], list[str]()

    def take(one: RawSocket) -> None:
        while True:
            try:
                got.append(taken(one))
            except AssertionError:  # the end
                return

    threads = [threading.Thread(target=take, args=(one,)) for one in clients]
    for thread in threads:
        thread.start()
    made = [delayed(prefect, key) for _ in range(30)]
    eventually(lambda: len(got) >= len(made), 30)
    for one, thread in zip(clients, threads, strict=True):
        one.send({"type": "quit"}, {"type": "quit"})
        one.socket.shutdown(2)
        thread.join(30)
    assert sorted(got) == sorted(made)


def test_what_a_client_did_not_acknowledge_goes_to_another(
    prefect: Running, serving: Serving, key: str
) -> None:
    id = delayed(prefect, key)
    first, second = serving(key), serving(key)
    holder, other = (first, second) if _has_message(first) else (second, first)
    later = delayed(prefect, key)
    assert other.message()["id"] == later
    holder.reset()
    other.send({"type": "ack"})
    assert taken(other) == id


def test_what_a_client_has_comes_again_only_when_it_is_gone_for_long(
    prefect: Running, serving: Serving, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_task_runs, "LOOK", 0.05)
    begun, lost = delayed(prefect, key), delayed(prefect, key)
    one, leases = serving(key), RunLeases(prefect.log)
    assert [taken(one), taken(one)] == [begun, lost]
    eventually(lambda: len(_leases(prefect, lost)) == 1)
    begin(prefect, begun)
    one.reset()
    other = serving(key)
    third = delayed(prefect, key)
    assert taken(other) == third, "the first client may come back"
    leases.renew(LeaseKind.TASK_RUN, _leases(prefect, lost)[0], -1)
    assert taken(other) == lost


def test_a_client_that_comes_back_keeps_what_it_has(
    prefect: Running, serving: Serving, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, leases = delayed(prefect, key), RunLeases(prefect.log)
    one = serving(key, client=key)
    assert taken(one) == id
    one.reset()
    (lease,) = _leases(prefect, id)
    leases.renew(LeaseKind.TASK_RUN, lease, 1)
    serving(key, client=key)
    eventually(lambda: leases.get(LeaseKind.TASK_RUN, lease).seconds == task_offers.LEASE)  # type: ignore[union-attr]


def test_a_run_that_is_scheduled_again_is_given_again(prefect: Running, serving: Serving, key: str) -> None:
    id = delayed(prefect, key)
    one = serving(key)
    assert taken(one) == id
    begin(prefect, id)
    TaskRuns(prefect.log).set_state(id, State.of(DEFERRED), force=True)
    assert taken(one) == id


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "hello"}, "expected 'subscribe' message"),
        ({"type": "subscribe", "client_id": "x"}, "expected 'keys' in subscribe message"),
        ({"type": "subscribe", "keys": [], "client_id": "x"}, "expected 'keys' in subscribe message"),
        ({"type": "subscribe", "keys": ["x"]}, "expected 'client_id' in subscribe message"),
        ("{", "expected 'subscribe' message"),
    ],
)
def test_what_is_no_subscription_ends_the_socket(message: Any, reason: str, prefect: Running) -> None:
    one = RawSocket(prefect.url, "/api/task_runs/subscriptions/scheduled")
    one.log_in(prefect.tokens[Role.OPERATOR])
    one.send(message)
    end: Any = one.event()
    assert (end.code, end.reason) == (4001, f"Protocol violation: {reason}")


def test_no_acknowledgement_ends_the_socket(prefect: Running, serving: Serving, key: str) -> None:
    id = delayed(prefect, key)
    one = serving(key)
    assert one.message()["id"] == id
    one.send({"type": "hello"})
    assert one.closed() == 4001
    assert taken(serving(key)) == id


def _has_message(one: RawSocket) -> bool:
    one.socket.settimeout(0.5)
    try:
        return bool(one.socket.recv(1, 2))  # it is only looked at
    except TimeoutError:
        return False
    finally:
        one.socket.settimeout(30)


def _leases(prefect: Running, id: str) -> list[str]:
    return [one.key for one in RunLeases(prefect.log).all(LeaseKind.TASK_RUN) if one.key.startswith(id)]
