"""States: what clients may send, what is filled in, what constructors refuse (4.3); policies (4.4)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput
from ledger.domain.state import Pending
from ledger.runs import FlowRunPolicy, State, StateType, TaskRunPolicy, states
from ledger.runs.json_values import new_id

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_s3_21_a_state_is_filled_in() -> None:
    state = State.of({"type": "SCHEDULED"})
    assert state.name == "Scheduled"
    assert state.scheduled_time is not None
    assert abs(datetime.now(UTC) - state.scheduled_time) < timedelta(seconds=5)
    assert isinstance(state.timestamp, Pending)
    assert State.of({"type": "RUNNING"}, AT).timestamp == AT


@pytest.mark.parametrize("kind", StateType)
def test_s3_21_the_name_is_the_type(kind: StateType) -> None:
    assert State.of({"type": kind.value}).name == kind.value.capitalize()


def test_a_state_is_shown_as_prefect_shows_it() -> None:
    shown = State.of({"type": "RUNNING", "timestamp": "2026-03-01 13:00:00+01:00", "unknown": 1}).shown()
    assert shown["timestamp"] == "2026-03-01T12:00:00Z"
    assert set(shown) == {"id", "type", "name", "timestamp", "message", "data", "state_details"}
    assert len(shown["state_details"]) == 18
    assert shown["state_details"]["deferred"] is False


BAD: list[Any] = [
    {},
    {"type": "DONE"},
    {"type": None},
    {"type": ["RUNNING"]},
    {"type": "RUNNING", "id": "7"},
    {"type": "RUNNING", "name": 7},
    {"type": "RUNNING", "message": {}},
    {"type": "RUNNING", "timestamp": "2026-03-01T12:00:00"},
    {"type": "RUNNING", "timestamp": "yesterday"},
    {"type": "RUNNING", "timestamp": 17},
    {"type": "RUNNING", "state_details": []},
    {"type": "RUNNING", "state_details": {"scheduled_time": "soon"}},
    {"type": "RUNNING", "state_details": {"transition_id": "x"}},
    {"type": "PAUSED", "state_details": {"pause_reschedule": "yes"}},
    {"type": "PAUSED", "state_details": {"run_input_keyset": {"schema": 1}}},
    [],
    "RUNNING",
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_what_is_no_state_is_refused(bad: Any) -> None:
    with pytest.raises(BadInput):
        State.of(bad)


def test_s3_03_numbers_that_are_not_json_become_null() -> None:
    assert State.of({"type": "COMPLETED", "data": {"x": [math.nan, 1.5, -math.inf]}}).data == {
        "x": (None, 1.5, None)
    }


def test_s3_24_constructors_refuse_contradictions() -> None:
    with pytest.raises(BadInput):
        states.scheduled(AT, state_details={"scheduled_time": AT})
    with pytest.raises(BadInput):
        states.paused(timeout_seconds=1, expires_at=AT)
    with pytest.raises(BadInput):
        states.paused(timeout_seconds=1, state_details={"pause_timeout": AT})
    with pytest.raises(BadInput):
        states.running(colour="red")


@pytest.mark.parametrize(
    ("state", "kind", "name"),
    [
        (states.scheduled(AT), "SCHEDULED", "Scheduled"),
        (states.late(AT), "SCHEDULED", "Late"),
        (states.awaiting_retry(AT), "SCHEDULED", "AwaitingRetry"),
        (states.awaiting_concurrency_slot(AT), "SCHEDULED", "AwaitingConcurrencySlot"),
        (states.resuming(AT), "SCHEDULED", "Resuming"),
        (states.pending(), "PENDING", "Pending"),
        (states.submitting(), "PENDING", "Submitting"),
        (states.infrastructure_pending(), "PENDING", "InfrastructurePending"),
        (states.running(), "RUNNING", "Running"),
        (states.retrying(), "RUNNING", "Retrying"),
        (states.completed(), "COMPLETED", "Completed"),
        (states.completed("Cached"), "COMPLETED", "Cached"),
        (states.failed(), "FAILED", "Failed"),
        (states.crashed(), "CRASHED", "Crashed"),
        (states.cancelled(), "CANCELLED", "Cancelled"),
        (states.cancelling(), "CANCELLING", "Cancelling"),
        (states.paused(), "PAUSED", "Paused"),
        (states.paused("NotReady"), "PAUSED", "NotReady"),
        (states.suspended(), "PAUSED", "Suspended"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_s3_23_names_in_use(state: State, kind: str, name: str) -> None:
    assert (state.type, state.name) == (kind, name)
    assert state.is_terminal == (kind in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})


def test_a_suspended_run_is_scheduled_again() -> None:
    assert states.suspended(timeout_seconds=60).detail("pause_reschedule") is True
    assert states.paused(expires_at=AT).time_of("pause_timeout") == AT


def test_s3_25_a_fresh_copy_has_an_id_and_a_time_of_its_own() -> None:
    state = State.of({"type": "FAILED", "message": "no", "data": {"a": 1}, "timestamp": AT, "id": new_id()})
    copy = state.fresh_copy()
    assert (copy.type, copy.name, copy.message, copy.data) == (state.type, state.name, "no", {"a": 1})
    assert copy.id != state.id
    assert copy.timestamp > state.timestamp


_DETAILS = st.fixed_dictionaries(
    {},
    optional={
        "flow_run_id": st.uuids().map(str),
        "scheduled_time": st.datetimes(timezones=st.just(UTC)).map(str),
        "cache_key": st.text(),
        "deferred": st.booleans(),
        "pause_reschedule": st.booleans(),
        "retriable": st.booleans(),
        "run_input_keyset": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        "no_such_detail": st.integers(),
    },
)


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(StateType), details=_DETAILS, message=st.none() | st.text())
def test_a_state_is_read_back_as_it_was_recorded(
    kind: StateType, details: dict[str, Any], message: str | None
) -> None:
    state = State.of({"type": kind, "message": message, "state_details": details}, AT)
    assert State.of(state.recorded()) == state
    assert State.of(state.shown()) == state


# Policies


def test_s3_30_deprecated_fields_fill_what_is_not_set() -> None:
    policy = FlowRunPolicy.of({"max_retries": 2, "retry_delay_seconds": 3.0})
    assert (policy.retries, policy.retry_delay) == (2, 3)
    policy = FlowRunPolicy.of({"max_retries": 2, "retries": 5})
    assert policy.retries == 5
    assert FlowRunPolicy.of(policy.shown()) == policy


def test_s3_31_a_task_may_have_a_delay_for_each_retry() -> None:
    policy = TaskRunPolicy.of({"retries": 3, "retry_delay": [1, 2.5]})
    assert [policy.delay_before(nth) for nth in (1, 2, 3)] == [1, 2.5, 2.5]
    assert TaskRunPolicy.of({"retry_delay": 4}).delay_before(7) == 4
    assert TaskRunPolicy.of(None).delay_before(1) == 0
    assert TaskRunPolicy.of(policy.shown()) == policy


@pytest.mark.parametrize(
    "bad",
    [
        {"retry_delay": [1] * 51},
        {"retry_jitter_factor": -0.5},
        {"retries": "three"},
        {"retries": True},
        {"retry_delay": "soon"},
        {"retry_delay": ["soon"]},
        ["retries"],
    ],
    ids=str,
)
def test_bad_policies_are_refused(bad: Any) -> None:
    with pytest.raises(BadInput):
        TaskRunPolicy.of(bad)


def test_an_unknown_retry_type_is_refused() -> None:
    with pytest.raises(BadInput):
        FlowRunPolicy.of({"retry_type": "sometimes"})
