"""
Prefect's events, derived from the log when they are read: changes of state, and what clients sent.

    events = PrefectEvents(log)
    events.of(batch)                          of what a follower of the log was given
    events.read(EventFilter.of(body))         a page of history

Prefect's own server emits the events of flow runs beside the transaction that changes the state: they may
be lost, or announce what was rolled back (spec W3-08). Here an event is the fact itself in another form: its
id is that of the state, `follows` names the state before, and nothing is stored twice. Events of task runs
are those that their clients sent, and so are all others. They come in the order of the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from psycopg import Cursor, sql
from psycopg.rows import tuple_row

from ledger import Ledger, Recorded
from ledger.domain.names import split_name
from ledger.log.sql import Statements
from ledger.runs.flow_run import FlowRun, FlowRunStateSet, OpenFlowRun
from ledger.runs.json_values import plain, time_text
from ledger.runs.records import OpenRecord, open_class
from ledger.runs.run_event import OpenRunEvents, RunEventReceived
from ledger.runs.states import State, StateType
from ledger.runs.task_run import (
    OpenTaskRun,
    TaskRun,
    TaskRunCreated,
    TaskRunStateCameLate,
    TaskRunStateSet,
    task_run_shown,
)

from .event_filters import ID, ROLE, EventFilter

SQL: Final = Statements(__package__, "prefect_events")

TOPICS: Final = tuple(
    fact.topic for fact in (FlowRunStateSet, TaskRunStateSet, TaskRunStateCameLate, RunEventReceived)
)
"""The topics of facts that may have an event."""
PAGE: Final = 50
"""Events of a page, by default."""
SCANNED: Final = 2000
"""Facts that one page looks at, at most: then it ends, and the next one goes on from there."""
LONGEST: Final = 100_000
"""Characters of a message in an event."""
KEPT_FOR: Final = 60.0
"""Seconds for which the names of flows, deployments, queues and pools are kept."""

Event: TypeAlias = "dict[str, Any]"
Labels: TypeAlias = "dict[str, str]"


class Page(NamedTuple):
    """Events of history; next: where the next page starts, None after the last one."""

    events: list[Event]
    next: int | None


class PrefectEvents:
    """The events of a ledger in Prefect's JSON form. Threads may share it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._kept: dict[str, tuple[float, OpenRecord]] = {}
        self._first: dict[str, TaskRunCreated | None] = {}

    def of(self, facts: Iterable[Recorded], wanted: EventFilter | None = None) -> list[Event]:
        """The events of facts, in their order; facts without an event are left out.

        wanted: only those that it includes, which is cheaper than to choose afterwards.
        """
        return [event for _, event in self._pairs(facts, wanted)]

    def _pairs(self, facts: Iterable[Recorded], wanted: EventFilter | None) -> list[tuple[Recorded, Event]]:
        """Facts and their events."""
        chosen = [fact for fact in facts if fact.topic in TOPICS and _may_be(fact, wanted)]
        runs = self._runs(chosen)
        self._keep(run for run in runs.values() if isinstance(run, FlowRun))
        pairs = ((fact, self._event(fact, runs)) for fact in chosen)
        return [
            (fact, event)
            for fact, event in pairs
            if event is not None and (wanted is None or wanted.includes(event))
        ]

    def read(
        self, wanted: EventFilter, *, limit: int = PAGE, start: int | None = None, upto: int | None = None
    ) -> Page:
        """A page of history: the newest events first, or the oldest, as the filter says.

        start: where the page before ended (`Page.next`). upto: no events after this position.
        """
        bound = self.ledger.bound() if upto is None else upto
        before, after = bound + 1, 0
        if start is not None:
            before, after = (before, start) if wanted.oldest_first else (start, after)
        found: list[tuple[Recorded, Event]] = []
        facts = self._facts(wanted, before, after, SCANNED + 1)
        for first in range(0, min(len(facts), SCANNED), max(1, limit)):
            found += self._pairs(facts[first : min(first + limit, SCANNED)], wanted)
            if len(found) >= limit:  # more may come, or nothing
                whole = len(found) == limit and first + limit >= len(facts)
                last = found[limit - 1][0].position if limit else start
                return Page([event for _, event in found[:limit]], None if whole else last)
        events = [event for _, event in found]
        return Page(events, facts[SCANNED - 1].position if len(facts) > SCANNED else None)

    def count(self, wanted: EventFilter) -> int:
        """How many events there are: exact for names, ids and times; else at most so many."""
        text, values = _condition(wanted)
        ((many,),) = self._rows(SQL.count.named(schema=self._schema, wanted=text), values)
        return int(many)

    def position_before(self, at: datetime) -> int:
        """A position from which on everything recorded since a time is found; near the end of the log."""
        rows = self._rows(SQL.position_before.named(schema=self._schema), {"at": at})
        return int(rows[0][0]) if rows else 0

    # Facts

    @property
    def _schema(self) -> sql.Identifier:
        return sql.Identifier(self.ledger.schema)

    def _facts(self, wanted: EventFilter, before: int, after: int, limit: int) -> list[Recorded]:
        text, values = _condition(wanted)
        way = sql.SQL("ASC" if wanted.oldest_first else "DESC")
        page = SQL.page.named(schema=self._schema, wanted=text, way=way)
        rows = self._rows(page, {**values, "before": before, "after": after, "limit": limit})
        return [Recorded(*row) for row in rows]

    def _rows(self, text: sql.Composed, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self.ledger.reader() as connection:
            return Cursor(connection, row_factory=tuple_row).execute(text, values).fetchall()

    # What events say of runs and records

    def _runs(self, facts: Sequence[Recorded]) -> dict[tuple[str, int], Any]:
        """The state of each fact's run after it, by stream and version."""
        kinds: dict[str, Any] = {OpenFlowRun.CATEGORY: OpenFlowRun, OpenTaskRun.CATEGORY: OpenTaskRun}
        wanted = {fact.stream: fact for fact in facts if fact.stream.partition("/")[0] in kinds}
        opened = [kinds[name.partition("/")[0]](*split_name(name)[1]) for name in wanted]
        now = {(one.name, one.version): one.state for one in self.ledger.load_each(opened)}
        for fact in facts:
            place, kind = (fact.stream, fact.version), kinds.get(fact.stream.partition("/")[0])
            if kind is not None and place not in now:
                now[place] = self.ledger.load(kind, *split_name(fact.stream)[1], version=fact.version).state
        return now

    def _event(self, fact: Recorded, runs: Mapping[tuple[str, int], Any]) -> Event | None:
        told, run = fact.event, runs.get((fact.stream, fact.version))
        match told:
            case FlowRunStateSet() if run is not None:
                event = self._of_flow_run(told, run, fact.recorded_at)
            case TaskRunStateSet(reported=False) if not _is_offered(told):
                return None
            case TaskRunStateSet() | TaskRunStateCameLate() if run is not None:
                event = self._of_task_run(told, run, fact)
            case RunEventReceived():
                event = {name: plain(getattr(told, name)) for name in RunEventReceived.model_fields}
            case _:
                return None
        return {**event, "received": time_text(fact.recorded_at)}

    def _of_flow_run(self, fact: FlowRunStateSet, run: FlowRun, at: datetime) -> Event:
        """As Prefect's instrumentation of transitions makes it."""
        state = State.of(fact.state, at)
        initial: Any = fact.initial
        return {
            "id": state.id,
            "occurred": time_text(state.timestamp),
            "event": f"prefect.flow-run.{state.name}",
            "resource": _labels_of("flow-run", run.id, run.name, run.run_count, state),
            "related": self._related(run),
            "payload": {
                "intended": {"from": initial["type"] if initial else None, "to": state.type.value},
                "initial_state": {"type": initial["type"], "name": initial["name"]} if initial else None,
                "validated_state": _payload(state),
            },
            "follows": initial["id"] if initial else None,
        }

    def _of_task_run(
        self, fact: TaskRunStateSet | TaskRunStateCameLate, run: TaskRun, recorded: Recorded
    ) -> Event:
        """As its client sent it, as far as the facts keep it."""
        state = State.of(fact.state, recorded.recorded_at)
        initial: Any = getattr(fact, "initial", None)
        first, now = self._created(recorded.stream), task_run_shown(run)
        sent = {name: now[name] for name in now if name not in _NOT_SENT and now[name] is not None}
        labels = _labels_of("task-run", run.id, run.name, run.run_count, state)
        details = {"state_details": plain(state.state_details), "data": plain(state.data)}
        return {
            "id": state.id,
            "occurred": time_text(state.timestamp),
            "event": f"prefect.task-run.{state.name}",
            "resource": {**labels, "prefect.orchestration": "client"},
            "related": [] if first is None else [dict(one) for one in first.related],
            "payload": {
                "intended": {"from": initial["type"] if initial else None, "to": state.type.value},
                "initial_state": {"type": initial["type"], "name": initial["name"]} if initial else None,
                "validated_state": {**_payload(state), **details},
                "task_run": sent,
            },
            "follows": fact.follows,
        }

    def _created(self, stream: str) -> TaskRunCreated | None:
        """The first fact of a task run, which has the resources that its client named."""
        if stream not in self._first:
            if len(self._first) > SCANNED:
                self._first.clear()
            (first,) = self.ledger.read(stream, limit=1)
            self._first[stream] = first.event if isinstance(first.event, TaskRunCreated) else None
        return self._first[stream]

    def _keep(self, runs: Iterable[FlowRun]) -> None:
        """Read the records that flow runs go with, unless they were read a moment ago."""
        now = time.monotonic()
        names: dict[str, OpenRecord] = {}
        for run in runs:
            for kind, id in _goes_with(run):
                opened = open_class(kind)(id)
                names[opened.name] = opened
        new = [one for name, one in names.items() if self._kept.get(name, (0.0,))[0] < now]
        if len(self._kept) > SCANNED:
            self._kept.clear()
        for one in self.ledger.load_each(new) if new else ():
            self._kept[one.name] = now + KEPT_FOR, one

    def _related(self, run: FlowRun) -> list[Labels]:
        """The resources that go with a flow run, in Prefect's order: then tags, then what created it."""
        related, tags = [], set(run.tags)
        for kind, id in _goes_with(run):
            name = open_class(kind).name_of(id)
            opened = self._kept[name][1] if name in self._kept else None
            if opened is None or not opened.is_present:
                continue
            fields, word = opened.state.fields, kind.replace("_", "-")
            labels = {ID: f"prefect.{word}.{id}", ROLE: word, NAME: str(fields.get("name", ""))}
            if kind == "work_pool":
                labels["prefect.work-pool.type"] = str(fields.get("type", ""))
            related.append(labels)
            tags |= set(fields.get("tags", ()))
        if run.parent_task_run_id is not None:
            related.append({ID: f"prefect.task-run.{run.parent_task_run_id}", ROLE: "task-run"})
        related += [{ID: f"prefect.tag.{tag}", ROLE: "tag"} for tag in sorted(tags)]
        return [*related, *_creator(run.created_by)]


NAME: Final = "prefect.resource.name"
_NOT_SENT: Final = frozenset(
    {
        "id", "created", "updated", "flow_run_id", "state_id", "state_type", "state_name", "state",
        "estimated_run_time", "estimated_start_time_delta",
    }
)  # fmt: skip
"""Fields of a task run that no client sends in an event."""


def _goes_with(run: FlowRun) -> list[tuple[str, str]]:
    """The kinds and ids of the records that a flow run goes with."""
    ids = {
        "flow": run.flow_id, "deployment": run.deployment_id, "work_queue": run.work_queue_id,
        "work_pool": run.work_pool_id,
    }  # fmt: skip
    return [(kind, id) for kind, id in ids.items() if id]


def _creator(created_by: Mapping[str, Any] | None) -> list[Labels]:
    """What created a flow run, if that is a deployment or an automation."""
    kinds = {"DEPLOYMENT": "deployment", "AUTOMATION": "automation"}
    if not created_by or created_by.get("type") not in kinds:
        return []
    labels = {ID: f"prefect.{kinds[created_by['type']]}.{created_by.get('id')}", ROLE: "creator"}
    if created_by.get("display_value"):
        labels[NAME] = str(created_by["display_value"])
    return [labels]


def _is_offered(fact: TaskRunStateSet) -> bool:
    """Whether a state waits for a worker of background tasks: its client reports it besides, to no effect."""
    return fact.status == "scheduled" and bool(fact.state.get("state_details", {}).get("deferred"))


def _labels_of(kind: str, id: str, name: str, run_count: int, state: State) -> Labels:
    """The labels of a run in the state that an event announces."""
    return {
        ID: f"prefect.{kind}.{id}",
        NAME: name,
        "prefect.run-count": str(run_count),
        "prefect.state-message": (state.message or "")[:LONGEST],
        "prefect.state-name": state.name,
        "prefect.state-timestamp": time_text(state.timestamp),
        "prefect.state-type": state.type.value,
    }


def _payload(state: State) -> dict[str, str]:
    told = {"type": state.type.value, "name": state.name}
    if state.message:
        told["message"] = state.message[:LONGEST]
    if state.type is StateType.PAUSED:
        told["pause_reschedule"] = str(state.detail("pause_reschedule")).lower()
    return told


# Choosing facts


def _may_be(fact: Recorded, wanted: EventFilter | None) -> bool:
    """Whether the name of a fact's event is included: known without the state of its run."""
    if wanted is None:
        return True
    told = fact.event
    match told:
        case FlowRunStateSet():
            return wanted.names.includes(f"prefect.flow-run.{told.state.get('name')}")
        case TaskRunStateSet() | TaskRunStateCameLate():
            return wanted.names.includes(f"prefect.task-run.{told.state.get('name')}")
        case RunEventReceived():
            return wanted.names.includes(told.event)
    return False


def _condition(wanted: EventFilter) -> tuple[sql.Composed, dict[str, Any]]:
    """The part of a filter that the server checks, and its parameters."""
    names, found = wanted.names, {"is_event": True}
    values: dict[str, Any] = {"topics": list(TOPICS)}
    given = {
        "named": ("names", list(names.name)), "not_named": ("excluded", list(names.exclude_name)),
        "named_from": ("prefixes", _patterns(names.prefix)),
        "not_named_from": ("excluded_prefixes", _patterns(names.exclude_prefix)),
        "of_streams": ("streams", [name for id in wanted.resource.id for name in _streams(id)]),
        "with_ids": ("ids", list(wanted.ids)), "since": ("since", wanted.since),
        "until": ("until", wanted.until),
    }  # fmt: skip
    for part, (name, value) in given.items():
        if value:
            found[part], values[name] = True, value
    parts = [SQL[part].named(name=SQL.event_name.named()) for part in found]
    return sql.SQL(" AND ").join(parts), values


def _patterns(prefixes: Sequence[str]) -> list[str]:
    """Patterns of LIKE for texts that begin with one of these."""
    escaped = (one.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for one in prefixes)
    return [f"{one}%" for one in escaped]


def _streams(resource: str) -> list[str]:
    """The streams that may have events of a resource."""
    names = [OpenRunEvents.name_of(resource)]
    for kind, prefix in ((OpenFlowRun, "prefect.flow-run."), (OpenTaskRun, "prefect.task-run.")):
        if resource.startswith(prefix) and resource != prefix:
            names.append(kind.name_of(resource.removeprefix(prefix)))
    return names
