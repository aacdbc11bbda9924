"""Proposals through the service: what is answered, what is recorded, and what is recorded only once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

import ledger
from ledger.runs import FlowRuns, OpenFlowRun, State, Verdict, states
from ledger.runs.artifacts import Artifacts
from ledger.runs.flow_run import FlowRunProposalRefused, FlowRunStateSet
from ledger.runs.json_values import new_id
from ledger.runs.records import Records
from tests.runs.given_runs import in_seconds, names


@pytest.fixture
def runs(shared: ledger.Ledger) -> FlowRuns:
    return FlowRuns(shared)


def facts(runs: FlowRuns, id: str) -> list[ledger.Event]:
    return [one.event for one in runs.ledger.read(OpenFlowRun.name_of(id))]  # type: ignore[misc]


def test_a_refusal_is_recorded_with_the_rule(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    with ledger.acting(actor="worker-2"):
        answer = runs.set_state(run.id, states.pending(message="mine"))
    assert (answer.status, answer.rule, answer.written) == (Verdict.ABORT, "PreventPendingTransitions", False)
    assert answer.state == run.state
    (refused,) = [one for one in facts(runs, run.id) if isinstance(one, FlowRunProposalRefused)]
    assert (refused.verdict, refused.rule) == ("ABORT", "PreventPendingTransitions")
    assert refused.proposed["message"] == "mine"
    assert refused.initial is not None
    assert refused.initial["name"] == "Running"
    assert runs.ledger.read(OpenFlowRun.name_of(run.id))[-1].meta.actor == "worker-2"


def test_a_replaced_state_is_recorded_with_what_was_proposed(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running(), empirical_policy={"retries": 1})
    answer = runs.set_state(run.id, states.failed(message="no luck"))
    assert (answer.status, answer.rule, answer.written) == (Verdict.REJECT, "RetryFailedFlows", True)
    fact = facts(runs, run.id)[-1]
    assert isinstance(fact, FlowRunStateSet)
    assert (fact.status, fact.rule, fact.reason) == ("scheduled", "RetryFailedFlows", "Retrying")
    assert fact.proposed is not None
    assert fact.proposed["type"] == "FAILED"


def test_who_waits_and_asks_again_is_recorded_once(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.scheduled(in_seconds(60)))
    for _ in range(5):
        proposed = states.running(state_details={"transition_id": new_id()})
        answer = runs.set_state(run.id, proposed)
        assert answer.status is Verdict.WAIT
        assert answer.delay_seconds is not None
        assert 50 < answer.delay_seconds <= 60
    assert len([one for one in facts(runs, run.id) if isinstance(one, FlowRunProposalRefused)]) == 1
    runs.set_state(run.id, states.scheduled(in_seconds(60)))
    runs.set_state(run.id, states.running())
    assert len([one for one in facts(runs, run.id) if isinstance(one, FlowRunProposalRefused)]) == 2


def test_a_repeated_proposal_records_nothing(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.pending())
    proposed = states.running(state_details={"transition_id": new_id()})
    first = runs.set_state(run.id, proposed)
    version = first.run.version
    again = runs.set_state(run.id, proposed)
    assert (again.status, again.state, again.written) == (Verdict.REJECT, first.state, False)
    refused = states.pending(state_details={"transition_id": new_id()})
    for _ in range(3):
        assert runs.set_state(run.id, refused).status is Verdict.ABORT
    assert runs.get(run.id).version == version + 1


def test_a_fenced_proposal_is_not_made_of_another_version(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    runs.change(run.id, infrastructure_pid="7")
    with pytest.raises(ledger.StreamConflict):
        runs.set_state(run.id, states.crashed(), force=True, expected=run.version)
    assert runs.set_state(run.id, states.crashed(), expected=runs.get(run.id).version).written


def test_of_two_workers_one_gets_the_run(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.scheduled())
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: runs.set_state(run.id, states.pending()), range(4)))
    assert sorted(one.status for one in answers) == ["ABORT", "ABORT", "ABORT", "ACCEPT"]


def test_of_two_creators_of_a_key_one_creates(runs: FlowRuns) -> None:
    flow = new_id()
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(lambda _: runs.create(flow, idempotency_key="k", state=states.pending()), range(4))
        )
    assert sorted(is_new for _, is_new in made) == [False, False, False, True]
    assert len({run.id for run, _ in made}) == 1


def test_a_key_is_free_again_when_its_run_was_deleted(runs: FlowRuns) -> None:
    flow = new_id()
    first, _ = runs.create(flow, idempotency_key="k")
    runs.delete(first.id)
    second, is_new = runs.create(flow, idempotency_key="k")
    assert is_new
    assert second.id != first.id


def test_a_run_pauses_for_input_and_goes_on_with_it(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    runs.set_input(run.id, "keys-schema", json.dumps(schema))
    keys = {"schema": "keys-schema", "response": "keys-response"}
    runs.set_state(run.id, states.paused(timeout_seconds=60, state_details={"run_input_keyset": keys}))
    wrong = runs.resume(run.id, {"n": "one"})
    assert (wrong.status, wrong.rule) == (Verdict.REJECT, "CheckRunInput")
    Records(runs.ledger).create("variable", {"name": "one", "value": 1})
    answer = runs.resume(run.id, {"n": {"__prefect_kind": "workspace_variable", "variable_name": "one"}})
    assert (answer.status, answer.run.state_name, answer.run.run_count) == (Verdict.ACCEPT, "Running", 1)
    assert json.loads(runs.get_input(run.id, "keys-response").value) == {"n": 1}
    assert runs.resume(run.id).status is Verdict.ABORT


def test_a_suspended_run_is_scheduled_to_go_on(runs: FlowRuns) -> None:
    deployment = Records(runs.ledger).create("deployment", {"name": new_id(), "flow_id": new_id()})
    run, _ = runs.create(new_id(), state=states.running(), deployment_id=deployment.id)
    runs.set_state(run.id, states.suspended())
    assert runs.resume(run.id).run.state_name == "Resuming"
    for state in (states.pending(), states.running()):
        runs.set_state(run.id, state)
    after = runs.get(run.id)
    assert (after.run_count, after.empirical_policy.resuming) == (1, False)
    assert names(runs.states(run.id)) == ["Running", "Suspended", "Resuming", "Pending", "Running"]


def test_s3_48_a_persisted_result_is_an_artifact(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    key = f"result-{run.id}"
    runs.set_state(run.id, states.completed(data={"type": "reference", "artifact_key": key, "n": 1}))
    artifact = Artifacts(runs.ledger).latest(key)
    assert (artifact["flow_run_id"], artifact["data"]) == (run.id, {"type": "reference", "n": 1})


def test_s3_48_data_that_were_not_persisted_are_dropped(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    answer = runs.set_state(run.id, states.completed(data={"type": "unpersisted"}))
    assert answer.state is not None
    assert answer.state.data is None


def test_s3_44_what_cannot_be_stored_is_refused(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    answer = runs.set_state(run.id, states.failed(message="a\x00b"))
    assert (answer.status, answer.state, answer.written) == (Verdict.ABORT, run.state, False)
    assert runs.get(run.id) == run


def test_fields_are_changed_and_labels_added(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), labels={"a": 1})
    runs.change(run.id, labels={"b": 2}, infrastructure_pid="7", tags=["x"])
    after = runs.change(run.id, infrastructure_pid=None)
    assert after.labels == {"a": 1, "b": 2, "prefect.flow.id": run.flow_id}
    assert (after.tags, after.infrastructure_pid) == (("x",), None)


def test_a_run_has_the_labels_of_its_flow(runs: FlowRuns) -> None:
    flow = Records(runs.ledger).create("flow", {"name": new_id(), "labels": {"team": "red", "n": 1}})
    run, _ = runs.create(flow.id, labels={"n": 2})
    assert run.labels == {"team": "red", "n": 2, "prefect.flow.id": flow.id}


def test_a_late_run_keeps_its_time(runs: FlowRuns) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    run, _ = runs.create(new_id(), state=states.scheduled(at))
    answer = runs.mark_late(run.id)
    assert (answer.run.state_name, answer.run.next_scheduled_start_time) == ("Late", at)
    assert runs.mark_late(run.id).status is Verdict.REJECT
    assert State.of(answer.run.state.shown() if answer.run.state else {}).scheduled_time == at
