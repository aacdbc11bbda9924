"""What the routes of jobs take and answer (spec 2.7, S1-01 to S1-03)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...dead_letters import MOST, USUAL

ID = "0b6f1c1e-6a0e-4d0b-9a55-3f2f7a1c9e10"
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class NewJob(BaseModel):
    """A job to submit; unknown members are refused."""

    operation: Name
    queue_name: Name
    payload: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    description: str | None = None
    tags: list[str] = []
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"operation": "count_kmers", "queue_name": "default", "payload": {"file": "a.fasta"}}
        },
    )


class Submitted(BaseModel):
    """The job that was submitted."""

    id: str
    status: str
    model_config = ConfigDict(json_schema_extra={"example": {"id": ID, "status": "queued"}})


class JobShown(BaseModel):
    """A job in a list. position: its place, for the next page."""

    id: str
    operation: str
    queue_name: str
    status: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress_current: int | None
    progress_total: int | None
    parent_job_id: str | None
    error_code: str | None
    error_message: str | None
    description: str | None
    findings: str | None
    tags: list[str]
    dedup_key: str | None
    attempt: int
    worker: str | None
    position: int | None = None


class WholeJob(JobShown):
    """A job with its payload and meta."""

    payload: dict[str, Any]
    meta: dict[str, Any]


class JobEventShown(BaseModel):
    """An event of a job. id: its position in the log; `child.` precedes events of its batches (S1-46)."""

    id: int
    ts: datetime
    level: str
    event: str
    message: str | None
    fields: dict[str, Any]


class Cancelled(BaseModel):
    """The job after a cancel. children_cancelled: only where this call cancelled it."""

    id: str
    status: str
    children_cancelled: int | None = None


class Deleted(BaseModel):
    """The job that lists show no more."""

    deleted: str


class NewComment(BaseModel):
    """A comment to add. author: by default the name of the token."""

    body: Name
    author: str | None = None
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"body": "ran out of memory", "author": "mina"}}
    )


class CommentShown(BaseModel):
    """A comment on a job. id: its position in the log."""

    id: int
    job_id: str
    author: str | None
    body: str
    created_at: datetime


class DeadGroup(BaseModel):
    """Dead letters of one operation in one queue."""

    queue: str
    operation: str
    kind: str
    count: int


class DeadSummary(BaseModel):
    """How many dead letters there are, by queue, operation and kind (job or batch)."""

    total: int
    groups: list[DeadGroup]


class DeadFilter(BaseModel):
    """Which dead letters are meant. dry_run: only say which; it is the default."""

    operation: str | None = None
    queue: str | None = None
    max_messages: Annotated[int, Field(ge=1, le=MOST)] = USUAL
    dry_run: bool = True
    reason: str | None = None
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"operation": "embed", "dry_run": True}}
    )


class DeadRefused(BaseModel):
    """A dead letter that was refused."""

    stream: str
    reason: str


class DeadActed(BaseModel):
    """What was done, or would be: how many, and which were refused and why."""

    dry_run: bool
    matched: int
    done: int
    refused: list[DeadRefused]
