"""Task runs through the API: created, read, moved, changed, deleted; answers are what the log then holds."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest

import ledger
from ledger.errors import BadInput, MoveNotAllowed, StreamConflict
from ledger.runs import FlowRuns, OpenTaskRun, State, TaskRuns, Verdict, states, task_run_shown
from ledger.runs.client_events import ClientEvents
from ledger.runs.json_values import new_id
from ledger.runs.task_run import TaskRunProposalRefused, TaskRunStateSet

from .given_frames import Client


@pytest.fixture
def runs(shared: ledger.Ledger) -> TaskRuns:
    """The task runs of the shared ledger."""
    return TaskRuns(shared)


def key() -> str:
    """A dynamic key that no other run has."""
    return f"sum-{uuid4().hex}"


def test_a_run_is_read_as_it_was_created(runs: TaskRuns) -> None:
    run, is_new = runs.create(
        "sum", key(), name="sum-1", state=states.pending(), tags=["x"], task_inputs={"a": []},
        empirical_policy={"retries": 2, "retry_delay": [1, 2]}, cache_key="k", labels={"team": "a"},
    )  # fmt: skip
    assert is_new
    assert run == runs.get(run.id)
    assert (run.name, run.tags, run.state_name, run.cache_key) == ("sum-1", ("x",), "Pending", "k")
    shown = task_run_shown(run)
    assert shown["empirical_policy"]["retry_delay"] == [1, 2]
    assert shown["labels"] == {"team": "a"}
    assert shown["state"]["state_details"]["task_run_id"] == run.id


def test_a_run_has_the_labels_of_its_flow_run(shared: ledger.Ledger, runs: TaskRuns) -> None:
    flow_run, _ = FlowRuns(shared).create(new_id(), labels={"team": "a", "stage": "b"})
    run, _ = runs.create("sum", "0", flow_run_id=flow_run.id, labels={"stage": "c"})
    ids = {"prefect.flow.id": flow_run.flow_id, "prefect.flow-run.id": flow_run.id}
    assert dict(run.labels) == {"team": "a", "stage": "c", **ids}


def test_a_flow_run_has_one_task_run_of_a_key(runs: TaskRuns) -> None:
    flow_run = new_id()
    first, _ = runs.create("sum", "0", flow_run_id=flow_run)
    assert runs.create("sum", "0", flow_run_id=flow_run, state=states.running()) == (first, False)
    assert runs.create("sum", "1", flow_run_id=flow_run)[1]
    assert runs.create("sum", "0", flow_run_id=new_id())[1]
    runs.delete(first.id)
    again, is_new = runs.create("sum", "0", flow_run_id=flow_run)
    assert is_new
    assert again.id != first.id


def test_a_run_of_this_id_is_created_once(runs: TaskRuns) -> None:
    first, _ = runs.create("sum", key())
    assert runs.create("sum", key(), id=first.id.upper()) == (first, False)


def test_a_reported_run_is_found_by_its_key(shared: ledger.Ledger, runs: TaskRuns) -> None:
    client = Client(dynamic_key="7")
    ClientEvents(shared).record([client.report("Running")])
    found, is_new = runs.create("sum", "7", flow_run_id=client.flow_run_id)
    assert (found.id, is_new) == (client.id, False)


def test_a_client_reports_a_state_that_it_set_through_the_api(shared: ledger.Ledger, runs: TaskRuns) -> None:
    client = Client()
    scheduled, pending = client.reports("AwaitingRetry", "Pending")
    state = State.of({**scheduled["payload"]["validated_state"], "id": scheduled["id"]})
    runs.create("sum", key(), id=client.id, state=state)
    ClientEvents(shared).record([scheduled, pending, scheduled])
    assert [one.id for one in runs.states(client.id)] == [scheduled["id"], pending["id"]]


def test_only_fields_of_a_task_run_can_be_given(runs: TaskRuns) -> None:
    with pytest.raises(BadInput, match="no field"):
        runs.create("sum", key(), color="red")
    run, _ = runs.create("sum", key())
    assert runs.change(run.id, name="new").name == "new"
    with pytest.raises(BadInput, match="tags"):
        runs.change(run.id, tags="x")


def test_a_deleted_run_is_not_found_and_stays_deleted(shared: ledger.Ledger, runs: TaskRuns) -> None:
    client = Client()
    ClientEvents(shared).record([client.report("Running")])
    runs.delete(client.id)
    for call in (lambda: runs.get(client.id), lambda: runs.set_state(client.id, states.completed())):
        with pytest.raises(ledger.RunNotFound):
            call()
    assert ClientEvents(shared).record([client.report("Completed")]) == [None]
    opened = shared.load(OpenTaskRun, client.id)
    assert opened.state.is_deleted
    with pytest.raises(MoveNotAllowed):
        opened.delete()


def test_the_head_is_the_fold_of_the_events(shared: ledger.Ledger, runs: TaskRuns) -> None:
    client = Client()
    first, *others = client.reports("Pending", "Running", "AwaitingRetry", "Retrying")
    events = ClientEvents(shared)
    events.record([first, *others[1:]])
    runs.set_state(client.id, states.failed(), force=True)
    runs.set_state(client.id, State.of({"type": "CANCELLING"}))
    runs.change(client.id, name="renamed")
    events.record([others[0], client.report("Completed")])
    recorded = shared.read(OpenTaskRun.name_of(client.id))
    folded = OpenTaskRun(client.id, past=[(one.event, one.recorded_at) for one in recorded])
    assert (
        folded.state
        == shared.load(OpenTaskRun, client.id).state
        == events._open[f"task_run/{client.id}"].state
    )


def test_the_history_shows_late_states_where_they_belong(shared: ledger.Ledger, runs: TaskRuns) -> None:
    client = Client()
    pending, running, completed = client.reports("Pending", "Running", "Completed")
    ClientEvents(shared).record([pending, completed, running])
    history = runs.states(client.id)
    assert [state.name for state in history] == ["Pending", "Running", "Completed"]
    assert [state.id for state in history] == [one["id"] for one in (pending, running, completed)]


def test_w3_06_a_report_that_comes_between_makes_the_proposal_be_decided_again(
    shared: ledger.Ledger, runs: TaskRuns
) -> None:
    """W3-06: a task run's transition is decided against the version that it is appended to."""
    for _ in range(5):
        client = Client()
        events = ClientEvents(shared)
        events.record([client.report("Running")])
        frame, go = client.report("Completed"), threading.Barrier(2)

        def report(events: ClientEvents = events, frame: object = frame, go: threading.Barrier = go) -> None:
            go.wait()
            events.record([frame])  # type: ignore[list-item]

        other = threading.Thread(target=report)
        other.start()
        go.wait()
        answer = runs.set_state(client.id, states.cancelling())
        other.join()
        facts = [one.event for one in shared.read(f"task_run/{client.id}")]
        moves = [one for one in facts if isinstance(one, TaskRunStateSet | TaskRunProposalRefused)]
        seen = [one.initial and one.initial["id"] for one in moves[1:]]
        befores = []
        current = moves[0].state["id"] if isinstance(moves[0], TaskRunStateSet) else None
        for one in moves[1:]:
            befores.append(current)
            current = one.state["id"] if isinstance(one, TaskRunStateSet) else current
        assert seen == befores  # each was decided on the state that was there
        refused = isinstance(moves[-1], TaskRunProposalRefused)
        assert (answer.status is Verdict.ABORT) == refused


def test_w3_06_a_decision_for_another_version_is_refused(runs: TaskRuns) -> None:
    """W3-06: who decided on an older version, such as a service, does not override what came meanwhile."""
    run, _ = runs.create("sum", key(), state=states.pending())
    runs.set_state(run.id, states.running(), force=True)
    with pytest.raises(StreamConflict):
        runs.set_state(run.id, states.crashed(), force=True, expected=run.version)
    assert runs.get(run.id).state_name == "Running"


def test_w3_06_a_forced_move_loses_no_result(runs: TaskRuns) -> None:
    """W3-06: force leaves out rules, but not those that protect what was recorded."""
    run, _ = runs.create("sum", key(), state=states.running())
    result = {"type": "reference", "storage_key": "k"}
    runs.set_state(run.id, states.completed(data=result))
    answer = runs.set_state(run.id, states.completed(), force=True)
    assert (answer.status, answer.rule) == (Verdict.REJECT, "PreventResultDataLoss")
    assert answer.state is not None
    assert answer.state.data == result
