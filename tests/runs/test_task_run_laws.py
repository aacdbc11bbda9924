"""Laws of task runs under the rules: slots are held by those that run, and a head is the fold of events."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ledger
from ledger.runs import FlowRuns, OpenTaskRun, State, StateType, TaskRuns, Verdict, states
from ledger.runs.json_values import new_id
from ledger.runs.limits import Limits
from ledger.runs.records import Records

PROPOSED = st.sampled_from([StateType.PENDING, *[StateType.RUNNING] * 3, *StateType])
HELD_IN = {StateType.RUNNING, StateType.CANCELLING}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), PROPOSED, st.integers(0, 3).map(lambda n: n == 0)), max_size=9))
def test_slots_are_held_by_those_that_run_and_heads_are_folds(
    shared: ledger.Ledger, moves: list[tuple[int, StateType, bool]]
) -> None:
    tag, runs, limits = f"tag{uuid4().hex}", TaskRuns(shared), Limits(shared)
    Records(shared).create("concurrency_limit", {"name": f"tag:{tag}", "limit": 2})
    flow_run, _ = FlowRuns(shared).create(new_id(), state=states.running())
    given = {"flow_run_id": flow_run.id, "tags": [tag], "empirical_policy": {"retries": 1}}
    ids = [runs.create("sum", str(nth), **given)[0].id for nth in range(3)]
    for nth, kind, force in moves:
        before = runs.get(ids[nth])
        answer = runs.set_state(ids[nth], State.of({"type": kind}), force=force)
        (limit,) = limits.opened([f"tag:{tag}"])
        holding = set(limit.state.holdings)
        after = answer.run
        assert len(holding) <= 2
        assert holding <= {id for id in ids if runs.get(id).state_type in HELD_IN}
        if kind is StateType.RUNNING and answer.status is Verdict.ACCEPT and not force:
            assert ids[nth] in holding
        if not answer.written:
            assert (after.state, after.run_count) == (before.state, before.run_count)
        assert after.total_run_time >= before.total_run_time
    for id in ids:
        recorded = shared.read(OpenTaskRun.name_of(id))
        folded = OpenTaskRun(id, past=[(one.event, one.recorded_at) for one in recorded])
        assert folded.state == shared.load(OpenTaskRun, id).state
