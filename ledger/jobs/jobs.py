"""
Jobs of a ledger: submit, read, wait, cancel, retry.

    jobs = Jobs(log)
    job = jobs.submit("count_kmers", {"file": "proteins.fasta"})
    jobs.wait(job)
    jobs.result(job)

Recording a job offers it: there is no second step that could fail (spec W1-08).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4, uuid5

from ..domain import canonical_json
from ..domain.frozen import FrozenDict
from ..domain.names import split_name
from ..domain.state import Pending, dump
from ..domain.stream import Stream
from ..errors import (
    BadInput,
    DuplicateJob,
    GuardFailed,
    JobUnsuccessful,
    StreamConflict,
    StreamNotFound,
    shown,
)
from ..log import read
from ..log.append import EXISTS, NEW, Append, Appended, Exact, Guard, append_of, body_of
from ..log.ledger import Ledger
from ..log.recorded import Recorded
from ..log.retry import retry_conflicts
from ..log.sql import Statements
from .batch import OpenBatch
from .job import ACTIVE, TERMINAL, Job, JobChildAdded, JobCreated, JobSucceeded, OpenJob, evolve, job_created
from .queue import Limits, OpenOperation, OpenQueue, Queue
from .unique import OpenKey, dedup_key
from .work import queue_name

SQL = Statements(__package__, "jobs")
MAX_PAUSE: Final = 0.05
"""Maximum seconds between two reads of jobs that are waited for."""
MAX_JOBS: Final = 1000
"""Maximum number of jobs in one append: a larger one would delay the readers of the log."""
NOTE_ATTEMPTS: Final = 3
"""How often a comment is tried at an expected version; then it is recorded without one."""
COMMANDS: Final = UUID("5d7bb7f7-8f0e-5c0c-9b0e-5a52f1a4f7c1")
"""The namespace of ids that are derived from a command id."""
NOT_OVER: Final = Guard(frozenset(map(str, ACTIVE)))

S = TypeVar("S", bound=Stream[Any, Any])


class Submission(NamedTuple):
    """A new job that is ready to be recorded: its id, its first fact, and the append of it."""

    id: str
    created: JobCreated
    append: Append


class Jobs:
    """The jobs of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # Submit

    def submit(
        self,
        operation: str,
        payload: Mapping[str, Any] | None = None,
        *,
        id: str | UUID | None = None,
        unique: bool | str = False,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        parent: str | UUID | None = None,
        command: str | None = None,
        **fields: Any,
    ) -> str:
        """Submit a job, and return its id.

        id: a UUID of the caller's, else a new one. unique: at most one such job queued or running; True makes
        the key from operation and payload, a text is the key. delay: seconds after it is recorded, by the
        database's clock; run_at: not before this time, with its zone. parent: the id of the job that it is a
        child of, which must not be over. command: a command id; repeats submit nothing, and the job's id is
        derived from it. fields: as in JobCreated: queue, meta, priority, description, tags, max_attempts,
        max_retries, max_requeues, timeout_seconds.
        Raises BadInput before anything is sent, DuplicateJob, StreamNotFound for an unknown parent,
        StreamConflict for an id that is taken, CommandReused.
        """
        job = prepare(
            operation, payload, id=id, unique=unique, delay=delay, run_at=run_at, parent=parent,
            command=command, **fields,
        )  # fmt: skip
        self.record([job], command=command)
        return job.id

    def submit_many(
        self, submissions: Iterable[Mapping[str, Any]], *, command: str | None = None
    ) -> list[str]:
        """Submit many jobs, a thousand in one append; returns their ids, in order.

        Each is a mapping of the arguments of `submit`: `{"operation": …, "payload": …, "queue": …}`. All are
        checked before the first is sent; an append is recorded whole or not at all. command: as in `submit`,
        for all of them together. Raises as `submit`.
        """
        prepared = [
            prepare(**{"operation": "", **one}, command=command and f"{command}:{nth}")
            for nth, one in enumerate(map(_checked, submissions))
        ]
        rest = iter(prepared)
        for nth, piece in enumerate(iter(lambda: [*islice(rest, MAX_JOBS)], [])):
            self.record(piece, command=command and f"{command}:{nth}")
        return [one.id for one in prepared]

    def record(
        self, submissions: Sequence[Submission], others: Sequence[Append] = (), *, command: str | None = None
    ) -> Appended:
        """Record jobs in one append with the keys that they take, the facts of their parents, and others.

        Raises StreamConflict where an id is taken, or another stream is not at its expected version.
        """
        appends, alone = list[Append](), True
        for one in submissions:
            appends.append(one.append)
            alone = alone and one.created.dedup_key is None and one.created.parent is None
        appends += others
        if alone:
            return self.ledger.append_all(appends, command=command)
        return self._record_with_keys(submissions, appends, command)

    def _record_with_keys(
        self, submissions: Sequence[Submission], appends: Sequence[Append], command: str | None
    ) -> Appended:
        """Record them with keys and parents, which other writers may change meanwhile."""
        fixed, opened = {append.stream for append in appends}, set[str]()

        def attempt() -> Appended | StreamConflict | GuardFailed:
            more = [*self._keys(submissions, command is not None), *self._parents(submissions, opened)]
            more = [append for append in more if append.stream not in fixed]
            try:
                return self.ledger.append_all([*appends, *more], command=command)
            except (StreamConflict, GuardFailed) as error:
                if error.stream in fixed:
                    return error
                opened.add(error.stream)
                raise StreamConflict(error.stream, "an unchanged key or parent", 0) from error

        result = retry_conflicts(attempt)
        if isinstance(result, Appended):
            return result
        raise result

    def _keys(self, submissions: Sequence[Submission], repeated: bool) -> list[Append]:
        appends: list[Append] = []
        taken: dict[str, str] = {}
        for one in submissions:
            if (key := one.created.dedup_key) is None:
                continue
            if taken.setdefault(key, one.id) != one.id:
                raise DuplicateJob(key, taken[key])
            appends += self._take(key, one.id, repeated)
        return appends

    def _take(self, key: str, id: str, repeated: bool = False) -> list[Append]:
        """The appends that give a key to a job, and that check that its last holder stays over.

        repeated: the job may be recorded already; then another holder is no error.
        Raises DuplicateJob if another job has the key.
        """
        opened = self.ledger.load(OpenKey, key)
        holder, checks = opened.state.job, list[Append]()
        if holder is not None and holder != id and not (repeated and self.ledger.load(OpenJob, id).version):
            other = self.ledger.load(OpenJob, holder)
            if other.state.status in ACTIVE:
                raise DuplicateJob(key, holder)
            checks = [Append(other.name, [], Exact(other.version))]
        opened.take(id)
        return [append_of(opened), *checks]

    def _parents(self, submissions: Sequence[Submission], opened: set[str]) -> list[Append]:
        """The appends that add children to parents that are not over. Raises BadInput, StreamNotFound.

        opened: streams of parents whose head does not hold their status; they are opened.
        """
        children: dict[str, list[str]] = {}
        for one in submissions:
            if one.created.parent is not None:
                children.setdefault(one.created.parent, []).append(one.id)
        return [self._parent(parent, ids, opened) for parent, ids in children.items()]

    def _parent(self, id: str, children: Sequence[str], opened: set[str]) -> Append:
        stream = OpenJob.name_of(id)
        if stream not in opened:
            return Append(stream, [body_of(JobChildAdded(child=child)) for child in children], NOT_OVER)
        parent = self._opened(id)
        for child in children:
            parent.add_child(child)
        return append_of(parent)

    # Read

    def get(self, id: str | UUID) -> Job:
        """The present state of a job, with its payload and meta. Raises StreamNotFound.

        progress_current of a job with batches or child jobs: how many of them have succeeded.
        """
        job = self._opened(id)
        (created,) = self.ledger.read(job.name, limit=1)
        fact = created.event
        assert isinstance(fact, JobCreated)
        state = replace(job.state, payload=FrozenDict(fact.payload), meta=FrozenDict(fact.meta))
        if not state.split or state.status == "succeeded":
            return state
        done = self.batch_statuses(state)["completed"] + self.child_statuses(state)["succeeded"]
        return replace(state, progress_current=done, progress_total=state.batches + len(state.children))

    def batch_statuses(self, job: Job) -> Counter[str]:
        """How many batches of the present round of a job are in each status, from their heads."""
        if job.rounds == 0:
            return Counter()
        prefix = OpenBatch.name_of(job.id, OpenBatch.number(job.rounds, 0))[:-1]
        return Counter(dict(self.ledger.query(SQL.batch_statuses, prefix=prefix)))

    def child_statuses(self, job: Job) -> Counter[str]:
        """How many child jobs of a job are in each status."""
        opened = self.ledger.load_each(OpenJob(child) for child in job.children)
        return Counter(str(one.state.status) for one in opened)

    def status(self, id: str | UUID) -> str:
        """The status of a job, from its head. Raises StreamNotFound."""
        name = OpenJob.name_of(checked_id(id))
        head = self.ledger.head(name)
        if head is None or head.status is None:
            return str(self._opened(id).state.status)
        return str(head.status)

    def events(self, id: str | UUID, *, after: int = 0, limit: int | None = None) -> list[Recorded]:
        """The facts of a job in order, after a version. Raises StreamNotFound."""
        return self.ledger.read(OpenJob.name_of(checked_id(id)), after=after, limit=limit)

    def result(self, id: str | UUID) -> Mapping[str, Any]:
        """The result of a job that succeeded. Raises JobUnsuccessful, StreamNotFound."""
        job = self._opened(id)
        if job.state.status != "succeeded":
            state = job.state
            raise JobUnsuccessful(state.id, str(state.status), state.error_code, state.error_message)
        for event in self.ledger.read(job.name, backwards=True):
            if isinstance(fact := event.event, JobSucceeded):
                return fact.result
        return FrozenDict()

    def wait(self, *ids: str | UUID, seconds: float | None = None) -> dict[str, str]:
        """Wait until jobs are over; returns their statuses then, or after so many seconds, by id.

        The jobs may run in other processes: all are read together, at least every 50 ms.
        Raises StreamNotFound.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        left, statuses = [checked_id(id) for id in ids], dict[str, str]()
        pause = 0.001
        while True:
            seen = self.ledger.wakeup.seen()
            statuses |= self._statuses(left)
            left = [id for id in left if statuses[id] not in TERMINAL]
            if not left or (deadline is not None and time.monotonic() >= deadline):
                return statuses
            rest = pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic()))
            self.ledger.wakeup.wait(seen, rest)
            pause = min(pause * 2, MAX_PAUSE)

    def _statuses(self, ids: list[str]) -> dict[str, str]:
        names = {OpenJob.name_of(id): id for id in ids}
        rows = self.ledger.query(SQL.statuses, streams=[*names])
        found = {names[stream]: str(status) for stream, status in rows if status is not None}
        return found | {id: self.status(id) for id in ids if id not in found}

    # Decide

    def cancel(self, id: str | UUID, reason: str | None = None) -> Job:
        """Cancel a job; one that is over stays as it is (spec C1-2). The cascade cancels its members.

        It does not conflict with anything that a worker records meanwhile.
        """

        def decide() -> Job:
            job = self._opened(id)
            if not job.cancel(reason):
                return job.state
            # The token is cleared whatever it is: a worker may have claimed the job a moment ago.
            append = append_of(job)._replace(expected=NOT_OVER, set_token=0)
            try:
                job.settle(self.ledger.append_all([append]).recorded_at)
            except GuardFailed:  # it has ended meanwhile, or its head does not hold its status
                self.ledger.commit(job)
            return job.state

        return retry_conflicts(decide)

    def retry(self, id: str | UUID, reason: str | None = None, *, whole: bool = False) -> Job:
        """Offer a failed job again; a unique one takes its key again. Raises MoveNotAllowed, DuplicateJob.

        If it had handed out batches, only those run again that did not complete; the job is then `running`.
        With `whole`, or where child jobs of it did not succeed, its operation runs again and hands out all.
        """

        def decide() -> Job:
            job = self._opened(id)
            if not whole and job.reopens and self._all_succeeded(job.state.children):
                job.reopen(reason)
            else:
                job.redrive(reason)
            key = job.state.dedup_key
            taken = [] if key is None else self._take(key, job.state.id)
            job.settle(self.ledger.append_all([append_of(job), *taken]).recorded_at)
            return job.state

        return retry_conflicts(decide)

    def _all_succeeded(self, jobs: Sequence[str]) -> bool:
        return set(self._statuses([*jobs]).values()) <= {"succeeded"}

    def discard(self, id: str | UUID, reason: str | None = None) -> Job:
        """Discard a failed job: it is no longer a dead letter, and stays failed."""
        return self._change(id, lambda job: job.discard(reason))

    def delete(self, id: str | UUID) -> Job:
        """Take a job out of the lists; its history stays. One that waits is cancelled with its members.

        Raises MoveNotAllowed while it runs: cancel it first (spec 2.7).
        """
        return self._change(id, lambda job: job.delete())

    def comment(self, id: str | UUID, text: str, author: str | None = None) -> Job:
        """Comment on a job (spec S1-03)."""
        return self._note(id, lambda job: job.comment(text, author))

    def describe(self, id: str | UUID, **fields: Any) -> Job:
        """Change a job's description, findings and tags."""
        return self._note(id, lambda job: job.describe(**fields))

    def _note(self, id: str | UUID, note: Callable[[OpenJob], object]) -> Job:
        """Record a note that changes no status, even while a worker reports continuously."""
        try:
            return self._change(id, note, attempts=NOTE_ATTEMPTS)
        except StreamConflict:
            job = self._opened(id)
            note(job)
            self.ledger.append_all([append_of(job)._replace(expected=EXISTS, status=None)])
            return self._opened(id).state

    def _change(self, id: str | UUID, change: Callable[[OpenJob], object], attempts: int = 10) -> Job:
        def decide() -> Job:
            job = self._opened(id)
            change(job)
            self.ledger.commit(job)
            return job.state

        return retry_conflicts(decide, attempts=attempts)

    # Queues and operations

    def pause(self, queue: str, reason: str | None = None) -> bool:
        """Pause a queue: no work is claimed from it. False if it is paused already."""
        return self._rule(OpenQueue, queue_name(queue), lambda opened: opened.pause(reason))

    def resume(self, queue: str) -> bool:
        """Resume a queue: work is claimed from it again. False if it is not paused."""
        return self._rule(OpenQueue, queue_name(queue), lambda opened: opened.resume())

    def queues(self) -> dict[str, Queue]:
        """The queues that were ever paused, by name, and whether they are now."""
        return self._rules("queue/", OpenQueue)

    def limit(
        self, operation: str, *, concurrency: int | None = None, rate: int | None = None, seconds: float = 1.0
    ) -> bool:
        """Limit an operation: how many run at once, and how many begin within `seconds`.

        Without either, its limits are removed. False where nothing changes. Raises BadInput.
        """
        if not operation or not isinstance(operation, str):
            raise BadInput("give the name of the operation to limit")
        return self._rule(OpenOperation, operation, lambda opened: opened.limit(concurrency, rate, seconds))

    def limits(self) -> dict[str, Limits]:
        """The operations that ever had limits, by name, with their present limits."""
        return self._rules("operation/", OpenOperation)

    def _rule(self, kind: type[S], name: str, rule: Callable[[S], bool]) -> bool:
        def decide() -> bool:
            opened = self.ledger.load(kind, name)
            changed = rule(opened)
            self.ledger.commit(opened)
            return changed

        return retry_conflicts(decide)

    def _rules(self, prefix: str, kind: type[Stream[Any, Any]]) -> dict[str, Any]:
        found = self.ledger.states((prefix, kind), unread=read.leave_out)[kind]
        return {split_name(name)[1][0]: state for name, _, state in sorted(found, key=lambda one: one[0])}

    def _opened(self, id: str | UUID) -> OpenJob:
        job = self.ledger.load(OpenJob, checked_id(id))
        if job.version == 0:
            raise StreamNotFound(job.name)
        return job


