"""
A task run: what it is, its states, and what clients report of it (spec 4.2, 4.3).

    (nothing) ──created──▶ (no state) ──state_set──▶ scheduled | pending | running | … ──deleted──▶ deleted

The order of its states is the version of the stream, never a time (spec W3-02). What a client reports of its
own states may come late, after a later report of the same client, because it sends again what was not
confirmed. Such a state is recorded as history, by a fact of its own, and the current state stays: so the
order of the states that were current is still that of the stream. Of two reports of a task run, the one that
the other `follows` is the older; else the one whose claimed time is earlier. Both times are of the clock of
the process that executes the task run. A report is never compared with a state that was set through the API:
there the order of the log decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import AwareDatetime

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed, frozen
from ..domain.stream import Stream
from . import fields
from .facts import Json, ProposalRefused, RunFact, StateSet
from .json_values import plain
from .names import OpenName
from .policies import TaskRunPolicy
from .run import MOVES, Run, RunStatus, entered, remembered, shown_time, states_shown
from .states import State, StateType

HELD: Final = 64
"""How many ids of states the state of a task run keeps; of an older report, the log is asked."""

# Facts: what happened, and the status it leads to.


class TaskRunCreated(RunFact, topic="task_run.created"):
    """It was created. fields: those of spec 4.2 that were given.

    related: the resources that a client's event named with it, as the client sent them.
    since: when another system created it, for one that is imported.
    """

    name: str
    task_key: str
    dynamic_key: str
    fields: Json = {}
    related: tuple[dict[str, str], ...] = ()
    since: AwareDatetime | None = None


class TaskRunStateSet(StateSet, topic="task_run.state_set", to_field="status"):
    """As StateSet. reported: a client reported a state that it set by itself; follows: its event before.

    The id of a reported state is that of the client's event. claimed: fields of the run as the client counted
    them, which it orchestrates itself: run_count, start_time, end_time, total_run_time in seconds.
    """

    reported: bool = False
    follows: str | None = None
    claimed: Json = {}


class TaskRunStateCameLate(RunFact, topic="task_run.state_came_late"):
    """A client reported a state that is older than one that it reported before: it is history only."""

    state: Json
    follows: str | None = None


class TaskRunProposalRefused(ProposalRefused, topic="task_run.proposal_refused"): ...


class TaskRunChanged(RunFact, topic="task_run.changed"):
    """Some of its fields were changed."""

    fields: Json


class TaskRunDeleted(RunFact, topic="task_run.deleted", to=RunStatus.DELETED):
    """Lists show it no more; its history stays. What is reported of it later is history only."""


# State: what is true now.


class Report(NamedTuple):
    """A client's report of a state. at: its claimed time. follows: the report before, if it named one."""

    id: str
    at: datetime
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRun(Run):
    """The state of a task run; fields as in spec 4.2, ids as text.

    held: the ids of the latest states that were set or reported; a client also reports a state that it set
    through the API. newest: the newest report in its client's order.
    """

    flow_run_id: str | None = None
    task_key: str = ""
    dynamic_key: str = ""
    cache_key: str | None = None
    cache_expiration: datetime | None = None
    task_version: str | None = None
    flow_run_run_count: int = 0
    empirical_policy: TaskRunPolicy = field(default=TaskRunPolicy())
    task_inputs: Mapping[str, Any] = field(default=FrozenDict())
    held: tuple[str, ...] = ()
    newest: Report | None = None


def evolve(run: TaskRun, event: Event, at: datetime) -> TaskRun:
    """Apply a fact. It applies no rules: recorded facts are always accepted."""
    match event:
        case TaskRunStateSet():
            return _moved(run, event, at)
        case TaskRunCreated():
            keys = {"name": event.name, "task_key": event.task_key, "dynamic_key": event.dynamic_key}
            return changed(run, created=event.since or at, updated=at, **keys, **_values(event.fields))
        case TaskRunStateCameLate():
            state = State.of(event.state, at)
            return changed(run, updated=at, held=(*run.held, state.id)[-HELD:])
        case TaskRunProposalRefused():
            return remembered(run, event)
        case TaskRunChanged():
            return changed(run, updated=at, **_values(event.fields))
        case TaskRunDeleted():
            return changed(run, updated=at, status=str(event.to))
        case _:
            return run


def _moved(run: TaskRun, event: TaskRunStateSet, at: datetime) -> TaskRun:
    """In its new state. What the client counted itself takes the place of what follows from the states."""
    state = State.of(event.state, at)
    before = remembered(run, event)
    moved = entered(changed(before, **_values(event.changes)) if event.changes else before, state)
    more: dict[str, Any] = {"updated": at, "held": (*run.held, state.id)[-HELD:]}
    if not event.reported:
        return changed(moved, **more)
    claimed = dict(event.claimed)
    if (ran := claimed.pop("total_run_time", None)) is not None:
        since = state.timestamp if state.type is StateType.RUNNING else None
        more |= {"ran": round(ran * 1_000_000), "ran_from": since, "ran_to": None}
    report = Report(state.id, state.timestamp, event.follows)
    return changed(moved, newest=report, **more, **_values(claimed))


