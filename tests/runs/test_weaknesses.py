"""Weaknesses of Prefect's server (spec 4.8) that flow runs of the ledger do not have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ledger
from ledger.domain.frozen import changed
from ledger.domain.state import dump, load
from ledger.runs import FlowRun, FlowRuns, OpenFlowRun, State, StateType, Verdict, states
from ledger.runs.flow_run import FlowRunStateSet
from ledger.runs.json_values import new_id
from tests.runs.given_runs import BEGIN, decided, flow_run, in_seconds, names, state_set

LONG_AGO, FAR_AWAY = datetime(2001, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)


@pytest.fixture
def runs(shared: ledger.Ledger) -> FlowRuns:
    return FlowRuns(shared)


def claimed(kind: str, at: datetime) -> State:
    return State.of({"type": kind, "timestamp": at})


def test_w3_02_the_order_is_that_of_the_log_and_never_a_time(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=claimed("PENDING", FAR_AWAY))
    runs.set_state(run.id, claimed("RUNNING", LONG_AGO))
    answer = runs.set_state(run.id, claimed("COMPLETED", LONG_AGO))  # the same time: no clash either
    assert names(runs.states(run.id)) == ["Pending", "Running", "Completed"]
    assert [state.timestamp for state in runs.states(run.id)] == [FAR_AWAY, LONG_AGO, LONG_AGO]
    assert answer.run.state_name == "Completed"
    recorded = runs.ledger.read(OpenFlowRun.name_of(run.id))
    assert all(datetime.now(UTC) - one.recorded_at < timedelta(minutes=1) for one in recorded)


_TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_MOVES = st.lists(st.tuples(st.sampled_from(StateType), _TIMES), max_size=12)


@settings(max_examples=30, deadline=None)
@given(_MOVES)
def test_w3_02_no_clock_makes_a_run_time_negative(moves: list[tuple[StateType, datetime]]) -> None:
    run = flow_run(*(claimed(kind, at) for kind, at in moves)).state
    assert run.total_run_time >= timedelta(0)
    assert run.estimated_run_time() >= run.total_run_time
    assert run.estimated_start_time_delta() >= timedelta(0)


def test_w3_03_a_repeated_proposal_uses_up_no_retry(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.pending(), empirical_policy={"retries": 1})
    for _ in range(4):  # without a transition id, as an old client that got no answer
        assert runs.set_state(run.id, states.running()).status is Verdict.ACCEPT
    assert runs.get(run.id).run_count == 1
    assert runs.set_state(run.id, states.failed()).run.state_name == "AwaitingRetry"


def test_w3_03_a_repeat_is_known_also_when_it_is_not_the_last_one(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.pending(), empirical_policy={"retries": 1})
    running, failed = (
        State.of({"type": kind, "state_details": {"transition_id": new_id()}})
        for kind in ("RUNNING", "FAILED")
    )
    runs.set_state(run.id, running)
    first = runs.set_state(run.id, failed)
    assert first.run.state_name == "AwaitingRetry"
    for late in (failed, running):  # Prefect would fail the run for good, or begin the retry
        answer = runs.set_state(run.id, late)
        assert (answer.status, answer.written, answer.state) == (Verdict.REJECT, False, first.state)


def test_w3_06_a_forced_move_is_seen_in_the_log(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    with ledger.acting(actor="ada"):
        runs.set_state(run.id, states.completed(message="checked by hand"), force=True)
    last = runs.ledger.read(OpenFlowRun.name_of(run.id))[-1]
    fact = last.event
    assert isinstance(fact, FlowRunStateSet)
    assert (fact.forced, fact.state["message"], last.meta.actor) == (True, "checked by hand", "ada")


def test_w3_06_moves_at_the_same_time_are_decided_one_after_the_other(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running(), empirical_policy={"retries": 2})
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: runs.set_state(run.id, states.failed()), range(4)))
    versions = [
        fact for fact in runs.ledger.read(OpenFlowRun.name_of(run.id)) if fact.topic == "flow_run.state_set"
    ]
    assert len(versions) == 1 + sum(answer.written for answer in answers)
    assert [answer.status for answer in answers].count(Verdict.REJECT) == 1  # one retry, from RUNNING


def test_w3_09_no_run_starts_early(shared: ledger.Ledger) -> None:
    for early in (0.001, 0.4, 0.5, 1.0, 1.49):
        change = decided(shared, flow_run(states.scheduled(in_seconds(early))), states.running())
        if change.status is Verdict.ACCEPT:  # the time has come meanwhile
            assert early < 0.4
            continue
        assert change.status is Verdict.WAIT
        assert change.delay_seconds is not None
        assert change.delay_seconds >= 1


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 1e6))
def test_w3_09_who_waits_as_told_is_not_early(early: float) -> None:
    at = in_seconds(early)
    change = decided(None, flow_run(states.scheduled(at)), states.running())  # type: ignore[arg-type]
    assert change.delay_seconds is not None
    assert in_seconds(change.delay_seconds) >= at


ENDS = (states.cancelled(), states.cancelling(), states.crashed())


@pytest.mark.parametrize("to", ENDS, ids=[one.name for one in ENDS])
def test_w3_09_a_paused_run_can_be_ended_after_its_timeout(runs: FlowRuns, to: State) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    runs.set_state(run.id, states.paused(expires_at=in_seconds(-1)))
    assert runs.set_state(run.id, to).run.state_name == to.name


def test_w3_11_a_change_of_an_end_is_recorded_with_who_and_why(runs: FlowRuns) -> None:
    run, _ = runs.create(new_id(), state=states.running())
    ended = runs.set_state(run.id, states.failed(message="no disk")).run
    with ledger.acting(actor="ada"):
        after = runs.set_state(run.id, states.completed(message="the disk was full, the result is there")).run
    last = runs.ledger.read(OpenFlowRun.name_of(run.id))[-1]
    fact = last.event
    assert isinstance(fact, FlowRunStateSet)
    assert fact.initial is not None
    assert (fact.initial["name"], fact.state["name"]) == ("Failed", "Completed")
    assert (last.meta.actor, fact.state["message"]) == ("ada", "the disk was full, the result is there")
    assert after.end_time == ended.end_time
    assert names(runs.states(run.id)) == ["Running", "Failed", "Completed"]


# Laws of the fields that follow from the states


@settings(max_examples=30, deadline=None)
@given(_MOVES)
def test_law_run_count_counts_entries(moves: list[tuple[StateType, datetime]]) -> None:
    kinds = [None, *(kind for kind, _ in moves)]
    entries = sum(
        kind is StateType.RUNNING and before is not StateType.RUNNING for before, kind in pairwise(kinds)
    )
    assert flow_run(*(claimed(kind, at) for kind, at in moves)).state.run_count == entries


@settings(max_examples=30, deadline=None)
@given(_MOVES, st.integers(0, 12))
def test_law_a_stored_state_goes_on_as_the_fold_from_nothing(
    moves: list[tuple[StateType, datetime]], cut: int
) -> None:
    """A head that was stored after any fact and read again leads to the same state as folding all facts."""
    given_states = [claimed(kind, at) for kind, at in moves]
    whole, opened = flow_run(*given_states), flow_run()
    for nth, state in enumerate(given_states):
        opened.replay(state_set(state), BEGIN + timedelta(seconds=nth + 1))
        if nth == cut:
            opened.state = load(FlowRun, dump(opened.state))
    own = {"id": whole.state.id, "flow_id": whole.state.flow_id}
    assert changed(opened.state, **own) == whole.state


@settings(max_examples=30, deadline=None)
@given(_MOVES)
def test_law_derived_fields_are_those_of_the_last_state(moves: list[tuple[StateType, datetime]]) -> None:
    run = flow_run(*(claimed(kind, at) for kind, at in moves)).state
    if not moves:
        assert run.state is None
        return
    kind, at = moves[-1]
    assert (run.state_type, run.state_timestamp, run.status) == (kind, at, kind.value.lower())
    assert (run.end_time is not None) == (run.state is not None and run.state.is_terminal)
    assert (run.next_scheduled_start_time is not None) == (kind is StateType.SCHEDULED)
    assert run.expected_start_time is not None
