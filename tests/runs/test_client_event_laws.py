"""Laws of what clients report: order, repeats, batches and processes change nothing of the outcome."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ledger
from ledger.runs.client_events import ClientEvents
from ledger.runs.run_event import OpenRunEvents
from ledger.runs.task_run import OpenTaskRun, TaskRun, TaskRunStateCameLate, TaskRunStateSet

from .given_frames import Client, Frame, frame

COURSES = [
    ["Pending", "Running", "Completed"],
    ["Pending", "Running", "AwaitingRetry", "Retrying", "Failed"],
    ["Running", "AwaitingRetry", "Retrying", "AwaitingRetry", "Retrying", "Completed"],
    ["Pending", "Crashed"],
]
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def course(client: Client, names: list[str]) -> list[Frame]:
    """The frames of a course; the client renames its run when it begins to run."""
    frames = []
    for name in names:
        if name == "Running":
            client.run["name"] = "sum of 3"
        frames.append(client.report(name))
    return frames


def what_is_so(run: TaskRun) -> dict[str, Any]:
    """A task run without what says when and in which order its facts were recorded."""
    kept = asdict(run)
    for name in ("id", "created", "updated", "version"):
        del kept[name]
    return {**kept, "held": sorted(kept["held"])}


def history(log: ledger.Ledger, id: str) -> list[str]:
    """The ids of all states in the log, as they come."""
    facts = [one.event for one in log.read(f"task_run/{id}")]
    return [str(one.state["id"]) for one in facts if isinstance(one, TaskRunStateSet | TaskRunStateCameLate)]


def check_open(log: ledger.Ledger, events: ClientEvents) -> None:
    """What a recorder keeps open is what the log says, if its version is the log's; heads are folds."""
    for name, stream in events._open.items():
        if not isinstance(stream, OpenTaskRun | OpenRunEvents):
            continue
        recorded = log.read(name)
        folded = type(stream)(*stream.key, past=[(one.event, one.recorded_at) for one in recorded])
        assert log.load(type(stream), *stream.key).state == folded.state
        if stream.version == folded.version:
            assert stream.state == folded.state
            assert not stream.news


@FEW
@given(st.sampled_from(COURSES), st.data())
def test_any_order_of_one_clients_frames_with_any_repeats_gives_the_same_task_run(
    shared: ledger.Ledger, names: list[str], data: st.DataObject
) -> None:
    client = Client()
    frames = course(client, names)
    twice = data.draw(st.lists(st.sampled_from(range(len(frames))), max_size=4))
    order = data.draw(st.permutations([*range(len(frames)), *twice]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order)), max_size=3)))
    senders = [ClientEvents(shared), ClientEvents(shared)]
    for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        sender = data.draw(st.sampled_from(senders))
        assert not any(sender.record([frames[nth] for nth in order[start:end]]))

    plain = [{**one, "resource": {**one["resource"], "prefect.resource.id": f"prefect.task-run.{other}"}}
             for other in [str(uuid4())] for one in frames]  # fmt: skip
    in_order = ClientEvents(shared)
    in_order.record(plain)
    expected = what_is_so(shared.load(OpenTaskRun, plain[0]["resource"]["prefect.resource.id"][17:]).state)
    found = what_is_so(shared.load(OpenTaskRun, client.id).state)
    for one in (expected, found):
        del one["state"]["state_details"]
    assert found == expected
    assert sorted(history(shared, client.id)) == sorted(one["id"] for one in frames)
    for sender in (*senders, in_order):
        check_open(shared, sender)


@FEW
@given(st.data())
def test_events_of_a_resource_are_kept_once_each_in_any_order(
    shared: ledger.Ledger, data: st.DataObject
) -> None:
    name = f"my.asset.{uuid4()}"
    sent = [frame("seen", name) for _ in range(data.draw(st.integers(1, 40)))]
    order = data.draw(st.permutations([*sent, *sent]))
    half = len(order) // 2
    events = ClientEvents(shared)
    events.record(order[:half])
    ClientEvents(shared).record(order[half:])
    facts = shared.read(f"run_event/{name}")
    assert sorted(one.event.id for one in facts) == sorted(one["id"] for one in sent)  # type: ignore[union-attr]
    check_open(shared, events)


def test_servers_that_get_the_same_frames_at_once_record_each_once(shared: ledger.Ledger) -> None:
    clients = [Client() for _ in range(12)]
    frames = [one for client in clients for one in client.reports("Pending", "Running", "Completed")]
    orders = [frames, frames[::-1], frames[1::2] + frames[::2]]
    senders = [ClientEvents(shared) for _ in orders]
    go, answers = threading.Barrier(len(orders)), list[Any]()

    def send(sender: ClientEvents, order: list[Frame]) -> None:
        go.wait()
        for start in range(0, len(order), 7):
            answers.extend(sender.record(order[start : start + 7]))

    threads = [threading.Thread(target=send, args=pair) for pair in zip(senders, orders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [None] * 3 * len(frames)
    for client in clients:
        assert len(set(history(shared, client.id))) == len(history(shared, client.id)) == 3
        assert shared.load(OpenTaskRun, client.id).state.status == "completed"
    for sender in senders:
        check_open(shared, sender)


TIMES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
"""Times that no UTC has."""
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["\x00", "\ud800", "x" * 1200, *TIMES]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(one for key, item in inner for one in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with something else at a path."""
    if not path:
        return new
    key, *rest = path
    twin: Any = dict(value) if isinstance(value, dict) else list(value)
    twin[key] = replaced(twin[key], tuple(rest), new)
    return twin


@FEW
@given(st.data())
def test_whatever_stands_in_a_frame_the_others_are_recorded(
    shared: ledger.Ledger, data: st.DataObject
) -> None:
    hostile = []
    for _ in range(4):
        made: Any = data.draw(st.sampled_from([Client().report("Running"), frame("seen", f"a.{uuid4()}")]))
        hostile.append(replaced(made, data.draw(st.sampled_from(places(made))), data.draw(JSON)))
    clients = [Client() for _ in range(5)]
    frames = [client.report("Running") for client in clients]
    mixed = [one for pair in zip(frames, [*hostile, None], strict=True) for one in pair][:-1]
    answers = ClientEvents(shared).record(mixed)
    assert answers[::2] == [None] * len(frames)
    assert all(answer is None or isinstance(answer, ledger.BadInput) for answer in answers)
    assert not [one for one in answers if str(one).startswith("the event cannot be recorded")]  # foreseen
    for client in clients:
        assert shared.load(OpenTaskRun, client.id).state.status == "running"


def test_a_frame_that_is_nested_too_deep_or_named_too_long_is_told(shared: ledger.Ledger) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    bad = [
        frame("seen", f"a.{uuid4()}", payload={"deep": deep}),
        frame("seen", "x" * 1200),
        *({**frame("seen", f"a.{uuid4()}"), "occurred": at} for at in TIMES),
        Client(dynamic_key="k" * 1200).report("Running"),
        Client(task_inputs={"deep": deep}).report("Running"),
    ]
    good = Client()
    answers = ClientEvents(shared).record([*bad, good.report("Running")])
    assert all(isinstance(one, ledger.BadInput) for one in answers[:-1])
    assert "UTC" in str(answers[2])
    assert answers[-1] is None
    assert shared.load(OpenTaskRun, good.id).state.status == "running"
