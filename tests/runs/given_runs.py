"""Flow runs as given: folded from facts, without a database; and proposals decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import ledger
from ledger.runs import Change, FlowRun, OpenFlowRun, State, orchestrate
from ledger.runs.flow_rules import FLOW_POLICY
from ledger.runs.flow_run import FlowRunStateSet
from ledger.runs.json_values import new_id
from ledger.runs.orchestration import Policy

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def state_set(state: State, **more: Any) -> FlowRunStateSet:
    """The fact that a run is in a state."""
    return FlowRunStateSet(status=state.type.lower(), state=state.recorded(), **more)


def flow_run(*states: State, **fields: Any) -> OpenFlowRun:
    """A flow run that was in these states, one each second."""
    opened = OpenFlowRun(new_id())
    opened.create("a-run", new_id(), **fields)
    facts = [*opened.news, *map(state_set, states)]
    return OpenFlowRun(
        *opened.key, past=[(fact, BEGIN + timedelta(seconds=nth)) for nth, fact in enumerate(facts)]
    )


def decided(
    log: ledger.Ledger,
    run: FlowRun | OpenFlowRun,
    proposed: State,
    policy: Policy = FLOW_POLICY,
    **given: Any,
) -> Change[FlowRun]:
    """What a policy makes of a proposal."""
    state = run.state if isinstance(run, OpenFlowRun) else run
    change = Change(log, state, proposed, given=given)
    orchestrate(change, policy)
    return change


def in_seconds(seconds: float) -> datetime:
    """A time from now."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def names(states: Sequence[State]) -> list[str]:
    """The names of states."""
    return [state.name for state in states]
