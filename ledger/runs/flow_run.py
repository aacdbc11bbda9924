"""
A flow run: created with its fields, moved from state to state by rules, changed, deleted.

    (nothing) ──created──▶ (no state) ──state_set──▶ scheduled | pending | running | … ──deleted──▶ deleted

Which state may follow which is decided by the policy (`ledger.runs.flow_rules`), not by the stream. The
fields that follow from the states are computed in `ledger.runs.run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import AwareDatetime

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed, frozen
from ..domain.stream import Stream
from ..errors import RecordExists, RecordNotFound
from . import fields
from .facts import Json, ProposalRefused, RunFact, StateSet
from .json_values import checked_uuid, plain
from .policies import FlowRunPolicy
from .run import MOVES, Run, RunStatus, entered, remembered, shown_time, states_shown
from .states import State, StateType

# Facts: what happened, and the status it leads to.


class FlowRunCreated(RunFact, topic="flow_run.created"):
    """It was created. fields: those of spec 4.2 that were given.

    since: when another system created it, for one that is imported.
    """

    name: str
    flow_id: str
    fields: Json = {}
    since: AwareDatetime | None = None


class FlowRunStateSet(StateSet, topic="flow_run.state_set", to_field="status"): ...


class FlowRunProposalRefused(ProposalRefused, topic="flow_run.proposal_refused"): ...


class FlowRunChanged(RunFact, topic="flow_run.changed"):
    """Some of its fields were changed."""

    fields: Json


class FlowRunInputSet(RunFact, topic="flow_run.input_set"):
    """An input for it was given; it reads inputs by their keys."""

    key: str
    value: str
    sender: str | None = None


class FlowRunInputDeleted(RunFact, topic="flow_run.input_deleted"):
    """An input was deleted."""

    key: str


class FlowRunDeleted(RunFact, topic="flow_run.deleted", to=RunStatus.DELETED):
    """Lists show it no more; its history stays."""


# State: what is true now.


@dataclass(frozen=True, slots=True)
class RunInput:
    """An input of a flow run: JSON text under a key."""

    key: str
    value: str
    sender: str | None
    created: datetime


@dataclass(frozen=True, slots=True)
class FlowRun(Run):
    """The state of a flow run; fields as in spec 4.2, ids as text. inputs: by key, the oldest first."""

    flow_id: str = ""
    deployment_id: str | None = None
    deployment_version: str | None = None
    work_pool_id: str | None = None
    work_pool_name: str | None = None
    work_queue_id: str | None = None
    work_queue_name: str | None = None
    flow_version: str | None = None
    parameters: Mapping[str, Any] = field(default=FrozenDict())
    idempotency_key: str | None = None
    context: Mapping[str, Any] = field(default=FrozenDict())
    empirical_policy: FlowRunPolicy = field(default=FlowRunPolicy())
    created_by: Mapping[str, Any] | None = None
    infrastructure_pid: str | None = None
    infrastructure_document_id: str | None = None
    job_variables: Mapping[str, Any] | None = FrozenDict()
    parent_task_run_id: str | None = None
    auto_scheduled: bool = False
    inputs: tuple[RunInput, ...] = ()


def evolve(run: FlowRun, event: Event, at: datetime) -> FlowRun:
    """Apply a fact. It applies no rules: recorded facts are always accepted."""
    match event:
        case FlowRunCreated():
            first = {"name": event.name, "flow_id": event.flow_id, "created": event.since or at}
            return changed(run, updated=at, **first, **_values(event.fields))
        case FlowRunStateSet():
            return _moved(changed(remembered(run, event), updated=at, **_values(event.changes)), event, at)
        case FlowRunProposalRefused():
            return remembered(run, event)
        case FlowRunChanged():
            return changed(run, updated=at, **_values(event.fields))
        case FlowRunInputSet():
            others = tuple(one for one in run.inputs if one.key != event.key)
            given = RunInput(event.key, event.value, event.sender, at)
            return changed(run, updated=at, inputs=(*others, given))
        case FlowRunInputDeleted():
            left = tuple(one for one in run.inputs if one.key != event.key)
            return changed(run, updated=at, inputs=left)
        case FlowRunDeleted():
            return changed(run, updated=at, status=str(event.to))
        case _:
            return run


def _moved(run: FlowRun, event: FlowRunStateSet, at: datetime) -> FlowRun:
    """In its new state. A run that resumes goes on with the same run: it is not counted again."""
    state = State.of(event.state, at)
    policy = run.empirical_policy
    moved = entered(run, state, counts=not policy.resuming)
    if policy.resuming and (state.type is StateType.RUNNING or state.is_terminal):
        return changed(moved, empirical_policy=changed(policy, resuming=False))
    return moved


# Fields that clients give.


def _policy(value: Any, _name: str) -> Any:
    given = value if isinstance(value, FlowRunPolicy) else FlowRunPolicy.of(value)
    return given.shown()


_GIVEN: Final[Mapping[str, fields.Reader]] = {
    "name": fields.text,
    "deployment_id": fields.uuid,
    "deployment_version": fields.text,
    "work_pool_id": fields.uuid,
    "work_pool_name": fields.text,
    "work_queue_id": fields.uuid,
    "work_queue_name": fields.text,
    "flow_version": fields.text,
    "parameters": fields.json_object,
    "idempotency_key": fields.text,
    "context": fields.json_object,
    "empirical_policy": _policy,
    "tags": fields.texts,
    "labels": fields.json_object,
    "created_by": fields.json_object,
    "infrastructure_pid": fields.text,
    "infrastructure_document_id": fields.uuid,
    "job_variables": fields.json_object,
    "parent_task_run_id": fields.uuid,
    "auto_scheduled": fields.flag,
}
"""The fields that may be given, and how each is read."""


def fields_read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Given fields as facts keep them; None takes a field away. Raises BadInput for an unknown one."""
    return fields.read_fields(_GIVEN, given, "flow run")