def prepare(
    operation: str,
    payload: Mapping[str, Any] | None = None,
    *,
    id: str | UUID | None = None,
    unique: bool | str = False,
    delay: float | timedelta | None = None,
    run_at: datetime | None = None,
    parent: str | UUID | None = None,
    command: str | None = None,
    **fields: Any,
) -> Submission:
    """A job to record, from the arguments of `submit`. Raises BadInput if no worker could run it."""
    if delay is not None and run_at is not None:
        raise BadInput("give delay or run_at, not both")
    if wrong := {"dedup_key", "delay_seconds"} & fields.keys():
        raise BadInput(f"{', '.join(sorted(wrong))} cannot be set directly: give `unique` or `delay`")
    given = plain("payload", payload)
    created = job_created(
        operation, payload=given, meta=plain("meta", fields.pop("meta", None)),
        dedup_key=None if unique is False else key_of(operation, given, unique),
        delay_seconds=delay, run_at=run_at, parent=None if parent is None else checked_id(parent), **fields,
    )  # fmt: skip
    if id is None and command is not None:
        id = uuid5(COMMANDS, command)
    return _submission(checked_id(id), created)


def _submission(id: str, created: JobCreated) -> Submission:
    """A new job with its first fact, and with its state for the head."""
    state = evolve(OpenJob.initial(id), created, Pending.clock())
    append = Append(
        OpenJob.name_of(id), [body_of(created)], NEW, state.status, dump(state),
        state_schema=OpenJob.state_schema(),
    )  # fmt: skip
    return Submission(id, created, append)


