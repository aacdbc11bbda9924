"""The rules of task runs, each by what it makes of a proposal (spec 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import ledger
from ledger.runs import Answer, FlowRuns, State, TaskRun, TaskRuns, Verdict, states
from ledger.runs.artifacts import Artifacts
from ledger.runs.cached_states import cached_states
from ledger.runs.json_values import new_id
from ledger.runs.limits import Limits
from ledger.runs.orchestration import Change, committed, orchestrate, recorded
from ledger.runs.records import Records
from ledger.runs.task_rules import (
    BACKGROUND_TASK_POLICY,
    CLIENT_SIDE_TASK_POLICY,
    MINIMAL_TASK_POLICY,
    TASK_POLICY,
    SecureTaskConcurrencySlots,
)
from ledger.runs.task_run import OpenTaskRun, TaskRunProposalRefused, TaskRunStateSet

ACCEPT, REJECT, WAIT, ABORT = Verdict.ACCEPT, Verdict.REJECT, Verdict.WAIT, Verdict.ABORT
RESULT = {"type": "reference", "storage_key": "k"}
SOON = timedelta(seconds=30)


class Given:
    """A task run in a state, in a flow run in a state; and what a proposal makes of it."""

    def __init__(self, log: ledger.Ledger) -> None:
        self.log, self.flow_runs, self.task_runs = log, FlowRuns(log), TaskRuns(log)

    def flow_run(self, state: State | None = None) -> str:
        """The id of a flow run in a state; running, by default."""
        run, _ = self.flow_runs.create(new_id(), state=state or states.running())
        return run.id

    def task_run(self, *moves: State, **fields: Any) -> TaskRun:
        """A task run that was forced through these states."""
        run, _ = self.task_runs.create("sum", f"sum-{uuid4().hex}", **fields)
        for state in moves:
            run = self.task_runs.set_state(run.id, state, force=True).run
        return run

    def when(self, run: TaskRun, proposed: State, **options: Any) -> Answer[TaskRun]:
        """The answer to a proposal."""
        return self.task_runs.set_state(run.id, proposed, **options)


@pytest.fixture
def given(shared: ledger.Ledger) -> Given:
    """Task runs of the shared ledger."""
    return Given(shared)


def then(answer: Answer[TaskRun]) -> tuple[Verdict, str | None, str | None]:
    """The verdict, the rule that made it, and the name of the state in which the run is."""
    return answer.status, answer.rule, answer.state and answer.state.name


def details(state: State | None) -> Mapping[str, Any]:
    assert state is not None
    return state.state_details


# The whole: what is accepted, and what is recorded of the rest.


def test_a_plain_course_is_accepted(given: Given) -> None:
    run = given.task_run(flow_run_id=given.flow_run())
    for state in (states.pending(), states.running(), states.completed()):
        assert then(given.when(run, state)) == (ACCEPT, None, state.name)
    done = given.task_runs.get(run.id)
    assert (done.run_count, done.flow_run_run_count) == (1, 1)


def test_a_refused_proposal_is_recorded_with_the_rule(given: Given) -> None:
    run = given.task_run(states.completed())
    given.when(run, states.crashed())
    last = given.log.read(f"task_run/{run.id}")[-1].event
    assert isinstance(last, TaskRunProposalRefused)
    assert (last.verdict, last.rule) == ("ABORT", "HandleTaskTerminalStateTransitions")
    assert last.proposed["type"] == "CRASHED"


def test_a_repeated_proposal_uses_up_no_retry(given: Given) -> None:
    run = given.task_run(states.pending(), flow_run_id=given.flow_run())
    again = states.running(state_details={"transition_id": new_id()})
    assert then(given.when(run, again)) == (ACCEPT, None, "Running")
    given.when(run, states.completed())
    assert then(given.when(run, again)) == (REJECT, "PreventDuplicateTransitions", "Completed")
    assert given.task_runs.get(run.id).run_count == 1


# HandleTaskTerminalStateTransitions


@pytest.mark.parametrize("proposed", [states.cancelling(), states.paused(), states.crashed()])
def test_a_run_that_is_over_does_not_crash_pause_or_cancel(given: Given, proposed: State) -> None:
    answer = given.when(given.task_run(states.failed()), proposed)
    assert then(answer) == (ABORT, "HandleTaskTerminalStateTransitions", "Failed")
    assert answer.reason == "Run is already in terminal state FAILED."


def test_a_result_is_kept_and_a_run_without_one_begins_anew(given: Given) -> None:
    flow_run = given.flow_run()
    kept = given.task_run(states.running(), states.completed(data=RESULT), flow_run_id=flow_run)
    assert then(given.when(kept, states.running())) == (
        REJECT, "HandleTaskTerminalStateTransitions", "Completed",
    )  # fmt: skip
    for data in (None, {"type": "unpersisted"}):
        run = given.task_run(states.running(), states.completed(data=data), flow_run_id=flow_run)
        assert then(given.when(run, states.pending())) == (ACCEPT, None, "Pending")
        assert given.task_runs.get(run.id).run_count == 0


def test_a_run_that_begins_anew_because_its_flow_does_is_named_retrying(given: Given) -> None:
    flow_run, _ = given.flow_runs.create(new_id(), state=states.running(), empirical_policy={"retries": 2})
    run = given.task_run(states.pending(), flow_run_id=flow_run.id)
    given.when(run, states.running())
    given.when(run, states.failed())
    for state in (states.failed(), states.running()):
        given.flow_runs.set_state(flow_run.id, state)
    answer = given.when(run, states.running())
    assert then(answer) == (ACCEPT, None, "Retrying")
    assert (answer.run.run_count, answer.run.flow_run_run_count) == (1, 2)


def test_the_run_count_is_kept_where_a_later_rule_changes_the_proposal(given: Given) -> None:
    flow_run = given.flow_run(states.paused())
    run = given.task_run(states.running(), states.failed(), flow_run_id=flow_run)
    assert then(given.when(run, states.running())) == (
        REJECT, "PreventRunningTasksFromStoppedFlows", "NotReady",
    )  # fmt: skip
    assert given.task_runs.get(run.id).run_count == 1


# PreventRunningTasksFromStoppedFlows


@pytest.mark.parametrize("state", [states.pending(), states.completed(), states.cancelling()])
def test_a_task_runs_only_while_its_flow_runs(given: Given, state: State) -> None:
    run = given.task_run(states.pending(), flow_run_id=given.flow_run(state))
    assert then(given.when(run, states.running())) == (
        ABORT, "PreventRunningTasksFromStoppedFlows", "Pending",
    )  # fmt: skip


def test_a_task_does_not_run_in_a_flow_run_without_state(given: Given) -> None:
    flow_run, _ = given.flow_runs.create(new_id())
    run = given.task_run(states.pending(), flow_run_id=flow_run.id)
    assert then(given.when(run, states.running()))[:2] == (ABORT, "PreventRunningTasksFromStoppedFlows")


def test_a_task_of_a_paused_flow_pauses_as_long(given: Given) -> None:
    until = datetime.now(UTC) + SOON
    flow_run = given.flow_run(states.paused(expires_at=until, reschedule=True))
    answer = given.when(given.task_run(states.pending(), flow_run_id=flow_run), states.running())
    assert then(answer) == (REJECT, "PreventRunningTasksFromStoppedFlows", "NotReady")
    assert answer.state is not None
    assert answer.state.time_of("pause_timeout") == until
    assert answer.state.detail("pause_reschedule") is True


def test_a_flow_that_ends_at_the_same_moment_stops_the_task(given: Given) -> None:
    """The state of the flow run is checked in the append, not only before it."""
    flow_run = given.flow_run()
    run = given.task_run(states.pending(), flow_run_id=flow_run)
    opened = given.log.load(OpenTaskRun, run.id)
    change = Change(given.log, opened.state, states.running())
    orchestrate(change, TASK_POLICY)
    assert recorded(opened, change, TaskRunStateSet, TaskRunProposalRefused)
    given.flow_runs.set_state(flow_run, states.completed())
    with pytest.raises(ledger.GuardFailed):
        committed(given.log, opened, change)
    assert then(given.when(run, states.running()))[0] is ABORT


def test_the_flow_run_of_a_task_run_must_exist(given: Given) -> None:
    run = given.task_run(states.pending(), flow_run_id=new_id())
    with pytest.raises(ledger.RunNotFound, match="flow run"):
        given.when(run, states.running())
    assert given.task_runs.get(run.id).state_name == "Pending"


# SecureTaskConcurrencySlots, ReleaseTaskConcurrencySlots


def limited(given: Given, limit: int) -> str:
    """A tag with a limit."""
    tag = f"tag{uuid4().hex}"
    Records(given.log).create("concurrency_limit", {"name": f"tag:{tag}", "limit": limit})
    return tag


def holders(given: Given, tag: str) -> set[str]:
    """Who holds slots of the limit of a tag."""
    (limit,) = Limits(given.log).opened([f"tag:{tag}"])
    return set(limit.state.holdings)


def test_a_running_task_holds_a_slot_of_each_of_its_tags(given: Given) -> None:
    one, two, free = limited(given, 1), limited(given, 2), "tag-without-limit"
    flow_run = given.flow_run()
    first = given.task_run(states.pending(), flow_run_id=flow_run, tags=[one, two, free])
    second = given.task_run(states.pending(), flow_run_id=flow_run, tags=[one, two])
    given.when(first, states.running())
    given.when(first, states.running())  # holds one slot, however often it asks
    assert holders(given, one) == holders(given, two) == {first.id}

    answer = given.when(second, states.running())
    assert then(answer) == (WAIT, "SecureTaskConcurrencySlots", "Pending")
    assert (answer.delay_seconds or 0) >= 1
    assert holders(given, two) == {first.id}  # all or none

    given.when(first, states.completed())
    assert holders(given, one) == holders(given, two) == set()
    assert then(given.when(second, states.running())) == (ACCEPT, None, "Running")
    given.when(second, states.cancelling())
    assert holders(given, one) == {second.id}
    given.when(second, states.cancelled(), force=True)
    assert holders(given, one) == set()


def test_a_limit_of_zero_aborts(given: Given) -> None:
    run = given.task_run(states.pending(), flow_run_id=given.flow_run(), tags=[limited(given, 0)])
    assert then(given.when(run, states.running()))[:2] == (ABORT, "SecureTaskConcurrencySlots")


def test_a_slot_is_not_taken_where_a_later_rule_lets_the_run_wait(given: Given) -> None:
    tag = limited(given, 1)
    run = given.task_run(states.scheduled(datetime.now(UTC) + SOON), flow_run_id=given.flow_run(), tags=[tag])
    assert then(given.when(run, states.running())) == (WAIT, "WaitForScheduledTime", "Scheduled")
    assert holders(given, tag) == set()


def test_clients_that_take_slots_themselves_get_none_here(given: Given) -> None:
    tag = limited(given, 1)
    run = given.task_run(states.pending(), flow_run_id=given.flow_run(), tags=[tag])
    change = Change(given.log, run, states.running())
    orchestrate(change, CLIENT_SIDE_TASK_POLICY)
    assert (change.status, change.rule) == (ACCEPT, None)
    assert [one.stream for one in change.appends if isinstance(one, ledger.Append)] == [
        f"flow_run/{run.flow_run_id}"
    ]


# CacheRetrieval, CacheInsertion


def test_a_cached_state_is_taken_over(given: Given) -> None:
    key, flow_run = uuid4().hex, given.flow_run()
    cached = {"cache_key": key}
    first = given.task_run(states.running(), flow_run_id=flow_run)
    given.when(first, states.completed(data=RESULT, message="done", state_details=cached))
    second = given.task_run(states.pending(), flow_run_id=flow_run)
    answer = given.when(second, states.running(state_details=cached))
    assert then(answer) == (REJECT, "CacheRetrieval", "Cached")
    assert answer.state is not None
    assert (answer.state.data, answer.state.message) == (RESULT, "done")
    assert answer.state.detail("task_run_id") == second.id
    assert answer.state.id not in {one.id for one in given.task_runs.states(first.id)}


def test_a_cache_is_not_asked_where_it_shall_be_refreshed_or_has_expired(given: Given) -> None:
    key, flow_run = uuid4().hex, given.flow_run()
    past = (datetime.now(UTC) - SOON).isoformat()
    first = given.task_run(states.running(), flow_run_id=flow_run)
    given.when(first, states.completed(state_details={"cache_key": key, "cache_expiration": past}))
    for asked in ({"cache_key": key}, {"cache_key": key, "refresh_cache": True}, {}):
        run = given.task_run(states.pending(), flow_run_id=flow_run)
        assert then(given.when(run, states.running(state_details=asked)))[0] is ACCEPT


def test_of_cached_states_the_newest_that_lasts_is_taken(given: Given) -> None:
    key, now = uuid4().hex, datetime.now(UTC)
    opened = cached_states(given.log, key)
    for name, expires in (
        ("ever", None),
        ("hour", now + timedelta(hours=1)),
        ("minute", now + timedelta(minutes=1)),
    ):
        details = {"cache_expiration": expires}
        opened.put(key, "t", State.of({"type": "COMPLETED", "name": name, "state_details": details}))
    given.log.commit(opened)
    found = cached_states(given.log, key).state
    seen = [found.newest(now + timedelta(minutes=minutes)) for minutes in (0, 2, 100)]
    assert [one and one.name for one in seen] == ["minute", "hour", "ever"]
    opened.put(key, "t", states.completed(name="last"))
    assert len(opened.state.states) == 1  # it never expires, so that no older one is needed


def test_a_cache_key_that_is_too_long_is_rejected_and_not_cached(given: Given) -> None:
    key = "k" * 2001
    run = given.task_run(states.running())
    answer = given.when(run, states.completed(state_details={"cache_key": key}))
    assert then(answer) == (REJECT, "CacheInsertion", "Completed")
    assert cached_states(given.log, key).version == 0
    long = "k" * 2000
    given.when(given.task_run(states.running()), states.completed(state_details={"cache_key": long}))
    assert cached_states(given.log, long).version > 0


# RetryFailedTasks, RenameReruns, WaitForScheduledTime, CopyScheduledTime


def test_a_failed_run_is_retried_as_often_as_its_policy_says(given: Given) -> None:
    policy = {"retries": 2, "retry_delay": [0, 0.001]}
    run = given.task_run(states.pending(), flow_run_id=given.flow_run(), empirical_policy=policy)
    names = []
    for _ in range(3):
        names.append(then(given.when(run, states.running()))[2])
        last = given.when(run, states.failed(message="why", data={"n": 1}))
        names.append(last.state and last.state.name)
    assert names == ["Running", "AwaitingRetry", "Retrying", "AwaitingRetry", "Retrying", "Failed"]
    history = given.task_runs.states(run.id)
    assert (history[2].message, history[2].data) == ("why", {"n": 1})
    assert given.task_runs.get(run.id).run_count == 3


@pytest.mark.parametrize(
    ("attempt", "policy", "least", "most"),
    [
        (1, {"retries": 9, "retry_delay": 20}, 20, 20),
        (2, {"retries": 9, "retry_delay": [10, 40]}, 40, 40),
        (5, {"retries": 9, "retry_delay": [10, 40]}, 40, 40),
        (1, {"retries": 9, "retry_delay": 100, "retry_jitter_factor": 0.5}, 50, 150),
        (1, {"retries": 9, "retry_delay": 100, "retry_jitter_factor": 3}, 0, 400),
    ],
)
def test_the_delay_before_a_retry(
    given: Given, attempt: int, policy: dict[str, Any], least: float, most: float
) -> None:
    moves = [states.running(), states.awaiting_retry()] * (attempt - 1)
    run = given.task_run(*moves, states.running(), empirical_policy=policy)
    before = datetime.now(UTC)
    answer = given.when(run, states.failed())
    assert answer.state is not None
    assert answer.state.scheduled_time is not None
    seconds = (answer.state.scheduled_time - before).total_seconds()
    assert least <= seconds <= most + 5


def test_a_run_that_its_client_calls_not_retriable_fails(given: Given) -> None:
    run = given.task_run(states.running(), empirical_policy={"retries": 2})
    assert then(given.when(run, states.failed(state_details={"retriable": False}))) == (
        ACCEPT,
        None,
        "Failed",
    )


def test_a_further_attempt_is_renamed(given: Given) -> None:
    run = given.task_run(states.running(), states.pending())
    assert then(given.when(run, states.running())) == (ACCEPT, None, "Rerunning")


def test_a_run_waits_for_its_time_and_keeps_it(given: Given) -> None:
    at = datetime.now(UTC) + SOON
    run = given.task_run(states.scheduled(at))
    assert details(given.when(run, states.pending()).state)["scheduled_time"] == at.isoformat().replace(
        "+00:00", "Z"
    )
    answer = given.when(run, states.running())
    assert then(answer) == (WAIT, "WaitForScheduledTime", "Pending")
    assert 25 <= (answer.delay_seconds or 0) <= 30


# Background tasks


def test_one_worker_gets_a_deferred_run(given: Given) -> None:
    deferred = {"deferred": True}
    scheduled = states.scheduled(state_details={**deferred, "task_parameters_id": new_id()})
    run = given.task_run(scheduled)
    pending = states.pending(state_details=deferred)
    first = given.when(run, pending)
    assert then(first) == (ACCEPT, None, "Pending")
    assert details(first.state)["task_parameters_id"] == details(scheduled)["task_parameters_id"]
    assert then(given.when(run, pending)) == (ABORT, "PreventPendingTransitions", "Pending")


def test_a_deferred_run_that_is_retried_is_deferred_again(given: Given) -> None:
    kept = {"deferred": True, "task_parameters_id": new_id()}
    run = given.task_run(states.running(state_details=kept), empirical_policy={"retries": 1})
    again = given.when(run, states.failed()).state
    assert again is not None
    assert again.name == "AwaitingRetry"
    assert {name: again.detail(name) for name in kept} == kept


# The rest


def test_a_persisted_result_becomes_an_artifact_of_the_task_run(given: Given) -> None:
    run = given.task_run(states.running())
    key = f"report-{uuid4().hex}"
    given.when(run, states.completed(data={"artifact_key": key, "artifact_type": "result", "n": 1}))
    assert Artifacts(given.log).latest(key).fields["task_run_id"] == run.id


def test_the_policies_read_as_the_spec_does() -> None:
    def names(policy: Any) -> list[str]:
        return [rule.__name__ for rule in policy]

    assert names(TASK_POLICY) == [
        "PreventDuplicateTransitions",
        "CacheRetrieval",
        "HandleTaskTerminalStateTransitions",
        "PreventRunningTasksFromStoppedFlows",
        "SecureTaskConcurrencySlots",
        "CopyScheduledTime",
        "WaitForScheduledTime",
        "RetryFailedTasks",
        "RenameReruns",
        "UpdateFlowRunTrackerOnTasks",
        "CacheInsertion",
        "ReleaseTaskConcurrencySlots",
        "StorePersistedResult",
        "StampStateDetails",
    ]
    assert SecureTaskConcurrencySlots not in CLIENT_SIDE_TASK_POLICY
    assert names(BACKGROUND_TASK_POLICY)[:2] == ["PreventDuplicateTransitions", "PreventPendingTransitions"]
    assert "ReleaseTaskConcurrencySlots" in names(MINIMAL_TASK_POLICY)
