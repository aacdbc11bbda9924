"""`pledger jobs show` and `result`: one job as it is now, from its streams, and what it came to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from ..plain import clean, plain
from ..printing import fields, is_terminal, json_line, write
from ..session import AsJson, session_of
from .finding import One, found, jobs_of
from .looks import bar, share, time
from .standing import batches_of, children_of, progress_of
from .waiting import said

if TYPE_CHECKING:
    from ledger.jobs import Job

COUNTS = ("attempt", "failures", "retries", "requeues", "stalls", "late")
"""What is shown only where it is not zero."""


def add_to(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command()(show)
    group.command()(result)


def show(context: typer.Context, id: One, as_json: AsJson = False) -> None:
    """Show one job as it is now.

    Its state, payload and metadata, its progress, how many of its batches and child jobs are in which status,
    and its error. It is read from the streams themselves: no view is needed.

    JSON, one object: id, operation, queue, status, payload, meta, and all else that is true of it; progress:
    done, total; batch_statuses and child_statuses: how many are in each; due_at (null where it does
    not wait).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        job = jobs.get(found(jobs.ledger, id))
        progress = progress_of(jobs, job.id)
        counted = batches_of(jobs.ledger, job), children_of(jobs.ledger, job)
    if session.json:
        json_line(_object(job, progress, *counted))
    else:
        fields(_pairs(job, progress, *counted), color=session.color)


def result(context: typer.Context, id: One, as_json: AsJson = False) -> None:
    """Print what a job that succeeded came to, as JSON.

    Exits 6 where it did not succeed, or not yet. JSON: the result, one object.
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        value = plain(jobs.result(found(jobs.ledger, id)))
    if session.json or not is_terminal():
        json_line(value)
    else:  # what acts on a terminal is escaped inside of JSON's texts
        write("".join(f"{clean(line)}\n" for line in json.dumps(value, indent=2).split("\n")))


def _object(
    job: Job, progress: tuple[int | None, int | None], batches: Counter[str], children: Counter[str]
) -> dict[str, Any]:
    done, total = progress
    shown = {"id": job.id, **plain(job), "due_at": plain(job.due_at)}
    shown |= {"progress": {"done": done, "total": total}}
    return shown | {"batch_statuses": dict(batches), "child_statuses": dict(children)}


def _pairs(
    job: Job, progress: tuple[int | None, int | None], batches: Counter[str], children: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Names and values, of what there is."""
    yield "job", job.id
    yield "operation", job.operation
    yield "queue", job.queue
    yield "status", _status(job)
    for name, value in _told(job):
        if value:
            yield name, value
    if progress != (None, None):
        drawn = bar(*progress) if is_terminal() else ""
        yield "progress", f"{drawn} {share(*progress)}".strip()
    for name, counted in (("batches", batches), ("children", children)):
        if counted:
            yield name, ", ".join(f"{many} {status}" for status, many in sorted(counted.items()))
    if job.error_code and job.status != "succeeded":
        yield "error", said(job.error_code, job.error_message)
    yield "payload", _json(job.payload)
    if job.meta:
        yield "meta", _json(job.meta)


def _told(job: Job) -> Iterator[tuple[str, str]]:
    yield from (("description", job.description or ""), ("findings", job.findings or ""))
    yield from (("tags", ", ".join(job.tags)), ("parent", job.parent or ""), ("key", job.dedup_key or ""))
    yield "priority", str(job.priority or "")
    yield from (("created", time(job.created_at)), ("started", time(job.started_at)))
    yield from (("finished", time(job.finished_at)), ("due", time(job.due_at)), ("worker", job.worker or ""))
    yield from ((name, str(getattr(job, name) or "")) for name in COUNTS)
    yield "comments", str(job.comments or "")


def _status(job: Job) -> str:
    """The status in words: also that no worker has it, but its batches go on."""
    if job.status == "running" and job.dispatched:
        return "running, dispatched"
    return f"{job.status}, discarded" if job.discarded else str(job.status)


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
