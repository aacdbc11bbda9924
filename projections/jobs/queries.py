"""Questions about jobs: lists by what they are, children, batches, dead letters, counts."""

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
from ledger.errors import shown
from ledger.jobs import Batch, BatchStatus, OpenBatch, OpenJob, Status
from ledger.jobs.submitting import checked_id
from ledger.names import stream_name

from ..feeds import filling_of
from ..sql import query, template

MOST: Final = 500
"""Rows of a page at most (spec 2.7)."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A job as lists show it. position: its place in the list, for the next page.

    due_at: of a queued one, not claimed before. dispatched: its operation is over, its set goes on; then
    progress_current is how many of its batches were completed and of its child jobs succeeded, as far as the
    view `progress` has come.
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

    top_level: those that are nobody's children. dispatched: those whose operation is over. oldest_due: of the
    queued ones, since when the first may be claimed.
    """

    queue: str
    operation: str
    status: str
    jobs: int
    top_level: int
    dispatched: int
    oldest_due: datetime | None


class JobQueries:
    """Questions to the view `jobs`, and as fresh as it. Raises SchemaMismatch where nobody follows it yet."""

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
        after: int | None = None,
        limit: int = 50,
    ) -> builtins.list[Listed]:
        """Jobs, the newest first; those of the top level only, unless children are asked for (spec 2.7).

        status: in either case. parent: only the children of this job. after: the position of the last row of
        the page before. limit: 1 to 500. Raises BadInput, also for an unknown status.
        """
        given = {
            "status": None if status is None else checked_status(status, Status),
            "operation": operation, "queue": queue, "tag": tag,
            "parent": None if parent is None else checked_id(parent),
        }  # fmt: skip
        top = ["jobs_top_where"] if parent is None and not include_children else []
        rows = self._page("jobs", given, after, limit, top)
        return self._with_progress([_listed(row) for row in rows])

    def children(
        self, id: str | UUID, *, after: int | None = None, limit: int = MOST
    ) -> builtins.list[Listed]:
        """The child jobs of a job, the newest first; of theirs nothing."""
        return self.list(parent=id, after=after, limit=limit)

    def batches(
        self, id: str | UUID, status: str | None = None, *, after: str | None = None, limit: int = MOST
    ) -> builtins.list[Batch]:
        """The batches of a job as they are now, from their streams, by the text of their numbers.

        after: the number of the last one of the page before. Raises BadInput.
        """
        job = checked_id(id)
        start = stream_name(OpenBatch.CATEGORY, job)
        parameters = {
            "after": f"{start}/" if after is None else OpenBatch.name_of(job, after), "end": f"{start}0",
            "status": None if status is None else checked_status(status, BatchStatus),
            "limit": _checked_limit(limit),
        }  # fmt: skip
        with self.ledger.reader() as connection:
            names = [name for (name,) in query(connection, self.ledger.schema, "batches_page", **parameters)]
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
        """Dead letters, those that failed last, first. job: of this job and its batches. Raises BadInput."""
        given = {
            "operation": operation, "queue": queue, "error_code": error_code,
            "job": None if job is None else checked_id(job),
        }  # fmt: skip
        rows = self._page("dead", given, after, limit, [])
        return [Dead(*row)._replace(at=row[8].astimezone(UTC)) for row in rows]

    def counts(self) -> builtins.list[Counted]:
        """How many jobs there are, by queue, operation and status."""
        self._check_made()
        with self.ledger.reader() as connection:
            rows = query(connection, self.ledger.schema, "jobs_counts")
        return [Counted(*row)._replace(oldest_due=_utc(row[-1])) for row in rows]

    def _page(
        self, what: str, given: dict[str, Any], after: int | None, limit: int, more: Sequence[str]
    ) -> builtins.list[tuple[Any, ...]]:
        _checked_limit(limit)
        if type(after) not in (int, NoneType):
            raise BadInput(f"after {shown(after)} must be the position of the last row of the page before")
        self._check_made()
        wanted = {name: value for name, value in given.items() if value is not None}
        known = {"error_code": "dead_error_code_where", "job": "dead_job_where"}
        conditions = [*more, *(known.get(name, f"jobs_{name}_where") for name in wanted)]
        if after is not None:
            conditions.append("jobs_before_where")
        views = sql.Identifier(f"{self.ledger.schema}_views")
        parts = [sql.SQL(template(name)).format() for name in conditions or ["jobs_any_where"]]
        text = sql.SQL(template(f"{what}_page")).format(views=views, conditions=sql.SQL(" AND ").join(parts))
        with self.ledger.reader() as connection:
            cursor = Cursor(connection, row_factory=tuple_row)
            return cursor.execute(text, {**wanted, "after": after, "limit": limit}).fetchall()

    def _check_made(self) -> None:
        if filling_of(self.ledger, "jobs") is None:
            raise SchemaMismatch("the view jobs is not made yet: run `pledger views follow jobs`")

    def _with_progress(self, jobs: builtins.list[Listed]) -> builtins.list[Listed]:
        """What is dispatched is as far as its batches are, where somebody counts them."""
        parents = [OpenJob.name_of(job.id) for job in jobs if job.dispatched]
        if not parents or filling_of(self.ledger, "progress") is None:
            return jobs
        with self.ledger.reader() as connection:
            rows = query(connection, self.ledger.schema, "sets_done", parents=parents)
        done = {parent: int(many) for parent, many in rows}
        return [
            replace(job, progress_current=done.get(OpenJob.name_of(job.id), job.progress_current))
            if job.dispatched
            else job
            for job in jobs
        ]


def checked_status(status: str, known: type[Status] | type[BatchStatus]) -> str:
    """A status in its one spelling, from either case (spec S1-01). Raises BadInput."""
    names = [one.value for one in known]
    if (lower := str(status).lower()) in names:
        return lower
    raise BadInput(f"status {shown(status)} must be one of: {', '.join(names)}")


def _checked_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadInput(f"limit {shown(limit)} must be from 1 to {MOST}")
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
