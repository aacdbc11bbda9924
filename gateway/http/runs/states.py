"""States as clients propose them, the answers to proposals, and the histories of states."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from ledger.errors import RunNotFound
from ledger.runs.orchestration import Answer, Verdict
from ledger.runs.states import State
from projections.runs.event_filters import EventFilter

from ..problems import Refusal
from .bodies import Body
from .calls import Call, Reply, Routes

ROUTES = Routes("")


class ProposedState(Body):
    """A state as a client proposes it. Its id and its time are the server's."""

    type: str
    name: str | None = None
    message: str | None = None
    data: Any = None
    state_details: dict[str, Any] | None = None

    def state(self) -> State:
        """The state. Raises BadInput."""
        given = {"type": self.type, "name": self.name, "message": self.message, "data": self.data}
        return State.of({**given, "state_details": self.state_details or {}})


class Proposal(Body):
    """A state that is proposed. force: most rules do not apply."""

    state: ProposedState
    force: bool = False


def replied(answer: Answer[Any]) -> Reply:
    """The verdict on a proposal; 201 if a state was recorded."""
    return Reply(verdict(answer), 201 if answer.written else 200)


def verdict(answer: Answer[Any]) -> dict[str, Any]:
    """The verdict on a proposal as JSON; of a wait, whole seconds: clients take no fractions."""
    status, details = answer.status, {"type": f"{answer.status.lower()}_details"}
    told: dict[str, Any] = dict(details)
    if status is not Verdict.ACCEPT:
        told["reason"] = answer.reason
    if status is Verdict.WAIT:
        told["delay_seconds"] = ceil(answer.delay_seconds or 0)
    state = None if answer.state is None else answer.state.shown()
    return {"state": state, "status": status, "details": told}


@ROUTES.get("/flow_run_states/")
def of_flow_run(call: Call) -> Any:
    """The states of a flow run (the parameter flow_run_id), the oldest first; none of an unknown run."""
    return _states(call.services.flow_runs.states, _wanted(call, "flow_run_id"))


@ROUTES.get("/task_run_states/")
def of_task_run(call: Call) -> Any:
    """The states of a task run (the parameter task_run_id), the oldest first; none of an unknown run."""
    return _states(call.services.task_runs.states, _wanted(call, "task_run_id"))


@ROUTES.get("/flow_run_states/{id:uuid}")
def state_of_flow_run(call: Call, id: str) -> Any:
    """One state of a flow run, by its own id."""
    return _state(call, id, "prefect.flow-run.", call.services.flow_runs.states)


@ROUTES.get("/task_run_states/{id:uuid}")
def state_of_task_run(call: Call, id: str) -> Any:
    """One state of a task run, by its own id."""
    return _state(call, id, "prefect.task-run.", call.services.task_runs.states)


def _states(states: Callable[[str], list[State]], id: str) -> list[dict[str, Any]]:
    try:
        return [one.shown() for one in states(id)]
    except RunNotFound:
        return []


def _state(call: Call, id: str, kind: str, states: Callable[[str], list[State]]) -> dict[str, Any]:
    """The state of this id, found by its event, whose id is the same. Raises Refusal."""
    events = call.services.events.read(EventFilter(ids=(id,)), limit=1).events
    resource = events[0]["resource"]["prefect.resource.id"] if events else ""
    if resource.startswith(kind):
        for state in states(resource.removeprefix(kind)):
            if state.id == id:
                return state.shown()
    raise Refusal(404, "NotThere", f"no state has the id {id}")


def _wanted(call: Call, name: str) -> str:
    if not (id := call.query.get(name)):
        raise Refusal(422, "InvalidRequest", f"the parameter {name} is missing")
    return id
