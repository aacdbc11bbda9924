"""Flow runs: created, read, moved, changed, deleted; each answer is what the log then holds."""

from __future__ import annotations

import pytest

import ledger
from ledger.runs import FlowRuns, OpenFlowRun, State, Verdict, states
from ledger.runs.json_values import new_id


@pytest.fixture
def runs(shared: ledger.Ledger) -> FlowRuns:
    return FlowRuns(shared)


def test_a_run_is_read_as_it_was_created(runs: FlowRuns) -> None:
    run, is_new = runs.create(
        new_id(), name="nightly", state=states.pending(), parameters={"n": 1.5}, tags=["x"]
    )
    assert is_new
    assert run == runs.get(run.id)
    assert (run.name, run.parameters, run.tags, run.state_name) == ("nightly", {"n": 1.5}, ("x",), "Pending")
    assert run.state is not None
    assert run.state.timestamp == run.created == run.expected_start_time


def test_an_accepted_state_is_answered_as_it_was_recorded(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.pending())
    answer = runs.set_state(run.id, states.running())
    assert (answer.status, answer.written, answer.rule) == (Verdict.ACCEPT, True, None)
    assert answer.run == runs.get(run.id)
    assert answer.state == answer.run.state
    assert answer.run.start_time == answer.run.state_timestamp
    assert [state.name for state in runs.states(run.id)] == ["Pending", "Running"]


def test_a_key_creates_one_run_of_a_flow(runs: FlowRuns) -> None:
    flow = new_id()
    first, _ = runs.create(flow, idempotency_key="monday")
    again, is_new = runs.create(flow, idempotency_key="monday")
    other, _ = runs.create(new_id(), idempotency_key="monday")
    assert (again, is_new) == (first, False)
    assert other.id != first.id


def test_a_run_of_this_id_is_created_once(runs: FlowRuns) -> None:
    first, _ = runs.create(new_id())
    assert runs.create(new_id(), id=first.id.upper()) == (first, False)


def test_the_head_is_the_fold_of_the_events(shared: ledger.Ledger, runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.pending(), empirical_policy={"retries": 1})
    for state in [states.running(), states.failed(message="no"), states.running(), states.completed()]:
        runs.set_state(run.id, state)
    events = shared.read(OpenFlowRun.name_of(run.id))
    folded = OpenFlowRun(run.id, past=[(one.event, one.recorded_at) for one in events])
    assert folded.state == shared.load(OpenFlowRun, run.id).state


def test_a_deleted_run_is_not_found(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id())
    runs.delete(run.id)
    for call in (lambda: runs.get(run.id), lambda: runs.set_state(run.id, states.pending())):
        with pytest.raises(ledger.RunNotFound):
            call()


def test_inputs_are_kept_by_their_keys(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id())
    runs.set_input(run.id, "a-1", "1", sender="prefect.flow-run.x")
    runs.set_input(run.id, "a-2", "2")
    with pytest.raises(ledger.RecordExists):
        runs.set_input(run.id, "a-1", "other")
    assert [one.value for one in runs.inputs(run.id, "a-")] == ["1", "2"]
    assert [one.value for one in runs.inputs(run.id, "a-", limit=1, exclude=["a-1"])] == ["2"]
    runs.delete_input(run.id, "a-1")
    with pytest.raises(ledger.RecordNotFound):
        runs.get_input(run.id, "a-1")
    assert runs.get_input(run.id, "a-2").value == "2"


def test_what_a_client_may_not_send_is_refused(runs: FlowRuns) -> None:
    for bad in ({"type": "DONE"}, {"type": "RUNNING", "timestamp": "2026-11-23T00:00:00"}, {}):
        with pytest.raises(ledger.BadInput):
            State.of(bad)
    with pytest.raises(ledger.BadInput):
        runs.create("no id")
    with pytest.raises(ledger.BadInput):
        runs.create(new_id(), colour="red")
