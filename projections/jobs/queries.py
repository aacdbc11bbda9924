"""Queries of jobs: lists, children, batches, dead letters, counts."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Cursor, sql
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger, SchemaMismatch
from ledger.domain.names import stream_name
from ledger.errors import shown
from ledger.jobs import Batch, BatchStatus, OpenBatch, OpenJob, Status
from ledger.jobs.jobs import checked_id
from ledger.log.sql import Statements

from ..feeds import filling_of

SQL = Statements(__package__, "queries")
MAX_ROWS: Final = 500
"""Rows of a page, at most (spec 2.7)."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A job in a list. position: its place in the list, for the next page.

    due_at: a queued job is not claimed before this. dispatched: its operation is over, its set goes on;
    split: it has a set, which goes on or is over. progress_current is then the number of its completed
    batches and succeeded child jobs, up to the position of the view `progress`; if nothing follows that view,
    from the heads.
    """

    position: int
    id: str
    status: str
    operation: str
    queue: str
    parent: str | None
    created_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    priority: int
    attempt: int
    worker: str | None
    progress_current: int | None
    progress_total: int | None
    dispatched: bool
    split: bool
    discarded: bool
    error_code: str | None
    error_message: str | None
    description: str | None
    findings: str | None
    tags: tuple[str, ...]
    dedup_key: str | None


class Dead(NamedTuple):
    """A job or batch that failed and was neither discarded nor redriven, with the reason (W1-19).

    position, at, version: of the fact that it failed by. job: the id of the job, nr: the number of the batch,
    None for a job.
    """

    position: int
    stream: str
    job: str
    nr: str | None
    queue: str
    operation: str
    error_code: str
    message: str
    at: datetime
    version: int


class Counted(NamedTuple):
    """How many jobs of an operation are in a status, in a queue.

    top_level: those without a parent. dispatched: those whose operation is over. oldest_due: the time since
    when the first queued one may be claimed.
    """

    queue: str
    operation: str
    status: str
    jobs: int
    top_level: int
    dispatched: int
    oldest_due: datetime | None


class JobQueries:
    """Queries of the view `jobs`, as fresh as the view. Raises SchemaMismatch if it does not exist yet."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def list(
        self,
        *,
        status: str | None = None,
        operation: str | None = None,
        queue: str | None = None,
        parent: str | UUID | None = None,
        tag: str | None = None,
        include_children: bool = False,
        newer: int | None = None,
        since: datetime | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> builtins.list[Listed]:
        """Jobs, newest first; only those of the top level, unless children are requested (spec 2.7).

        status: in either case. parent: only the children of this job. newer: only those at greater positions;
        since: only those submitted after this time. after: the position of the last row of the page before.
        limit: 1 to 500. Deleted jobs are left out. Raises BadInput, also for an unknown status.
        """
        given = {
            "status": None if status is None else checked_status(status, Status),
            "operation": operation, "queue": queue, "tag": tag,
            "parent": None if parent is None else checked_id(parent), "newer": newer, "since": since,
        }  # fmt: skip
        kept = ["jobs_kept_where"]
        kept += ["jobs_top_where"] if parent is None and not include_children else []
        rows = self._page("jobs", given, after, limit, kept)
        return self._with_progress([_listed(row) for row in rows])

    def children(
        self, id: str | UUID, *, after: int | None = None, limit: int = MAX_ROWS
    ) -> builtins.list[Listed]:
        """The child jobs of a job, newest first, without their children."""
        return self.list(parent=id, after=after, limit=limit)

    def batches(
        self, id: str | UUID, status: str | None = None, *, after: str | None = None, limit: int = MAX_ROWS
    ) -> builtins.list[Batch]:
        """The batches of a job as they are now, from their streams, by the text of their numbers.

        after: the number of the last one of the page before. Raises BadInput.
        """
        job = checked_id(id)
        start = stream_name(OpenBatch.CATEGORY, job)
        parameters: dict[str, Any] = {
            "after": f"{start}/" if after is None else OpenBatch.name_of(job, after), "end": f"{start}0",
            "status": None if status is None else checked_status(status, BatchStatus),
            "limit": _checked_limit(limit),
        }  # fmt: skip
        names = [name for (name,) in self.ledger.query(SQL.batches_page, **parameters)]
        opened = self.ledger.load_each([OpenBatch(job, name.rpartition("/")[2]) for name in names])
        return [one.state for one in opened]

    def dead(
        self,
        *,
        operation: str | None = None,
        queue: str | None = None,
        error_code: str | None = None,
        job: str | UUID | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> builtins.list[Dead]:
        """Dead letters, latest failure first. job: of this job and its batches. Raises BadInput."""
        given = {
            "operation": operation, "queue": queue, "error_code": error_code,
            "job": None if job is None else checked_id(job),
        }  # fmt: skip
        rows = self._page("dead", given, after, limit, ["dead_any_where"])
        return [Dead(*row)._replace(at=row[8].astimezone(UTC)) for row in rows]

    def counts(self) -> builtins.list[Counted]:
        """How many jobs there are, by queue, operation and status."""
        self.check_made()
        rows = self.ledger.query(SQL.jobs_counts)
        return [Counted(*row)._replace(oldest_due=_utc(row[-1])) for row in rows]

    def _page(
        self, what: str, given: dict[str, Any], after: int | None, limit: int, more: Sequence[str]
    ) -> builtins.list[tuple[Any, ...]]:
        _checked_limit(limit)
        if type(after) not in (int, NoneType):
            raise BadInput(f"after {shown(after)} must be the position of the last row of the previous page")
        self.check_made()
        wanted = {name: value for name, value in given.items() if value is not None}
        known = {"error_code": "dead_error_code_where", "job": "dead_job_where"}
        conditions = [*more, *(known.get(name, f"jobs_{name}_where") for name in wanted)]
        if after is not None:
            conditions.append("jobs_before_where")
        views = sql.Identifier(f"{self.ledger.schema}_views")
        parts = [SQL[name].named() for name in conditions]
        text = SQL[f"{what}_page"].named(views=views, conditions=sql.SQL(" AND ").join(parts))
        with self.ledger.reader() as connection:
            cursor = Cursor(connection, row_factory=tuple_row)
            return cursor.execute(text, {**wanted, "after": after, "limit": limit}).fetchall()

    def check_made(self) -> None:
        """Raise SchemaMismatch if the view does not exist yet."""
        if filling_of(self.ledger, "jobs") is None:
            raise SchemaMismatch("the view jobs does not exist yet: run `pledger views follow jobs`")

    def _with_progress(self, jobs: builtins.list[Listed]) -> builtins.list[Listed]:
        """Add the progress of jobs with a set, from their members; a job that succeeded holds its own."""
        parents = {OpenJob.name_of(job.id): job for job in jobs if job.split and job.status != "succeeded"}
        if not parents:
            return jobs
        followed = filling_of(self.ledger, "progress") is not None
        rows = self.ledger.query(SQL.sets_done if followed else SQL.heads_done, parents=[*parents])
        done = {parents[parent].id: int(many) for parent, many in rows}
        return [replace(job, progress_current=done.get(job.id, job.progress_current)) for job in jobs]


def checked_status(status: str, known: type[Status] | type[BatchStatus]) -> str:
    """A status in its one spelling, from either case (spec S1-01). Raises BadInput."""
    names = [one.value for one in known]
    if (lower := str(status).lower()) in names:
        return lower
    raise BadInput(f"status {shown(status)} must be one of: {', '.join(names)}")


def _checked_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= MAX_ROWS:
        raise BadInput(f"limit {shown(limit)} must be from 1 to {MAX_ROWS}")
    return limit


def _listed(row: Collection[Any]) -> Listed:
    return Listed(*map(_plain, row))


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC)
        case list():
            return tuple(value)
        case _:
            return int(value) if type(value).__name__ == "Decimal" else value


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
