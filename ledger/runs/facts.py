"""
The shapes of facts that flow runs and task runs share: a state was set, a proposal was refused.

Each shape is the base of two topics, such as `flow_run.state_set` and `task_run.state_set`, declared in
`flow_run.py` and `task_run.py`. Match on the shapes where both need no distinction.
"""

from __future__ import annotations

from typing import Any

from ..domain.event import Event

Json = dict[str, Any]
"""A JSON object; appending checks that it is JSON."""


class RunFact(Event):
    """A fact of a flow run or a task run."""


class StateSet(RunFact):
    """The run is in a new state.

    status: its type in lower case. state: in Prefect's JSON form, without defaults; without a timestamp
    unless the client claimed one. initial: id, type and name of the state before. changes: further fields
    of the run that the rules changed. rule, reason: of the rule that set this state in place of the proposed
    one, whose type and name are in `proposed`. transition_id: of the proposal. forced: by the minimal policy.
    """

    status: str
    state: Json
    initial: Json | None = None
    changes: Json = {}
    rule: str | None = None
    reason: str | None = None
    proposed: Json | None = None
    transition_id: str | None = None
    forced: bool = False


class ProposalRefused(RunFact):
    """A proposed state was refused, and the run stays in the state in which it is.

    verdict: REJECT, WAIT or ABORT (spec S3-26). rule: that refused it, or failed. A WAIT that repeats
    another one of the same state is not recorded again: clients that wait ask again and again.
    """

    proposed: Json
    verdict: str
    rule: str
    reason: str
    delay_seconds: float | None = None
    initial: Json | None = None
    transition_id: str | None = None
    forced: bool = False
