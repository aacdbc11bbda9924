"""Jobs, events and comments as the routes answer them: the names of the original (spec S1-01 to S1-03)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import Ledger, StreamNotFound
from ledger.jobs import Job, Jobs, OpenJob
from projections.jobs import Entry, Listed
from projections.jobs.timeline import Comment, comment_of

from ...cli.output import iso

SAME = (
    "id", "operation", "status", "created_at", "started_at", "finished_at", "progress_current",
    "progress_total", "error_code", "error_message", "description", "findings", "tags", "dedup_key",
    "attempt", "worker",
)  # fmt: skip
"""The members whose names here and there are the same."""


def shown(job: Job | Listed) -> dict[str, Any]:
    """A job, without its payload."""
    same = {name: getattr(job, name) for name in SAME}
    position = getattr(job, "position", None)
    return {**same, "queue_name": job.queue, "parent_job_id": job.parent, "position": position}


def whole(job: Job) -> dict[str, Any]:
    """A job with its payload and meta."""
    return {**shown(job), "payload": job.payload, "meta": job.meta}


def found(jobs: Jobs, id: str) -> Job:
    """The job. Raises StreamNotFound, also for a deleted one."""
    job = jobs.get(id)
    if job.deleted:
        raise StreamNotFound(f"job/{id}")
    return job


def event(one: Entry) -> dict[str, Any]:
    """An event of a job."""
    return {
        "id": one.position, "ts": iso(one.at), "level": one.level, "event": one.event, "message": one.message,
        "fields": one.fields,
    }  # fmt: skip


def comment(id: str, one: Comment) -> dict[str, Any]:
    """A comment on a job."""
    return {"id": one.position, "job_id": id, "author": one.author, "body": one.text, "created_at": one.at}


def said(log: Ledger, id: UUID, text: str, author: str) -> Comment:
    """The last comment with this text by this author, which is there."""
    for limit in (1000, None):
        for recorded in log.read(OpenJob.name_of(str(id)), limit=limit, backwards=True):
            one = comment_of(recorded)
            if one is not None and (one.text, one.author) == (text, author):
                return one
    raise StreamNotFound(OpenJob.name_of(str(id)))
