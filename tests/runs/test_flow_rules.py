"""Each rule of flow runs (spec 4.6): given a run in a state, when a state is proposed, then the outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ledger
from ledger.runs import FlowRunPolicy, State, StateType, Verdict, states
from ledger.runs.flow_rules import FLOW_POLICY, MARK_LATE_POLICY, MINIMAL_FLOW_POLICY, RESUME_POLICY
from ledger.runs.flow_run import FlowRunInputSet, OpenFlowRun
from ledger.runs.json_values import new_id
from ledger.runs.orchestration import Policy
from tests.runs.given_runs import BEGIN, decided, flow_run, in_seconds

ACCEPT, REJECT, WAIT, ABORT = Verdict
DEPLOYED = {"deployment_id": new_id()}
RESULT = {"type": "reference", "storage_key": "k"}
PAST, SOON = in_seconds(-60), in_seconds(3600)


@dataclass(frozen=True)
class Case:
    """given: the states that the run was in. then: verdict, and the name of the state or the rule."""

    given: list[State]
    when: State
    then: tuple[Verdict, str]
    fields: dict[str, Any] = field(default_factory=dict)
    policy: Policy = FLOW_POLICY

    def __str__(self) -> str:
        before = self.given[-1].name if self.given else "nothing"
        return f"{before}-{self.when.name}-{self.then[0]}"


def case(*given: State, when: State, then: tuple[Verdict, str], **more: Any) -> Case:
    policy = more.pop("policy", FLOW_POLICY)
    return Case(list(given), when, then, more, policy)


def check(log: ledger.Ledger, one: Case) -> None:
    """The outcome is the expected one: an accepted or replacing state by its name, a refusal by its rule."""
    change = decided(log, flow_run(*one.given, **one.fields), one.when, one.policy)
    state = change.proposed
    assert (change.status, change.rule if state is None else state.name) == one.then, change.reason


TERMINAL_CASES = [
    *(
        case(over, when=to, then=(ABORT, "HandleFlowTerminalStateTransitions"))
        for over in (states.completed(), states.failed(), states.crashed(), states.cancelled())
        for to in (states.cancelling(), states.paused(), states.crashed())
    ),
    case(
        states.completed(data=RESULT),
        when=states.running(),
        then=(REJECT, "HandleFlowTerminalStateTransitions"),
    ),
    case(
        states.completed(data=RESULT),
        when=states.completed(),
        then=(REJECT, "HandleFlowTerminalStateTransitions"),
    ),
    case(states.completed(data=RESULT), when=states.completed(data=RESULT), then=(ACCEPT, "Completed")),
    case(states.completed(data=RESULT), when=states.failed(), then=(ACCEPT, "Failed")),
    case(states.completed(data={"type": "unpersisted"}), when=states.running(), then=(ACCEPT, "Running")),
    case(states.completed(), when=states.running(), then=(ACCEPT, "Running")),
    case(states.failed(), when=states.scheduled(), then=(ABORT, "HandleFlowTerminalStateTransitions")),
    case(states.failed(), when=states.scheduled(), then=(ACCEPT, "Scheduled"), **DEPLOYED),
    case(states.failed(), when=states.completed(), then=(ACCEPT, "Completed")),
]
CANCEL_CASES = [
    *(
        case(states.cancelling(), when=to, then=(REJECT, "EnforceCancellingToCancelledTransition"))
        for to in (
            states.running(),
            states.completed(),
            states.failed(),
            states.crashed(),
            states.cancelling(),
        )
    ),
    case(states.cancelling(), when=states.cancelled(), then=(ACCEPT, "Cancelled")),
    case(states.scheduled(), when=states.cancelling(), then=(REJECT, "Cancelled")),
    case(states.scheduled(), when=states.cancelling(), then=(ACCEPT, "Cancelling"), infrastructure_pid="7"),
    case(states.resuming(), when=states.cancelling(), then=(REJECT, "Cancelled"), infrastructure_pid="7"),
    case(states.suspended(), when=states.cancelling(), then=(REJECT, "Cancelled"), infrastructure_pid="7"),
    case(states.paused(), when=states.cancelling(), then=(ACCEPT, "Cancelling")),
    case(states.running(), when=states.cancelling(), then=(ACCEPT, "Cancelling")),
]
PENDING_CASES = [
    case(when=states.pending(), then=(ACCEPT, "Pending")),
    *(
        case(busy, when=states.pending(), then=(ABORT, "PreventPendingTransitions"))
        for busy in (states.pending(), states.submitting(), states.running(), states.cancelled())
    ),
    case(states.pending(), when=states.submitting(), then=(ACCEPT, "Submitting")),
    case(states.submitting(), when=states.infrastructure_pending(), then=(ACCEPT, "InfrastructurePending")),
    case(states.submitting(), when=states.submitting(), then=(ABORT, "PreventPendingTransitions")),
    case(states.failed(), when=states.pending(), then=(ACCEPT, "Pending")),
    case(states.scheduled(), when=states.pending(), then=(ACCEPT, "Pending")),
]
LATE_CASES = [
    case(states.scheduled(), when=states.late(), then=(ACCEPT, "Late"), policy=MARK_LATE_POLICY),
    case(states.late(), when=states.late(), then=(REJECT, "EnsureOnlyScheduledFlowsMarkedLate")),
    case(states.running(), when=states.late(), then=(REJECT, "EnsureOnlyScheduledFlowsMarkedLate")),
    case(states.running(), when=states.scheduled(), then=(ACCEPT, "Scheduled")),
]
PAUSE_CASES = [
    case(when=states.paused(), then=(ABORT, "HandlePausingFlows")),
    case(states.pending(), when=states.paused(), then=(REJECT, "HandlePausingFlows")),
    case(states.running(), when=states.paused(), then=(ACCEPT, "Paused")),
    case(
        states.running(),
        when=states.paused(key="here"),
        then=(REJECT, "HandlePausingFlows"),
        empirical_policy={"pause_keys": ["here"]},
    ),
    case(states.running(), when=states.suspended(), then=(ABORT, "HandlePausingFlows")),
    case(states.running(), when=states.suspended(), then=(ACCEPT, "Suspended"), **DEPLOYED),
    case(
        states.running(),
        when=states.suspended(),
        then=(ABORT, "HandlePausingFlows"),
        parent_task_run_id=new_id(),
        **DEPLOYED,
    ),
]
RESUME_CASES = [
    case(states.paused(), when=states.running(), then=(ACCEPT, "Running")),
    case(states.paused(), when=states.pending(), then=(REJECT, "HandleResumingPausedFlows")),
    case(states.paused(), when=states.paused(), then=(REJECT, "HandlePausingFlows")),
    case(states.paused(), when=states.completed(), then=(ACCEPT, "Completed")),
    case(states.suspended(), when=states.resuming(), then=(REJECT, "HandleResumingPausedFlows")),
    case(states.suspended(), when=states.resuming(), then=(ACCEPT, "Resuming"), **DEPLOYED),
    case(states.paused(expires_at=PAST), when=states.running(), then=(REJECT, "Failed")),
    case(states.paused(expires_at=SOON), when=states.running(), then=(ACCEPT, "Running")),
    case(states.paused(), when=states.running(), then=(ACCEPT, "Running"), policy=RESUME_POLICY),
    case(
        states.running(), when=states.running(), then=(ABORT, "ResumeOnlyPausedFlows"), policy=RESUME_POLICY
    ),
]
TIME_CASES = [
    case(states.scheduled(SOON), when=states.running(), then=(WAIT, "WaitForScheduledTime")),
    case(states.scheduled(PAST), when=states.running(), then=(ACCEPT, "Running")),
    case(
        states.pending(state_details={"scheduled_time": SOON}),
        when=states.running(),
        then=(WAIT, "WaitForScheduledTime"),
    ),
]
RETRY_CASES = [
    case(states.running(), when=states.failed(), then=(ACCEPT, "Failed")),
    case(
        states.running(),
        when=states.failed(),
        then=(REJECT, "AwaitingRetry"),
        empirical_policy={"retries": 1},
    ),
    case(
        *(states.running(), states.awaiting_retry(), states.running()),
        when=states.failed(),
        then=(ACCEPT, "Failed"),
        empirical_policy={"retries": 1},
    ),
    case(states.running(), when=states.crashed(), then=(ACCEPT, "Crashed"), empirical_policy={"retries": 1}),
    case(states.pending(), when=states.failed(), then=(ACCEPT, "Failed"), empirical_policy={"retries": 1}),
]
FORCED_CASES = [
    case(states.completed(data=RESULT), when=states.completed(), then=(REJECT, "PreventResultDataLoss")),
    case(states.completed(data=RESULT), when=states.running(), then=(ACCEPT, "Running")),
    case(states.cancelled(), when=states.pending(), then=(ACCEPT, "Pending")),
    case(states.scheduled(SOON), when=states.running(), then=(ACCEPT, "Running")),
    case(states.scheduled(), when=states.cancelling(), then=(REJECT, "Cancelled")),
    case(states.running(), when=states.failed(), then=(ACCEPT, "Failed"), empirical_policy={"retries": 9}),
]


@pytest.mark.parametrize(
    "one",
    [
        *TERMINAL_CASES,
        *CANCEL_CASES,
        *PENDING_CASES,
        *LATE_CASES,
        *PAUSE_CASES,
        *RESUME_CASES,
        *TIME_CASES,
        *RETRY_CASES,
    ],
    ids=str,
)
def test_core_policy(shared: ledger.Ledger, one: Case) -> None:
    if one.fields.get("deployment_id") and one.when.type is StateType.PENDING:
        pytest.fail("slots are tested with deployments that exist")
    check(shared, one)


@pytest.mark.parametrize("one", FORCED_CASES, ids=str)
def test_minimal_policy(shared: ledger.Ledger, one: Case) -> None:
    change = decided(shared, flow_run(*one.given, **one.fields), one.when, MINIMAL_FLOW_POLICY)
    state = change.proposed
    assert (change.status, change.rule if state is None else state.name) == one.then


# What a rule changes besides the state


def _policy(change: Any) -> FlowRunPolicy:
    return FlowRunPolicy.of(change.changes["empirical_policy"])


def test_a_new_beginning_forgets_pauses(shared: ledger.Ledger) -> None:
    run = flow_run(states.failed(), empirical_policy={"pause_keys": ["a"], "resuming": True}, **DEPLOYED)
    change = decided(shared, run, states.scheduled())
    assert _policy(change) == FlowRunPolicy(retry_type="reschedule")
    assert _policy(decided(shared, run, states.running())) == FlowRunPolicy()


def test_clean_up_restores_the_policy(shared: ledger.Ledger) -> None:
    run = flow_run(states.failed(), empirical_policy={"pause_keys": ["a"]}, **DEPLOYED)
    change = decided(shared, run, states.late())  # a later rule refuses it
    assert (change.status, change.changes) == (REJECT, {})


def test_a_pause_is_remembered_by_its_key(shared: ledger.Ledger) -> None:
    change = decided(shared, flow_run(states.running()), states.paused(key="here"))
    assert _policy(change).pause_keys == ("here",)
    (key,) = _policy(decided(shared, flow_run(states.running()), states.paused())).pause_keys
    assert len(key) == 36


def test_a_retry_keeps_message_and_data_and_forgets_pauses(shared: ledger.Ledger) -> None:
    policy = {"retries": 1, "retry_delay": 60, "pause_keys": ["a"]}
    run = flow_run(states.running(), empirical_policy=policy)
    change = decided(shared, run, states.failed(message="no luck", data=RESULT))
    again = change.proposed
    assert again is not None
    assert (again.message, again.data) == ("no luck", RESULT)
    assert again.scheduled_time is not None
    assert timedelta(seconds=50) < again.scheduled_time - datetime.now(UTC) <= timedelta(seconds=60)
    assert _policy(change) == FlowRunPolicy(retries=1, retry_delay=60, retry_type="in_process")


def test_the_last_failure_may_be_retried_by_hand(shared: ledger.Ledger) -> None:
    run = flow_run(states.running(), empirical_policy={"retry_type": "in_process"})
    assert _policy(decided(shared, run, states.failed())).retry_type is None


def test_pending_keeps_the_scheduled_time(shared: ledger.Ledger) -> None:
    run = flow_run(states.scheduled(SOON))
    copied = decided(shared, run, states.pending()).proposed
    assert copied is not None
    assert copied.scheduled_time == SOON
    given = decided(shared, run, states.pending(state_details={"scheduled_time": PAST})).proposed
    assert given is not None
    assert given.scheduled_time == PAST


def test_states_name_their_run(shared: ledger.Ledger) -> None:
    run = flow_run(states.pending())
    state = decided(shared, run, states.running()).proposed
    assert state is not None
    assert state.detail("flow_run_id") == run.state.id


@pytest.mark.parametrize("policy", [FLOW_POLICY, MINIMAL_FLOW_POLICY], ids=["core", "minimal"])
def test_a_repeated_transition_is_not_made_again(shared: ledger.Ledger, policy: Policy) -> None:
    proposed = states.running(state_details={"transition_id": new_id()})
    run = flow_run(states.pending())
    change = decided(shared, run, proposed, policy)
    assert change.proposed is not None
    run.record(_accepted(change))
    again = decided(shared, run, proposed, policy)
    assert (again.status, again.rule, again.proposed) == (REJECT, "PreventDuplicateTransitions", None)


def _accepted(change: Any) -> Any:
    from ledger.runs.flow_run import FlowRunProposalRefused, FlowRunStateSet
    from ledger.runs.orchestration import recorded

    opened = OpenFlowRun(change.run.id)
    opened.restore(change.run, 1)
    recorded(opened, change, FlowRunStateSet, FlowRunProposalRefused)
    return opened.news[0]


# Input of a paused run

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@pytest.mark.parametrize(
    ("schema", "given", "then"),
    [
        (SCHEMA, {"n": 1}, ACCEPT),
        (SCHEMA, {"n": "one"}, REJECT),
        (SCHEMA, None, REJECT),
        ("{", {"n": 1}, REJECT),
        (None, {"n": 1}, REJECT),
    ],
)
def test_run_input_fits_its_schema(
    shared: ledger.Ledger, schema: str | None, given: dict[str, Any] | None, then: Verdict
) -> None:
    keys = {"schema": "s", "response": "r"}
    run = flow_run(states.paused(state_details={"run_input_keyset": keys}))
    if schema is not None:
        run.replay(FlowRunInputSet(key="s", value=schema), BEGIN)
    change = decided(shared, run, states.running(), RESUME_POLICY, run_input=given)
    assert change.status is then, change.reason