def job_within(operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Submission:
    """A job to record together with other facts, from the arguments of `submit`; it cannot be unique.

    Raises BadInput.
    """
    job = prepare(operation, payload, **fields)
    if job.created.dedup_key is not None:
        raise BadInput(
            "a job that is recorded with the outcome of an operation cannot be unique: its key may be taken, "
            "and the outcome would be lost; submit it with `Jobs(session.ledger)`"
        )
    return job


def key_of(operation: str, payload: Mapping[str, Any], unique: object) -> str:
    """The deduplication key for `unique`, which is not False. Raises BadInput, BadName."""
    if unique is True:
        return dedup_key(operation, payload)
    if not isinstance(unique, str) or not unique:
        raise BadInput(f"unique {shown(unique)} must be True, False, or a key: text that is not empty")
    OpenKey.name_of(unique)
    return unique


def plain(what: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """A mapping as it is stored: only JSON. Raises BadBody, which names the invalid part."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} {shown(value)} must be a mapping")
    read: dict[str, Any] = json.loads(canonical_json.body(dict(value)))
    return read


def checked_id(id: str | UUID | None) -> str:
    """A job's id in its canonical spelling; a new one for None. Raises BadInput."""
    if id is None:
        return str(uuid4())
    try:
        return str(id if isinstance(id, UUID) else UUID(id))
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f"{shown(id)} is not a job id: it must be a UUID") from None


def _checked(one: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(one, Mapping):
        raise BadInput(f"{shown(one)} must be a mapping with the arguments of `submit`, at least `operation`")
    if "command" in one:
        raise BadInput("give one command id for all jobs together, not one per job")
    return one