def _values(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The values of recorded fields in the state. A field that was taken away gets its default."""
    values = {}
    for name, value in recorded.items():
        if name == "empirical_policy":
            values[name] = FlowRunPolicy.of(value)
        elif value is None:
            values[name] = getattr(_NEW, name)
        else:
            values[name] = frozen(value)
    return values


_NEW: Final = FlowRun()


# Decisions: what may happen next.


class OpenFlowRun(Stream[FlowRun, Event]):
    """A flow run open for change; its key is its id, a UUID in lower case."""

    CATEGORY, MOVES, STATE, STATE_SCHEMA = "flow_run", MOVES, FlowRun, 1
    evolve = staticmethod(evolve)

    @classmethod
    def initial(cls, *key: str | int) -> FlowRun:
        return FlowRun(id=str(key[0]) if key else "")

    @property
    def is_there(self) -> bool:
        """Whether it was created, and not deleted since."""
        return self.state.created is not None and not self.state.is_deleted

    def create(self, name: str, flow_id: str, *, since: datetime | None = None, **given: Any) -> None:
        """Create it; `given` are fields of spec 4.2, since as in FlowRunCreated. Raises BadInput."""
        kept = {key: value for key, value in fields_read(given).items() if value is not None}
        self.record(FlowRunCreated(name=name, flow_id=checked_uuid(flow_id), fields=kept, since=since))

    def change(self, **given: Any) -> None:
        """Change some of its fields. Raises BadInput."""
        self.record(FlowRunChanged(fields=fields_read(given)))

    def set_input(self, key: str, value: str, sender: str | None = None) -> None:
        """Give it an input under a new key. Raises RecordExists where the key has one already."""
        if any(one.key == key for one in self.state.inputs):
            raise RecordExists("flow_run_input", [key], self.state.id)
        self.record(FlowRunInputSet(key=key, value=value, sender=sender))

    def delete_input(self, key: str) -> None:
        """Delete an input. Raises RecordNotFound where there is none."""
        if all(one.key != key for one in self.state.inputs):
            raise RecordNotFound("flow_run_input", key)
        self.record(FlowRunInputDeleted(key=key))

    def delete(self) -> None:
        """Delete it. Raises MoveNotAllowed where it was deleted before."""
        self.record(FlowRunDeleted())


def flow_run_shown(run: FlowRun, now: datetime | None = None) -> dict[str, Any]:
    """Its JSON form, as Prefect's clients read it. now: for the estimates; by default this moment."""
    return {
        "id": run.id,
        "created": shown_time(run.created),
        "updated": shown_time(run.updated),
        **{name: plain(getattr(run, name)) for name in _SHOWN},
        "empirical_policy": run.empirical_policy.shown(),
        "state_id": None if run.state is None else run.state.id,
        **states_shown(run, now or datetime.now(UTC)),
    }


_SHOWN: Final = ("flow_id", *(name for name in _GIVEN if name != "empirical_policy"))
"""The fields that are shown as they are."""