def ids_of_run(run: TaskRun) -> dict[str, str]:
    """The details of a state that name its task run and its flow run (spec 4.6)."""
    ids = {"task_run_id": run.id}
    return ids if run.flow_run_id is None else {**ids, "flow_run_id": run.flow_run_id}


def key_of(flow_run_id: str | None, task_key: str, dynamic_key: str) -> OpenName:
    """The unique key of a task run, as a name that was not read yet (spec 4.2, UQ of task_run)."""
    return OpenName("task_run", flow_run_id or "", task_key, dynamic_key)


def is_late(run: TaskRun, report: Report) -> bool:
    """Whether a report is older than the newest one that is held of this run."""
    newest = run.newest
    if newest is None or report.follows == newest.id:
        return False
    return newest.follows == report.id or report.at < newest.at


# Fields that clients give.


def _policy(value: Any, name: str) -> Any:
    """The policy without what is not set: most task runs have none of it."""
    shown = (value if isinstance(value, TaskRunPolicy) else TaskRunPolicy.of(value)).shown()
    return {key: one for key, one in shown.items() if one is not None}


_GIVEN: Final[Mapping[str, fields.Reader]] = {
    "name": fields.text,
    "flow_run_id": fields.uuid,
    "task_key": fields.text,
    "dynamic_key": fields.text,
    "cache_key": fields.text,
    "cache_expiration": fields.time,
    "task_version": fields.text,
    "empirical_policy": _policy,
    "tags": fields.texts,
    "labels": fields.json_object,
    "task_inputs": fields.json_object,
    "flow_run_run_count": fields.count,
}
"""The fields that may be given, and how each is read."""
CLAIMS: Final[Mapping[str, fields.Reader]] = {
    "run_count": fields.count,
    "expected_start_time": fields.time,
    "start_time": fields.time,
    "end_time": fields.time,
    "total_run_time": fields.seconds,
}
"""The fields that a client that orchestrates a task run counts itself."""
_TIMES: Final = frozenset(name for name, reader in {**_GIVEN, **CLAIMS}.items() if reader is fields.time)


def fields_read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Given fields as facts keep them; None takes a field away. Raises BadInput."""
    return fields.read_fields(_GIVEN, given, "task run")


def _values(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The values of recorded fields in the state. A field that was taken away gets its default."""
    values = {}
    for name, value in recorded.items():
        if value is None:
            values[name] = getattr(_NEW, name)
        elif name in _TIMES:
            values[name] = datetime.fromisoformat(value)
        elif name == "empirical_policy":
            values[name] = TaskRunPolicy.of(value)
        else:
            values[name] = frozen(value)
    return values


def changed_fields(run: TaskRun, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given fields, as facts keep them, whose values differ from the run's."""
    values = _values(given)
    return {name: given[name] for name, value in values.items() if getattr(run, name) != value}


_NEW: Final = TaskRun()


# Decisions: what may happen next.


class OpenTaskRun(Stream[TaskRun, Event]):
    """A task run open for change; its key is its id, a UUID in lower case."""

    CATEGORY, MOVES, STATE, STATE_SCHEMA = "task_run", MOVES, TaskRun, 1
    evolve = staticmethod(evolve)

    sent: Mapping[str, Any] | None = None
    """The fields in the latest report that this object took, as the client sent them."""

    @classmethod
    def initial(cls, *key: str | int) -> TaskRun:
        return TaskRun(id=str(key[0]) if key else "")

    @property
    def is_there(self) -> bool:
        """Whether it was created, and not deleted since."""
        return self.state.created is not None and not self.state.is_deleted

    def create(
        self, name: str, task_key: str, dynamic_key: str, *, since: datetime | None = None, **given: Any
    ) -> None:
        """Create it; `given` as in spec 4.2, since as in TaskRunCreated. Raises BadInput."""
        kept = {key: value for key, value in fields_read(given).items() if value is not None}
        self.record(
            TaskRunCreated(name=name, task_key=task_key, dynamic_key=dynamic_key, fields=kept, since=since)
        )

    def change(self, **given: Any) -> None:
        """Change some of its fields. Raises BadInput."""
        self.record(TaskRunChanged(fields=fields_read(given)))

    def delete(self) -> None:
        """Delete it. Raises MoveNotAllowed where it was deleted before."""
        self.record(TaskRunDeleted())


def task_run_shown(run: TaskRun, now: datetime | None = None) -> dict[str, Any]:
    """Its JSON form, as Prefect's clients read it. now: for the estimates; by default this moment."""
    return {
        "id": run.id,
        "created": shown_time(run.created),
        "updated": shown_time(run.updated),
        "name": run.name,
        "flow_run_id": run.flow_run_id,
        "task_key": run.task_key,
        "dynamic_key": run.dynamic_key,
        "cache_key": run.cache_key,
        "cache_expiration": shown_time(run.cache_expiration),
        "task_version": run.task_version,
        "empirical_policy": run.empirical_policy.shown(),
        "tags": list(run.tags),
        "labels": plain(run.labels),
        "state_id": None if run.state is None else run.state.id,
        "task_inputs": plain(run.task_inputs),
        "flow_run_run_count": run.flow_run_run_count,
        **states_shown(run, now or datetime.now(UTC)),
    }
