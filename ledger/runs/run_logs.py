"""
Logs of runs: written in bulk, read by filter, deleted after their time. They are no events.

A filter has the form of Prefect's `POST /logs/filter`:

    {"flow_run_id": {"any_": [ID]}, "level": {"ge_": 20}, "text": {"query": "disk -debug"}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from psycopg import sql
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ..errors import BadInput, BadRecord, shown
from ..log.ledger import Ledger
from ..log.sql import Statements
from .json_values import checked_uuid, time_text, utc
from .kinds import Id, Time, wrong_fields

SQL = Statements(__package__, "run_logs")
PAGE: Final = 200
"""Logs per page, as in Prefect's."""
_BATCH: Final = 10_000
"""Most logs that one statement deletes."""
_TERM = re.compile(r'([-!+]?)(?:"((?:\\.|[^"\\])*)"?|(\S+))')


class LogFields(BaseModel):
    """A log as a client sends it; further fields are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    name: str
    level: Annotated[int, Field(ge=-(2**31), lt=2**31)]
    message: str
    timestamp: Time
    flow_run_id: Id | None = None
    task_run_id: Id | None = None


class _Level(BaseModel):
    ge_: int | None = None
    le_: int | None = None


class _Timestamp(BaseModel):
    before_: Time | None = None
    after_: Time | None = None


class _Ids(BaseModel):
    any_: list[Id] | None = None


class _TaskRunIds(_Ids):
    is_null_: bool | None = None


class _Names(BaseModel):
    any_: list[str] | None = None


class _Text(BaseModel):
    query: Annotated[str, Field(max_length=200)] | None = None


class LogFilter(BaseModel):
    """Which logs: all conditions hold (`and_`), or one does (`or_`)."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    operator: Annotated[str, Field(pattern="^(and_|or_)$")] = "and_"
    level: _Level | None = None
    timestamp: _Timestamp | None = None
    flow_run_id: _Ids | None = None
    task_run_id: _TaskRunIds | None = None
    name: _Names | None = None
    text: _Text | None = None


_LOGS: TypeAdapter[list[LogFields]] = TypeAdapter(list[LogFields], config=None)


