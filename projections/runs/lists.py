"""
Lists and counts of flow runs, task runs and records, by the filters of Prefect's API.

    flow_runs(log, {"flow_runs": {"state": {"name": {"any_": ["Late"]}}}}, "START_TIME_DESC", limit=20)
    count_task_runs(log, {"flow_runs": {"id": {"any_": [id]}}})
    records(log, "variables", {"variables": {"name": {"like_": "path"}}})

A list is as fresh as the views are: `wait_for` waits until they contain what was appended. Deleted runs and
records are left out. Times are compared as clients claimed them; rows without the time that a list is sorted
by come last, and equal ones in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import Cursor, sql
from psycopg.errors import UndefinedTable
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger, SchemaMismatch
from ledger.domain.frozen import changed
from ledger.domain.names import split_name
from ledger.domain.state import load, load_each
from ledger.errors import shown
from ledger.runs.flow_run import FlowRun
from ledger.runs.records import Record, open_class
from ledger.runs.task_run import TaskRun

from .criteria import Column, identity, time
from .fields import SOURCES, column
from .filters import SQL, Filters
from .waiting import VIEWS

MOST: Final = 1000
"""Rows of a page, at most."""

Body = Mapping[str, Any]
"""The filters as a client sends them, by kind: {"flow_runs": {…}, "flows": {…}}."""


def _sorts(**columns: Column) -> dict[str, tuple[tuple[Column, bool], ...]]:
    """For each name, both directions: NAME_ASC, NAME_DESC; True is descending."""
    names = {
        f"{name}_{way}": ((place, way == "DESC"),)
        for name, place in columns.items()
        for way in ("ASC", "DESC")
    }
    return {"ID_DESC": ((column("id"), True),), "ID_ASC": ((column("id"), False),), **names}


_OF_RUNS: Final = _sorts(
    EXPECTED_START_TIME=column("expected_start_time"), NAME=column("name"), END_TIME=column("end_time"),
    NEXT_SCHEDULED_START_TIME=column("next_scheduled_start_time"), START_TIME=column("start_time"),
)  # fmt: skip
_OF_RECORDS: Final = _sorts(
    CREATED=column("created"), UPDATED=column("updated"), NAME=column("name"), KEY=column("name")
)

SORTS: Final = {
    "flow_runs": {**_OF_RUNS, **_sorts(START_TIME=Column("began"))},
    "task_runs": _OF_RUNS,
    "work_pool_queues": {**_OF_RECORDS, **_sorts(PRIORITY=Column("number_field", "priority"))},
    "block_documents": {
        **_OF_RECORDS,
        "BLOCK_TYPE_AND_NAME_ASC": ((Column("block_type_name"), False), (column("name"), False)),
    },
}
"""How a kind may be sorted, as Prefect names it; records of any other kind as `_OF_RECORDS` says."""
FIRST: Final = {
    "flow_runs": "ID_DESC", "task_runs": "ID_DESC", "flows": "NAME_ASC", "artifacts": "ID_DESC",
    "artifact_collections": "ID_DESC", "work_pool_queues": "PRIORITY_ASC",
}  # fmt: skip
"""How a kind is sorted where the client does not say; any other by name."""


# Runs


def flow_runs(
    log: Ledger, body: Body | None = None, sort: str | None = None, offset: int = 0, limit: int = 200
) -> list[FlowRun]:
    """Flow runs by Prefect's filters. sort: ID_DESC (the default), START_TIME_DESC, NAME_ASC and so on.

    Raises BadInput for a filter, sort or limit that there is not, SchemaMismatch without the views.
    """
    return _runs(FlowRun, _page(log, "flow_runs", body, sort, offset, limit))


def count_flow_runs(log: Ledger, body: Body | None = None) -> int:
    """How many flow runs there are. Raises as `flow_runs` does."""
    return _count(log, "flow_runs", body)


def task_runs(
    log: Ledger, body: Body | None = None, sort: str | None = None, offset: int = 0, limit: int = 200
) -> list[TaskRun]:
    """Task runs, as `flow_runs`."""
    return _runs(TaskRun, _page(log, "task_runs", body, sort, offset, limit))


def count_task_runs(log: Ledger, body: Body | None = None) -> int:
    """How many task runs there are."""
    return _count(log, "task_runs", body)


def counts_by_state(log: Ledger, kind: str, body: Body | None = None) -> list[tuple[str, str, int]]:
    """How many runs there are in each state: its type, its name, how many. kind: flow_runs or task_runs."""
    rows = filtered_rows(log, "counts_by_state", kind, body)
    return [(type, name, many) for type, name, many in rows if type is not None]


def lateness(log: Ledger, body: Body | None = None) -> float | None:
    """The mean of how much later flow runs began than expected, or have not begun yet, in seconds."""
    ((found,),) = filtered_rows(log, "lateness", "flow_runs", body)
    return None if found is None else float(found)


def scheduled_runs(
    log: Ledger,
    *,
    pool: str | None = None,
    queues: Sequence[str] | None = None,
    deployments: Sequence[str] | None = None,
    before: datetime | str | None = None,
    limit: int = 200,
) -> list[FlowRun]:
    """The scheduled flow runs that may be taken now, the first first: of a work pool, or of deployments.

    pool: its id; queues: only these of it. Runs of a pool come by the priority of their queues, and not more
    of them than the limits of pool and queues leave free; none of what is paused. before: scheduled by then.
    """
    until = None if before is None else _checked(time, before, "before")
    if pool is None:
        wanted = [_checked(identity, one, "deployment") for one in deployments or ()]
        chosen: dict[str, Any] = {
            "deployment_id": {"any_": wanted},
            "state": {"type": {"any_": ["SCHEDULED"]}},
        }
        if until is not None:
            chosen["next_scheduled_start_time"] = {"before_": until}
        return flow_runs(log, {"flow_runs": chosen}, "NEXT_SCHEDULED_START_TIME_ASC", limit=limit)
    values = {
        "pool": _checked(identity, pool, "pool"), "before": until, "limit": _checked_limit(limit),
        "queues": None if queues is None else [_checked(identity, one, "queue") for one in queues],
    }  # fmt: skip
    return _runs(FlowRun, _rows(log, SQL.scheduled_for_pool.named(views=_views(log)), values))


# Records


def records(
    log: Ledger,
    kind: str,
    body: Body | None = None,
    sort: str | None = None,
    offset: int = 0,
    limit: int = 200,
    *,
    parent: str | None = None,
) -> list[Record]:
    """Records of a kind, as Prefect's API names it: flows, deployments, work_pool_queues and so on.

    parent: only those of this flow, work pool or block type. Raises as `flow_runs` does.
    """
    rows = _page(log, kind, body, sort, offset, limit, parent=parent)
    return [_record(SOURCES[kind].kind, *row) for row in rows]


def count_records(log: Ledger, kind: str, body: Body | None = None, *, parent: str | None = None) -> int:
    """How many records of a kind there are."""
    return _count(log, kind, body, parent=parent)


def scheduled_of(log: Ledger, deployment: str) -> list[str]:
    """The ids of all scheduled runs of a deployment."""
    return [id for (id,) in log.query(SQL.scheduled_of, deployment=deployment)]


def filtered_rows(
    log: Ledger, statement: str, kind: str, body: Body | None, *, parent: str | None = None, **values: Any
) -> list[tuple[Any, ...]]:
    """The rows of a statement in `lists.sql` about the rows of a kind that a body's filters keep.

    values: further parameters. Raises as `flow_runs` does.
    """
    filters = _filters(log, kind, body, parent)
    return _rows(log, _named(statement, filters, **values), filters.values.all)


def _record(kind: str, stream: str, version: int, state: str) -> Record:
    opened = open_class(kind)(*split_name(stream)[1])
    opened.restore(load(opened.STATE, state), version)
    return opened.shown()


def _runs(kind: type[Any], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    states = load_each(kind, [text for _, _, text in rows])
    return [changed(run, version=version) for run, (_, version, _) in zip(states, rows, strict=True)]


def _page(
    log: Ledger,
    kind: str,
    body: Body | None,
    sort: str | None,
    offset: int,
    limit: int,
    *,
    parent: str | None = None,
) -> list[tuple[Any, ...]]:
    if type(offset) is not int or offset < 0:
        raise BadInput(f"offset {shown(offset)} must be 0 or more")
    filters = _filters(log, kind, body, parent)
    order = _order(kind, sort, filters)
    page = _named("page", filters, order, offset=offset, limit=_checked_limit(limit))
    return _rows(log, page, filters.values.all)


def _count(log: Ledger, kind: str, body: Body | None, *, parent: str | None = None) -> int:
    ((many,),) = filtered_rows(log, "count", kind, body, parent=parent)
    return int(many)


def _filters(log: Ledger, kind: str, body: Body | None, parent: str | None = None) -> Filters:
    if kind not in SOURCES:
        raise BadInput(f"kind {shown(kind)} must be one of: {', '.join(SOURCES)}")
    filters = Filters(kind, body or {}, _views(log))
    if parent is not None:
        filters.add(SQL.of_parent, _checked(identity, parent, "parent"))
    return filters


def _named(name: str, filters: Filters, order: sql.Composable | None = None, **values: Any) -> sql.Composed:
    names: dict[str, sql.Composable] = {
        "rows": filters.rows, "table": sql.Identifier(filters.table), "conditions": filters.condition
    }  # fmt: skip
    if order is not None:
        names["order"] = order
    return SQL[name].named(**names, **{key: filters.values.add(value) for key, value in values.items()})


def _order(kind: str, sort: str | None, filters: Filters) -> sql.Composed:
    known = SORTS.get(kind, _OF_RECORDS)
    name = sort or FIRST.get(kind, "NAME_ASC")
    if name not in known:
        raise BadInput(f"sort {shown(name)} must be one of: {', '.join(known)}")
    way = {False: sql.SQL("{} ASC NULLS LAST"), True: sql.SQL("{} DESC NULLS LAST")}
    places = [
        way[down].format(place.of(filters.table, filters.views))
        for place, down in known[name]
        if place != column("id")
    ]
    by_id = sql.SQL("{}.id DESC" if known[name][-1][1] else "{}.id ASC").format(sql.Identifier(filters.table))
    return sql.SQL(", ").join([*places, by_id])


def _rows(log: Ledger, text: sql.Composed, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with log.reader() as connection:
        try:
            return Cursor(connection, row_factory=tuple_row).execute(text, values).fetchall()
        except UndefinedTable:
            told = f"`pledger views follow {' '.join(VIEWS)}`"
            raise SchemaMismatch(f"the views of runs do not exist yet: run {told}") from None


def _views(log: Ledger) -> sql.Identifier:
    return sql.Identifier(f"{log.schema}_views")


def _checked(read: Any, value: Any, what: str) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise BadInput(f"{what} {shown(value)} {error}") from None


def _checked_limit(limit: int) -> int:
    if type(limit) is not int or not 0 <= limit <= MOST:
        raise BadInput(f"limit {shown(limit)} must be from 0 to {MOST}")
    return limit
