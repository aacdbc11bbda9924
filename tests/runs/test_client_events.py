"""What clients send over /events/in is recorded once, each frame for itself, in one transaction."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

import ledger
from ledger.errors import BadBody, BadInput
from ledger.runs import TaskRuns
from ledger.runs.client_events import ClientEvents
from ledger.runs.frames import HEARTBEAT
from ledger.runs.leases import LeaseKind, RunLeases
from ledger.runs.run_event import RunEventReceived
from ledger.runs.task_run import OpenTaskRun, TaskRun, TaskRunStateCameLate, TaskRunStateSet, task_run_shown

from .given_frames import START, Client, frame, shown

THREE = ("Pending", "Running", "Completed")


def task_run(log: ledger.Ledger, id: str) -> TaskRun:
    """The task run as another process reads it."""
    return log.load(OpenTaskRun, id).state


def states(log: ledger.Ledger, id: str) -> list[str]:
    """The names of all states in its history; `late` after those that came late."""
    facts = [one.event for one in log.read(f"task_run/{id}")]
    return [
        f"{fact.state['name']}{' late' * isinstance(fact, TaskRunStateCameLate)}"
        for fact in facts
        if isinstance(fact, TaskRunStateSet | TaskRunStateCameLate)
    ]


@pytest.fixture
def events(shared: ledger.Ledger) -> ClientEvents:
    """A recorder that keeps nothing open yet."""
    return ClientEvents(shared)


def test_a_task_run_that_a_client_reports_has_its_fields_and_all_its_states(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    client = Client()
    frames = client.reports(*THREE)
    assert events.record(frames, actor="client-7") == [None, None, None]

    run = task_run(shared, client.id)
    assert (run.status, run.run_count, run.total_run_time) == ("completed", 1, timedelta(seconds=1))
    shown_run = task_run_shown(run)
    claimed = {**client.run, "empirical_policy": run.empirical_policy.shown()}
    assert {name: shown_run[name] for name in claimed} == claimed
    assert (shown_run["id"], shown_run["flow_run_id"]) == (client.id, client.flow_run_id)
    assert shown_run["empirical_policy"]["retries"] == 1
    assert shown_run["state"]["id"] == shown_run["state_id"] == frames[-1]["id"]
    assert shown_run["state"]["timestamp"] == frames[-1]["occurred"]
    assert shown_run["state"]["state_details"]["task_run_id"] == client.id
    assert shown_run["state"]["state_details"]["flow_run_id"] == client.flow_run_id
    assert states(shared, client.id) == list(THREE)
    recorded = shared.read(f"task_run/{client.id}")
    assert [one.topic for one in recorded] == ["task_run.created", *["task_run.state_set"] * 3]
    assert {one.meta.actor for one in recorded} == {"client-7"}
    claims = [one.meta.claimed_at for one in recorded[1:]]
    assert [shown(at) for at in claims if at] == [one["occurred"] for one in frames]


def test_frames_of_many_clients_are_one_transaction(shared: ledger.Ledger, events: ClientEvents) -> None:
    clients = [Client() for _ in range(5)]
    frames = [client.report(name) for name in THREE for client in clients]
    events.record([*frames, frame("prefect.worker.started", f"prefect.worker.{uuid4()}")])
    times = {one.recorded_at for client in clients for one in shared.read(f"task_run/{client.id}")}
    assert len(times) == 1


def test_what_a_client_sends_again_is_not_recorded_again(shared: ledger.Ledger, events: ClientEvents) -> None:
    client = Client()
    frames = client.reports(*THREE)
    for sender in (events, ClientEvents(shared)):  # this process, and one that keeps nothing open
        assert sender.record(frames[:2]) == [None, None]
        assert sender.record(frames) == [None] * 3
        assert sender.record([frames[0], frames[0], frames[2]]) == [None] * 3
    assert states(shared, client.id) == list(THREE)
    assert task_run(shared, client.id).run_count == 1


def test_a_state_that_comes_late_is_history_and_not_the_current_one(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    client = Client()
    first, second, third = client.reports(*THREE)
    events.record([third])
    before = task_run(shared, client.id)
    ClientEvents(shared).record([second, first])
    run = task_run(shared, client.id)
    assert states(shared, client.id) == ["Completed", "Running late", "Pending late"]
    assert run.state == before.state
    assert (run.run_count, run.total_run_time, run.start_time) == (1, timedelta(seconds=1), before.start_time)


def test_follows_says_more_than_a_clock_that_went_back(shared: ledger.Ledger, events: ClientEvents) -> None:
    for in_order in (True, False):
        client = Client()
        first = client.report("Running")
        client.at -= timedelta(seconds=30)
        second = client.report("Completed")
        assert second["payload"]["task_run"]["total_run_time"] < 0
        for one in (first, second) if in_order else (second, first):
            assert events.record([one]) == [None]
        run = task_run(shared, client.id)
        assert (run.status, run.total_run_time) == ("completed", timedelta(0))


def wrong(change: Any) -> dict[str, Any]:
    """A frame of a task run with something wrong in it."""
    made = copy.deepcopy(Client().report("Running"))
    change(made)
    return made


MALFORMED: dict[str, Any] = {
    "no id": lambda one: one.pop("id"),
    "id": lambda one: one.update(id="seven"),
    "no time": lambda one: one.pop("occurred"),
    "naive time": lambda one: one.update(occurred="2026-05-04T12:00:00"),
    "no event": lambda one: one.update(event=""),
    "resource": lambda one: one.update(resource="task"),
    "no resource id": lambda one: one["resource"].pop("prefect.resource.id"),
    "label": lambda one: one["resource"].update(a=1),
    "related": lambda one: one.update(related={"a": 1}),
    "role": lambda one: one["related"][0].pop("prefect.resource.role"),
    "payload": lambda one: one.update(payload=[1]),
    "no state": lambda one: one["payload"].pop("validated_state"),
    "state type": lambda one: one["payload"]["validated_state"].update(type="RUNS"),
    "no key": lambda one: one["payload"]["task_run"].pop("task_key"),
    "tags": lambda one: one["payload"]["task_run"].update(tags="a"),
    "count": lambda one: one["payload"]["task_run"].update(run_count=-1),
    "task run": lambda one: one["resource"].update({"prefect.resource.id": "prefect.task-run.x"}),
    "follows": lambda one: one.update(follows=3),
    "no object": None,
}


def test_a_malformed_frame_is_told_and_the_others_are_recorded(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    bad: list[Any] = [7 if change is None else wrong(change) for change in MALFORMED.values()]
    clients = [Client() for _ in bad]
    frames = [
        one for client, broken in zip(clients, bad, strict=True) for one in (broken, client.report("Running"))
    ]
    answers = events.record(frames)
    told = dict(zip(MALFORMED, answers[::2], strict=True))
    assert {what: type(error) for what, error in told.items()} == dict.fromkeys(MALFORMED, BadInput)
    assert set(answers[1::2]) == {None}
    assert {task_run(shared, client.id).status for client in clients} == {"running"}


def test_what_the_database_cannot_hold_is_told_and_leaves_its_task_run_as_it_was(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    client = Client()
    first = client.report("Pending")
    second = client.report("Running", message="a NUL: \x00")
    third = client.report("Completed")
    answers = events.record([first, second, third])
    assert (answers[0], answers[2]) == (None, None)
    assert isinstance(answers[1], BadBody)
    assert states(shared, client.id) == ["Pending", "Completed"]


def test_any_other_event_is_kept_once_under_its_resource(shared: ledger.Ledger, events: ClientEvents) -> None:
    name = f"prefect.worker.{uuid4()}"
    sent = [
        frame("prefect.worker.started", name, labels={"prefect.resource.name": "w"}),
        frame("prefect.worker.executed", name, at=START + timedelta(seconds=1), payload={"n": float("nan")}),
    ]
    assert events.record(sent) == [None, None]
    assert ClientEvents(shared).record([*sent, sent[0]]) == [None] * 3
    assert events.record(sent) == [None, None]
    facts = [one.event for one in shared.read(ledger.stream_name("run_event", name))]
    received = [fact for fact in facts if isinstance(fact, RunEventReceived)]
    assert [fact.event for fact in received] == ["prefect.worker.started", "prefect.worker.executed"]
    assert received[0].resource == {"prefect.resource.id": name, "prefect.resource.name": "w"}
    assert received[1].payload == {"n": None}


def test_a_heartbeat_renews_the_lease_of_its_flow_run(shared: ledger.Ledger, events: ClientEvents) -> None:
    ids = [str(uuid4()) for _ in range(2)]
    sent = [frame("prefect.flow-run.heartbeat", f"prefect.flow-run.{id}") for id in ids]
    other = str(uuid4())
    sent.append(frame("prefect.flow-run.seen", f"prefect.flow-run.{other}"))
    assert events.record(sent) == [None] * 3
    leases = RunLeases(shared)
    before = {id: leases.get(LeaseKind.FLOW_RUN, id) for id in ids}
    assert leases.lasting(LeaseKind.FLOW_RUN, [*ids, other]) == set(ids)
    again = frame(HEARTBEAT, f"prefect.flow-run.{ids[0]}", at=START + timedelta(seconds=100))
    events.record([again])
    after = {id: leases.get(LeaseKind.FLOW_RUN, id) for id in ids}
    assert (after[ids[0]] != before[ids[0]], after[ids[1]] == before[ids[1]]) == (True, True)
    assert len(shared.read(f"run_event/prefect.flow-run.{ids[0]}")) == 2


def test_an_event_that_the_state_no_longer_remembers_is_found_in_the_log(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    name, client = f"my.asset/{uuid4()}", Client()
    sent = [frame("seen", name, at=START + timedelta(seconds=n)) for n in range(40)]
    reports = [client.report(one) for _ in range(40) for one in ("AwaitingRetry", "Retrying")]
    events.record([*sent, *reports])
    again = [*sent, *reports]
    assert events.record(again[::-1]) == [None] * len(again)
    assert shared.load(OpenTaskRun, client.id).version == 1 + len(reports)
    assert len(shared.read(ledger.stream_name("run_event", name))) == len(sent)


def test_another_process_that_wrote_first_is_read_and_nothing_is_lost_or_doubled(
    shared: ledger.Ledger,
) -> None:
    one, two = ClientEvents(shared), ClientEvents(shared)
    clients = [Client() for _ in range(4)]
    for nth, name in enumerate(("Pending", "Running", "AwaitingRetry", "Retrying", "Completed")):
        frames = [client.report(name) for client in clients]
        (one, two)[nth % 2].record(frames)
        (two, one)[nth % 2].record(frames)  # the client was cut off, and sends to the other server
    for client in clients:
        assert states(shared, client.id) == ["Pending", "Running", "AwaitingRetry", "Retrying", "Completed"]
        assert task_run(shared, client.id).run_count == 2


def test_a_conflict_reads_only_the_run_that_another_wrote_to(
    shared: ledger.Ledger, events: ClientEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [Client() for _ in range(4)]
    events.record([client.report("Running") for client in clients])
    TaskRuns(shared).change(clients[1].id, name="renamed")
    read = list[str]()
    load_each = shared.load_each

    def noted(streams: Any) -> Any:
        read.extend(stream.name for stream in streams)
        return load_each(streams)

    monkeypatch.setattr(shared, "load_each", noted)
    new = Client()
    frames = [*(client.report("Completed") for client in clients), new.report("Pending")]
    assert not any(events.record(frames))
    assert read == [f"task_run/{clients[1].id}", f"task_run/{new.id}"]
    assert [states(shared, client.id) for client in clients] == [["Running", "Completed"]] * 4
    assert task_run(shared, clients[1].id).name == clients[1].run["name"]  # its client says so again


def test_a_second_task_run_with_the_same_key_is_the_first_one(
    shared: ledger.Ledger, events: ClientEvents
) -> None:
    flow_run = str(uuid4())
    one, two = (Client(flow_run_id=flow_run, dynamic_key="0") for _ in range(2))
    two.at += timedelta(minutes=1)
    events.record([one.report("Running"), two.report("Pending")])
    events.record([two.report("Running")])
    ClientEvents(shared).record([two.report("Completed")])
    assert states(shared, one.id) == ["Running", "Pending", "Running", "Completed"]
    assert task_run(shared, one.id).state_type == "COMPLETED"
    assert task_run(shared, two.id).created is None


def test_more_frames_than_one_transaction_takes_are_all_recorded(shared: ledger.Ledger) -> None:
    clients = [Client() for _ in range(170)]
    frames = [client.report(name) for name in THREE for client in clients]
    events = ClientEvents(shared, kept=50)
    assert set(events.record(frames)) == {None}
    assert all(task_run(shared, client.id).status == "completed" for client in clients[::50])
    assert events.record(frames) == [None] * 510
    assert states(shared, clients[0].id) == list(THREE)
