"""Law: whatever is proposed, no accepted move of a flow run breaks the policy (spec 4.6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.runs import Change, FlowRun, OpenFlowRun, State, StateType, Verdict, orchestrate, states
from ledger.runs.flow_rules import FLOW_POLICY
from ledger.runs.flow_run import FlowRunProposalRefused, FlowRunStateSet
from ledger.runs.orchestration import recorded
from tests.runs.given_runs import flow_run, in_seconds

SCHEDULED, PENDING, RUNNING = StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING
COMPLETED, CANCELLED, CRASHED = StateType.COMPLETED, StateType.CANCELLED, StateType.CRASHED
PAUSED, CANCELLING = StateType.PAUSED, StateType.CANCELLING
RESULT = {"type": "reference", "storage_key": "k"}

PROPOSALS = {
    "scheduled": states.scheduled,
    "scheduled for later": lambda: states.scheduled(in_seconds(3600)),
    "late": states.late,
    "pending": states.pending,
    "submitting": states.submitting,
    "running": states.running,
    "paused": lambda: states.paused(key="here"),
    "paused too long": lambda: states.paused(expires_at=in_seconds(-1)),
    "suspended": states.suspended,
    "resuming": states.resuming,
    "cancelling": states.cancelling,
    "cancelled": states.cancelled,
    "completed": states.completed,
    "completed with a result": lambda: states.completed(data=RESULT),
    "failed": states.failed,
    "crashed": states.crashed,
}


@dataclass
class Walk:
    """A run that is moved by proposals, without a database."""

    opened: OpenFlowRun

    def propose(self, proposed: State) -> tuple[FlowRun, Change[FlowRun]]:
        """The run before the proposal, and what became of it."""
        run = self.opened.state
        change = Change[FlowRun](None, run, proposed)  # type: ignore[arg-type]  # no rule reads here
        orchestrate(change, FLOW_POLICY)
        assert change.error is None
        recorded(self.opened, change, FlowRunStateSet, FlowRunProposalRefused)
        return run, change


def _broken(run: FlowRun, change: Change[FlowRun]) -> str | None:
    """The rule of the spec that an accepted move broke."""
    before, after = run.state, change.proposed
    if before is None or after is None:
        return None
    started_early = before.scheduled_time is not None and before.scheduled_time > datetime.now(UTC)
    rules = {
        "over is over": before.is_terminal and after.type in {CANCELLING, PAUSED, CRASHED},
        "a result is kept": before.has_result
        and before.type is COMPLETED
        and (not after.is_terminal or (after.type is COMPLETED and not after.has_result)),
        "no schedule without a deployment": before.is_terminal and after.type is SCHEDULED,
        "cancelling ends as cancelled": before.type is CANCELLING and after.type is not CANCELLED,
        "pending is claimed once": after.type is PENDING
        and (
            before.type in {RUNNING, CANCELLING, CANCELLED}
            or (before.type is PENDING and after.name in {"Pending", before.name})
        ),
        "late comes once": after.name == "Late" and (before.type is not SCHEDULED or before.name == "Late"),
        "pauses begin while it runs": after.type is PAUSED and before.type is not RUNNING,
        "a pause fires once": after.detail("pause_key") is not None
        and after.detail("pause_key") in run.empirical_policy.pause_keys,
        "suspended only with a deployment": after.name == "Suspended",
        "nothing runs early": after.type is RUNNING and before.type in {SCHEDULED, PENDING} and started_early,
        "no more retries than allowed": after.name == "AwaitingRetry"
        and run.run_count > (run.empirical_policy.retries or 0),
    }
    return next((name for name, broken in rules.items() if broken), None)


@settings(max_examples=60, deadline=None)
@given(
    retries=st.none() | st.integers(0, 2),
    pid=st.none() | st.just("7"),
    proposals=st.lists(st.sampled_from(sorted(PROPOSALS)), max_size=15),
)
def test_law_no_accepted_move_breaks_the_policy(
    retries: int | None, pid: str | None, proposals: list[str]
) -> None:
    walk = Walk(flow_run(empirical_policy={"retries": retries}, infrastructure_pid=pid))
    for name in proposals:
        run, change = walk.propose(PROPOSALS[name]())
        assert _broken(run, change) is None, name
        written = walk.opened.state.state is not run.state
        assert written == (change.proposed is not None)
        assert change.status is not Verdict.ACCEPT or written
    assert walk.opened.state.run_count == _entries(walk.opened.news)


def _entries(facts: list[Any]) -> int:
    """How often the run was entered, by the facts: not where it went on after a pause."""
    moves = [fact for fact in facts if isinstance(fact, FlowRunStateSet)]
    return sum(
        fact.status == "running"
        and (nth == 0 or moves[nth - 1].status != "running")
        and not _resumes(moves, fact)
        for nth, fact in enumerate(moves)
    )


def _resumes(facts: list[FlowRunStateSet], fact: FlowRunStateSet) -> bool:
    """Whether a run was paused since it last ran or ended."""
    for earlier in reversed(facts[: facts.index(fact)]):
        if earlier.status in {"running", "completed", "failed", "crashed", "cancelled"}:
            return False
        if earlier.status == "paused":
            return True
    return False


def test_the_law_sees_a_broken_policy() -> None:
    run = flow_run(states.cancelling()).state
    change = Change[FlowRun](None, run, states.running())  # type: ignore[arg-type]
    orchestrate(change, [])
    assert _broken(run, change) == "cancelling ends as cancelled"
