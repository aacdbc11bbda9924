"""
The outcome of an operation that returned. The batches of a deferred job are recorded here, in pieces.

A deferred job begins a round; its batches are recorded in pieces, each under the guard of the job's claim;
finally the worker records `job.dispatched` with the child jobs. So nothing is handed out for a job whose
claim is over. Batches may run at once, but are counted only when the whole set is known (spec S1-40). Each
piece has a command id, so a repeat records nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

from ledger import BadInput
from ledger.errors import ClaimLost, GuardFailed
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import payload_of
from ledger.log.append import Append, Guard, append_of

from .context import OperationContext
from .messages import AlreadyRecorded, Deferred, Outcome, Prepared, Succeeded
from .operation import Message, OperationResult

MAX_BATCHES: Final = 1000
"""Maximum number of batches that are recorded in one append."""
MAX_CHARACTERS: Final = 4_000_000
"""Approximate number of characters in the payloads of a piece."""
OVER: Final = "it was cancelled, or given to another worker"


def outcome_of(session: OperationContext, result: OperationResult) -> Outcome:
    """The outcome of an operation that returned. Raises BadInput, WorkStopped."""
    task = session.task
    if session.recorded:
        return AlreadyRecorded(task.stream, task.token)
    jobs = _published(session, result)
    messages = iter(result.publish_operations)
    if session.batch is not None:
        return _of_batch(session, result, jobs, messages)
    if result.deferred:
        return _deferred(session, result, jobs, messages)
    if next(messages, None) is not None:
        raise BadInput(
            "a job that is not deferred has no batches: return OperationResult(deferred=True, …), or no "
            "publish_operations"
        )
    return Succeeded(task.stream, task.token, jobs, dict(result.result), **_progress(result))


def _of_batch(
    session: OperationContext,
    result: OperationResult,
    jobs: tuple[Prepared, ...],
    messages: Iterator[tuple[str, Message]],
) -> Outcome:
    """A batch is done, or has a second step (spec S1-41)."""
    if result.deferred:
        raise BadInput("a batch cannot be deferred: only a job has batches; submit a child job instead")
    steps = list(islice(messages, 2))
    if len(steps) > 1:
        raise BadInput("a batch has at most one next step: return only one of publish_operations")
    then = None
    if steps:
        queue, (operation, payload, further) = steps[0][0], _parts(steps[0][1])
        if further:
            raise BadInput(f"the next step of a batch has only operation and payload, not {sorted(further)}")
        then = (operation, queue, payload)
    return Succeeded(session.task.stream, session.task.token, jobs, dict(result.result), then=then)


def _deferred(
    session: OperationContext,
    result: OperationResult,
    jobs: tuple[Prepared, ...],
    messages: Iterator[tuple[str, Message]],
) -> Outcome:
    """A job goes on as its set; without members it is done (spec S1-40)."""
    task = session.task
    if not 0 < result.failure_ratio <= 1:
        raise BadInput(f"failure_ratio {result.failure_ratio} must be above 0 and at most 1")
    first = next(messages, None)
    if first is None and not jobs:
        return Succeeded(task.stream, task.token, jobs, dict(result.result), **_progress(result))
    batches = _Dispatch(session).record(chain([] if first is None else [first], messages))
    return Deferred(task.stream, task.token, jobs, dict(result.result), batches, result.failure_ratio)


class _Dispatch:
    """One round of batches of a job."""

    def __init__(self, session: OperationContext) -> None:
        self.session, self.task = session, session.task
        opened = session.opened()
        assert isinstance(opened, OpenJob)
        try:
            opened.check_lease(self.task.token)
        except ClaimLost:
            session.lost(OVER)
        self.round = opened.begin_dispatch()
        self._begin = opened.under_lease(self.task.token)
        self._claim = Append(self.task.stream, [], Guard(opened.RUNNING, self.task.token))
        self._pieces = 0

    def record(self, messages: Iterable[tuple[str, Message]]) -> int:
        """Begin the round and record its batches; how many. Memory holds one piece."""
        self._append([self._begin])
        piece: list[Append] = []
        batches = characters = 0
        for batches, (queue, message) in enumerate(messages, 1):
            piece.append(append_of(self._batch(batches, queue, message)))
            characters += len(piece[-1].events[0].data or "")
            if len(piece) >= MAX_BATCHES or characters > MAX_CHARACTERS:
                self._append([self._claim, *piece])
                piece, characters = [], 0
        if piece:
            self._append([self._claim, *piece])
        return batches

    def _batch(self, nr: int, queue: str, message: Message) -> OpenBatch:
        operation, payload, further = _parts(message)
        batch = OpenBatch(self.task.job, OpenBatch.number(self.round, nr))
        batch.queue(self.round, operation, queue, payload=payload, **further)
        return batch

    def _append(self, appends: list[Append]) -> None:
        self.session.check()
        command = f"dispatch:{self.task.job}:{self.task.token}:{self._pieces}"
        self._pieces += 1
        try:
            self.session.ledger.append_all(appends, command=command)
        except GuardFailed:
            self.session.lost(OVER)


def _parts(message: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Operation, payload and the further fields of a message. Raises BadInput."""
    if not isinstance(message, Mapping) or not isinstance(message.get("operation"), str):
        raise BadInput(
            f"{message!r} is not the message of a batch: it must be {{'operation': NAME, 'payload': {{…}}}}"
        )
    further = {name: value for name, value in message.items() if name not in ("operation", "payload")}
    operation, payload = message["operation"], message.get("payload")
    return operation, dict(payload_of(f"a batch of {operation!r}", payload)), further


def _published(session: OperationContext, result: OperationResult) -> tuple[Prepared, ...]:
    """The prepared jobs, in the queues that `publish_after_commit` names."""
    queues = {job: queue for queue, job in result.publish_after_commit}
    if unknown := sorted(queues.keys() - {job.id for job in session.prepared}):
        raise BadInput(f"publish_after_commit names {unknown[0]}, which `session.submit` did not prepare")
    return tuple(
        replace(job, fields={**job.fields, "queue": queues[job.id]}) if job.id in queues else job
        for job in session.prepared
    )


def _progress(result: OperationResult) -> dict[str, Any]:
    return {"progress_current": result.progress_current, "progress_total": result.progress_total}
