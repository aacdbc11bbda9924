"""
The frames that clients send to /events/in, read: reports of states of task runs, and all other events.

A frame is an event in Prefect's JSON form (spec 2.3):

    {id, occurred, event, resource: {"prefect.resource.id": …}, related: […], payload: {…}, follows}

An event `prefect.task-run.*` with the label `prefect.orchestration: client` says that a client set a state of
a task run that it orchestrates itself; its payload has the state, and the fields of the task run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..errors import BadInput, shown
from . import fields
from .json_values import checked_uuid, kept, time_text
from .run_event import RunEventReceived
from .states import State
from .task_run import CLAIMS, Report

MAX_NAME: Final = 1024
"""Characters in the name of an event; Prefect's own limit."""
TASK_RUN: Final = "prefect.task-run."
FLOW_RUN: Final = "prefect.flow-run."
"""How the ids of the resources of runs begin; the id of the run follows."""
HEARTBEAT: Final = "prefect.flow-run.heartbeat"
"""The event by which a client says that it still executes a flow run."""
_KEPT: Final = ("name", "task_version", "cache_key", "cache_expiration", "empirical_policy", "tags", "labels",
                "task_inputs", "flow_run_run_count")  # fmt: skip
"""The fields of a task run that a report may change."""
_UNSET: Final[Mapping[str, None]] = {"start_time": None, "end_time": None}
"""Clients leave out what is not set, so these are claimed not to be set where they are left out."""


class Frame(NamedTuple):
    """What every event has. resource_id: the id of the resource that it is about."""

    id: str
    occurred: datetime
    event: str
    resource_id: str
    resource: Mapping[str, str]
    related: Sequence[Mapping[str, str]]
    payload: Mapping[str, Any]
    follows: str | None

    def fact(self) -> RunEventReceived:
        """The fact that it was received."""
        return RunEventReceived(
            id=self.id,
            occurred=time_text(self.occurred),
            event=self.event,
            resource=dict(self.resource),
            related=tuple(map(dict, self.related)),
            payload=kept(self.payload),
            follows=self.follows,
        )


class StateReport(NamedTuple):
    """A client's report of a state of a task run.

    run: fields of the task run, not checked yet. claimed: what the client counted.
    """

    task_run_id: str
    flow_run_id: str | None
    task_key: str
    dynamic_key: str
    state: State
    follows: str | None
    run: Mapping[str, Any]
    claimed: Mapping[str, Any]
    related: Sequence[Mapping[str, str]]

    @property
    def report(self) -> Report:
        """Its place in the order of the client's reports."""
        return Report(self.state.id, self.state.timestamp, self.follows)


def read_frame(given: Any) -> Frame | StateReport:
    """The event in a frame. Raises BadInput for what is malformed."""
    if not isinstance(given, Mapping):
        raise BadInput(f"an event {shown(given)} must be an object")
    name = fields.text(given.get("event"), "event")
    if not 0 < len(name) <= MAX_NAME:
        raise BadInput(f"event {shown(name)} must be a name of 1 to {MAX_NAME} characters")
    resource = _labels(given.get("resource"), "resource")
    follows, payload = given.get("follows"), given.get("payload")
    if payload is not None and not isinstance(payload, Mapping):
        raise BadInput(f"payload {shown(payload)} must be an object")
    frame = Frame(
        checked_uuid(given.get("id")),
        fields.time_read(given.get("occurred"), "occurred"),
        name,
        resource["prefect.resource.id"],
        resource,
        _related(given.get("related")),
        payload or {},
        None if follows is None else checked_uuid(follows),
    )
    of_client = name.startswith(TASK_RUN) and resource.get("prefect.orchestration") == "client"
    return _report(frame) if of_client else frame


def _labels(given: Any, what: str) -> Mapping[str, str]:
    """The labels of a resource. Raises BadInput."""
    if not isinstance(given, Mapping) or not all(type(value) is str for value in given.values()):
        raise BadInput(f"{what} {shown(given)} must be an object of texts")
    if not given.get("prefect.resource.id"):
        raise BadInput(f"{what} {shown(given)} must have the label prefect.resource.id")
    return given


def _related(given: Any) -> Sequence[Mapping[str, str]]:
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        raise BadInput(f"related {shown(given)} must be a list")
    for one in given:
        if not _labels(one, "a related resource").get("prefect.resource.role"):
            raise BadInput(f"a related resource {shown(one)} must have the label prefect.resource.role")
    return given


def _report(frame: Frame) -> StateReport:
    """The report in an event of a task run. Raises BadInput."""
    state, run = frame.payload.get("validated_state"), frame.payload.get("task_run")
    if not isinstance(state, Mapping) or not isinstance(run, Mapping):
        raise BadInput(f"{frame.event} must have validated_state and task_run in its payload")
    flow_run = next((one for one in frame.related if one["prefect.resource.role"] == "flow-run"), None)
    return StateReport(
        _object_id(frame.resource_id, TASK_RUN),
        None if flow_run is None else _object_id(flow_run["prefect.resource.id"], FLOW_RUN),
        fields.text(run.get("task_key"), "task_key"),
        fields.text(run.get("dynamic_key"), "dynamic_key"),
        State.of({**state, "id": frame.id, "timestamp": frame.occurred}),
        frame.follows,
        {name: run[name] for name in _KEPT if run.get(name) is not None},
        {
            **_UNSET,
            **{name: read(run[name], name) for name, read in CLAIMS.items() if run.get(name) is not None},
        },
        frame.related,
    )


def _object_id(resource_id: str, prefix: str) -> str:
    if not resource_id.startswith(prefix):
        raise BadInput(f"resource {shown(resource_id)} must begin with {prefix}")
    return checked_uuid(resource_id[len(prefix) :])