class RunLogs:
    """The logs of the runs of a ledger. Needs the writer's role, also to read."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def write(self, logs: Iterable[Mapping[str, Any]]) -> int:
        """Write logs, all or none, in one statement; returns how many. Raises BadRecord.

        Each has name, level, message, timestamp (aware), and flow_run_id or task_run_id or neither. NUL is
        left out, because PostgreSQL cannot hold it.
        """
        read = _read(logs)
        if read:
            self.ledger.query(SQL.write, **_columns(read))
        return len(read)

    def write_once(self, logs: Sequence[Mapping[str, Any]]) -> int:
        """Write logs that have an `id`, without those that were written before; returns how many are new.

        For who writes the same again, such as an import. Raises BadRecord.
        """
        ids = [checked_uuid(log.get("id")) for log in logs]
        return len(self.ledger.query(SQL.write_once, ids=ids, **_columns(_read(logs))))

    def read(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        newest_first: bool = False,
        offset: int = 0,
        limit: int = PAGE,
    ) -> list[dict[str, Any]]:
        """A page of the logs that fulfil a filter, as Prefect shows them. Raises BadRecord."""
        condition, given = _condition(filters)
        order = (SQL.newest_first if newest_first else SQL.oldest_first).named()
        rows = self._run("read", condition, order, {**given, "limit": limit, "offset": offset})
        return [_shown(row) for row in rows]

    def arrived(
        self, filters: Mapping[str, Any] | None, since: datetime, limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """Logs that fulfil a filter and arrived since an aware time, in the order in which they arrived.

        Of writers at the same time the later log may be seen first. Raises BadRecord.
        """
        condition, given = _condition(filters)
        rows = self._run("arrived", condition, sql.SQL(""), {**given, "since": utc(since), "limit": limit})
        return [_shown(row) for row in rows]

    def count(self, filters: Mapping[str, Any] | None = None) -> int:
        """How many logs fulfil a filter. Raises BadRecord."""
        condition, given = _condition(filters)
        return int(self._run("count", condition, sql.SQL(""), given)[0][0])

    def prune(self, before: datetime) -> int:
        """Delete the logs that arrived before an aware time; returns how many. Raises BadInput."""
        gone, wanted = 0, utc(before)
        while True:
            some = len(self.ledger.query(SQL.prune, before=wanted, limit=_BATCH))
            gone += some
            if some < _BATCH:
                return gone

    def delete(self, flow_run_id: str) -> None:
        """Delete the logs of a flow run."""
        self.ledger.query(SQL.delete_of_run, flow_run=flow_run_id)

    def _run(
        self, name: str, condition: sql.Composable, order: sql.Composable, given: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        text = SQL[name].filled(self.ledger.schema).as_string()
        statement = sql.SQL(text).format(condition=condition, order=order)
        with self.ledger.reader() as connection:
            return connection.execute(statement, given).fetchall()


def _read(logs: Iterable[Mapping[str, Any]]) -> list[LogFields]:
    """Raises BadRecord."""
    try:
        return _LOGS.validate_python(list(logs))
    except ValidationError as error:
        raise BadRecord("log", wrong_fields(error)) from None
    except BadInput as error:
        raise BadRecord("log", [str(error)]) from None


def _columns(logs: Sequence[LogFields]) -> dict[str, Any]:
    """The parameters of a statement that writes logs."""
    return {
        "times": [log.timestamp for log in logs],
        "flow_runs": [log.flow_run_id for log in logs],
        "task_runs": [log.task_run_id for log in logs],
        "levels": [log.level for log in logs],
        "names": [_storable(log.name) for log in logs],
        "messages": [_storable(log.message) for log in logs],
    }


def _condition(filters: Mapping[str, Any] | None) -> tuple[sql.Composable, dict[str, Any]]:
    """The condition of a filter, and its parameters. Raises BadRecord."""
    try:
        read = LogFilter.model_validate(filters or {})
    except ValidationError as error:
        raise BadRecord("log_filter", wrong_fields(error)) from None
    except BadInput as error:
        raise BadRecord("log_filter", [str(error)]) from None
    given = {
        f"{field}_{name.rstrip('_')}": value
        for field, part in read.model_dump(exclude_none=True, exclude={"operator"}).items()
        for name, value in part.items()
    }
    parts = [sql.SQL("({})").format(SQL[name].named()) for name in given] or [SQL.any_log.named()]
    if (query := given.pop("text_query", None)) is not None:
        given |= terms(query)
    return sql.SQL(" AND " if read.operator == "and_" else " OR ").join(parts), given


def terms(query: str) -> dict[str, list[str]]:
    """The words of a search: found, required (`+`), excluded (`-` or `!`); a quoted phrase is one word."""
    words: dict[str, list[str]] = {"found": [], "required": [], "excluded": []}
    kinds = {"": "found", "+": "required", "-": "excluded", "!": "excluded"}
    for prefix, phrase, word in _TERM.findall(_storable(query)):
        if term := re.sub(r"\\(.)", r"\1", phrase) or word:
            words[kinds[prefix]].append(term.lower())
    return words


def _storable(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def _shown(row: tuple[Any, ...]) -> dict[str, Any]:
    id, recorded_at, name, level, flow_run, task_run, message, logged_at = row
    at = time_text(recorded_at)
    return {
        "id": str(id), "created": at, "updated": at, "name": name, "level": level, "message": message,
        "timestamp": time_text(logged_at),
        "flow_run_id": flow_run and str(flow_run), "task_run_id": task_run and str(task_run),
    }  # fmt: skip


def direction(sort: str) -> bool:
    """Whether Prefect's name of an order means newest first. Raises BadInput."""
    if sort not in ("TIMESTAMP_ASC", "TIMESTAMP_DESC"):
        raise BadInput(f"order {shown(sort)} must be TIMESTAMP_ASC or TIMESTAMP_DESC")
    return sort == "TIMESTAMP_DESC"
