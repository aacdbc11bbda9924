"""
Flow runs and task runs of a Prefect database, with their states in the order of their times.

The fields that follow from the states are computed from them, as for any run; but how often a task run ran is
what its client counted, as it is where a client reports it. The times of states are claimed times. A run that
the ledger has already gets the states that it was in since, unless it went on in the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ledger import Ledger
from ledger.errors import BadInput
from ledger.log.append import Append, append_of
from ledger.log.retry import retry_conflicts
from ledger.runs.flow_run import FlowRunStateSet, OpenFlowRun
from ledger.runs.json_values import plain, time_text
from ledger.runs.names import OpenName
from ledger.runs.orchestration import named
from ledger.runs.states import State
from ledger.runs.task_run import OpenTaskRun, TaskRunStateSet, key_of

from .counts import Counts
from .database import PrefectDatabase, Row, seconds_of, time_of
from .records import RecordImport

Create: TypeAlias = "Callable[[Any, Row], OpenName | None]"
"""Records that a run was created; returns its unique name, if it needs one."""
Record: TypeAlias = "Callable[[Any, Row, Sequence[Row]], None]"
"""Records states of a run."""

AT_ONCE: Final = 100
"""Runs that are recorded in one transaction."""
_FLOW_RUN: Final = (
    "name", "deployment_id", "deployment_version", "work_pool_id", "work_pool_name", "work_queue_id",
    "work_queue_name", "flow_version", "parameters", "idempotency_key", "context", "empirical_policy", "tags",
    "labels", "created_by", "infrastructure_pid", "infrastructure_document_id", "job_variables",
    "parent_task_run_id", "auto_scheduled",
)  # fmt: skip
_TASK_RUN: Final = (
    "name", "flow_run_id", "cache_key", "cache_expiration", "task_version", "empirical_policy", "tags",
    "labels", "task_inputs", "flow_run_run_count",
)  # fmt: skip
_RANDOM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
"""A dynamic key that no other run can have, so that a name would only cost an append."""


class RunImport:
    """Takes flow runs and task runs over."""

    def __init__(self, ledger: Ledger, database: PrefectDatabase, records: RecordImport) -> None:
        self.ledger, self.database, self.records = ledger, database, records

    def take_flow_runs(self, rows: Sequence[Row]) -> Counts:
        """Take over some rows of `flow_run`, with their states and inputs, in one transaction."""
        inputs = self._by("flow_run_input", "flow_run_id", rows, "created")

        def create(opened: OpenFlowRun, row: Row) -> OpenName | None:
            whole = self.records.referring({**row, **self.records.place_of(row.get("work_queue_id"))})
            fields = {name: whole[name] for name in _FLOW_RUN if name in whole}
            opened.create(flow_id=whole["flow_id"], since=time_of(row["created"]), **fields)
            for one in inputs.get(row["id"], ()):
                opened.set_input(one["key"], one["value"], one.get("sender"))
            key = row.get("idempotency_key")
            return None if key is None else OpenName("flow_run", whole["flow_id"], key)

        return retry_conflicts(lambda: self._take(rows, OpenFlowRun, create, _record_flow_run))

    def take_task_runs(self, rows: Sequence[Row]) -> Counts:
        """Take over some rows of `task_run`, with their states, in one transaction."""

        def create(opened: OpenTaskRun, row: Row) -> OpenName | None:
            fields = {name: row[name] for name in _TASK_RUN if row.get(name) is not None}
            key, dynamic = row["task_key"], row["dynamic_key"]
            opened.create(task_key=key, dynamic_key=dynamic, since=time_of(row["created"]), **fields)
            return None if _RANDOM.match(dynamic) else key_of(row.get("flow_run_id"), key, dynamic)

        return retry_conflicts(lambda: self._take(rows, OpenTaskRun, create, _record_task_run))

    def _take(self, rows: Sequence[Row], kind: type[Any], create: Create, record: Record) -> Counts:
        """Record what is new of some runs, all or nothing. Raises StreamConflict."""
        counts, what = Counts(), kind.CATEGORY.replace("_", " ")
        states = self._states(kind.CATEGORY, rows)
        opened = {one.state.id: one for one in self.ledger.load_each([kind(row["id"]) for row in rows])}
        names, appends = dict[str, OpenName](), dict[str, Append]()
        for row in rows:
            run = opened[row["id"]]
            is_new = not run.version
            try:
                name = _taken(run, row, states.get(row["id"], []), create, record)
                if run.news:
                    appends[row["id"]] = append_of(run)
            except BadInput as error:
                counts.leave(f"{what} {row['name']} {row['id']}", error)
                continue
            counts.note(is_new=is_new, is_changed=bool(run.news))
            if name is not None:
                names[row["id"]] = name
        self._take_names(appends, names, counts, what)
        if appends:
            self.ledger.append_all([*appends.values(), *map(append_of, names.values())])
        return counts

    def _take_names(
        self, appends: dict[str, Append], names: dict[str, OpenName], counts: Counts, what: str
    ) -> None:
        """Take the unique names of new runs; a run whose name another one has is left out."""
        held = {
            one.name: one for one in self.ledger.load_each([OpenName(*one.key) for one in names.values()])
        }
        for id, name in [*names.items()]:
            names[id] = found = held[name.name]
            if found.holder is None:
                found.take(id)
            elif found.holder != id:
                del names[id], appends[id]
                counts.new -= 1
                counts.leave(f"{what} {id}", BadInput(f"{found.holder} has its unique key"))

    def _states(self, category: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """The states of some runs in the order of their times, each with the data of its result."""
        found = self._by(f"{category}_state", f"{category}_id", rows, "timestamp")
        every = [row for states in found.values() for row in states]
        wanted = [row["result_artifact_id"] for row in every if row.get("result_artifact_id")]
        results = {row["id"]: row["data"] for row in self.database.rows_with("artifact", "id", wanted)}
        for row in every:
            row["data"] = results.get(row.get("result_artifact_id"), row.get("data"))
        return found

    def _by(self, table: str, column: str, rows: Sequence[Row], order: str) -> dict[str, list[Row]]:
        """The rows of another table that belong to some rows, by the ids of these."""
        found: dict[str, list[Row]] = {}
        for row in self.database.rows_with(table, column, [one["id"] for one in rows], order):
            found.setdefault(row[column], []).append(row)
        return found


def _taken(run: Any, row: Row, states: Sequence[Row], create: Create, record: Record) -> OpenName | None:
    """Record a run, or what it did since; returns the unique name of a new one. Raises BadInput."""
    if run.version:
        record(run, row, _since(run, states))
        return None
    name = create(run, row)
    record(run, row, states)
    return name


def _since(run: Any, told: Sequence[Row]) -> Sequence[Row]:
    """The states since the one in which the ledger knows a run; none if it was deleted, or went on there."""
    if run.is_there and run.state.state is None:
        return told
    ids = [row["id"] for row in told]
    known = run.is_there and run.state.state.id in ids
    return told[ids.index(run.state.state.id) + 1 :] if known else ()


def _record_flow_run(run: OpenFlowRun, _: Row, rows: Sequence[Row]) -> None:
    """Record states of a flow run. Raises BadInput."""
    for state in map(_state_of, rows):
        before = run.state.state
        initial = None if before is None else named(before)
        run.record(FlowRunStateSet(status=state.type.lower(), state=plain(state.recorded()), initial=initial))


def _record_task_run(run: OpenTaskRun, row: Row, rows: Sequence[Row]) -> None:
    """Record states of a task run as its client reported them. Raises BadInput.

    A task run that stands for a subflow has states that the server set: they are no events.
    """
    reported = not any((one.get("state_details") or {}).get("child_flow_run_id") for one in rows)
    for nth, state in enumerate(map(_state_of, rows), start=1):
        before = run.state.state
        state = state.with_details(task_run_id=row["id"], flow_run_id=row.get("flow_run_id"))
        run.record(
            TaskRunStateSet(
                status=state.type.lower(),
                state=plain(state.recorded()),
                initial=None if before is None else named(before),
                reported=reported,
                follows=before.id if before is not None and reported else None,
                claimed=_claimed(row) if nth == len(rows) and reported else {},
            )
        )


def _claimed(row: Row) -> dict[str, Any]:
    """What the client of a task run counted."""
    times = {name: time_of(row.get(name)) for name in ("start_time", "end_time")}
    return {
        "run_count": row["run_count"],
        "total_run_time": seconds_of(row["total_run_time"]),
        **{name: None if at is None else time_text(at) for name, at in times.items()},
    }


def _state_of(row: Row) -> State:
    return State.of({name: row.get(name) for name in _STATE})


_STATE: Final = ("id", "type", "name", "timestamp", "message", "state_details", "data")
