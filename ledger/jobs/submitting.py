"""The half of `Jobs` that submits: what is refused before it is sent, and what is recorded with a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4, uuid5

from .. import canon
from ..append import Append, Appended, append_of, body_of
from ..errors import BadInput, DuplicateJob, GuardFailed, StreamConflict, StreamNotFound, shown
from ..expected import Exact, Guard
from ..store.ledger import Ledger
from .checking import moment, seconds_of
from .job import ACTIVE, JobChildAdded, OpenJob
from .unique import OpenKey, dedup_key

TRIES: Final = 50
"""How often a decision is taken anew because another writer came first."""
PIECE: Final = 1000
"""Jobs in one append, at most: a larger one would stall the readers of the log."""
COMMANDS: Final = UUID("5d7bb7f7-8f0e-5c0c-9b0e-5a52f1a4f7c1")
"""The namespace of ids that follow from a command id."""


class Made(NamedTuple):
    """A job that is ready to be recorded, its append, and the key that it takes."""

    job: OpenJob
    append: Append
    key: str | None

    @property
    def id(self) -> str:
        return self.job.state.id


class Submitting:
    """The half of `Jobs` that submits."""

    ledger: Ledger

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

        id: a UUID of the caller's, else a new one. unique: at most one such job queued or running; True takes
        the key of operation and payload, a text is the key. delay: seconds from when it is recorded, by the
        database's clock; run_at: not before, a time with its zone. parent: the id of the job that it is a
        child of, which must not be over. command: submitted once, however often this is called, and the id
        follows from it. fields: as in JobCreated: queue, meta, priority, description, tags, max_attempts,
        max_retries, max_requeues, timeout_seconds.
        Raises BadInput before anything is sent, DuplicateJob, StreamNotFound for an unknown parent,
        StreamConflict for an id that is taken, CommandReused.
        """
        given = {"id": id, "unique": unique, "delay": delay, "run_at": run_at, "parent": parent, **fields}
        made = job_of(operation, payload, command=command, **given)
        self.record([made], command=command)
        return made.id

    def submit_many(
        self, submissions: Iterable[Mapping[str, Any]], *, command: str | None = None
    ) -> list[str]:
        """Submit many jobs, a thousand in one append; their ids, in order.

        Each is a mapping of what `submit` takes: `{"operation": …, "payload": …, "queue": …}`. All are looked
        at before the first is sent; an append is recorded whole or not at all. command: as in `submit`, for
        all of them together. Raises as `submit`.
        """
        made = [
            job_of(**{"operation": "", **one}, command=command and f"{command}:{nth}")
            for nth, one in enumerate(map(_checked, submissions))
        ]
        rest = iter(made)
        for nth, piece in enumerate(iter(lambda: [*islice(rest, PIECE)], [])):
            self.record(piece, command=command and f"{command}:{nth}")
        return [one.id for one in made]

    def record(
        self, made: Sequence[Made], others: Sequence[Append] = (), *, command: str | None = None
    ) -> Appended:
        """Record jobs, in one append with the keys that they take, what their parents hear, and others.

        Raises StreamConflict where an id is taken, or another stream is not at what was expected.
        """
        fixed = {one.job.name for one in made} | {other.stream for other in others}
        parents = {one.job.state.parent for one in made} - {None}
        exactly: set[str] = set()
        for _ in range(TRIES):
            more = [*self._keys(made, command is not None), *self._parents(made, exactly)]
            appends = [*(one.append for one in made), *others, *(a for a in more if a.stream not in fixed)]
            try:
                return self.ledger.append_all(appends, command=command)
            except (StreamConflict, GuardFailed) as error:
                if error.stream in fixed:
                    raise
                exactly |= {p for p in parents if p and OpenJob.name_of(p) == error.stream}
        raise StreamConflict(made[0].job.name, "keys and parents that nobody else changes", 0)

    def _keys(self, made: Sequence[Made], repeated: bool) -> list[Append]:
        appends: list[Append] = []
        taken: dict[str, str] = {}
        for id, key in ((one.id, one.key) for one in made if one.key is not None):
            if taken.setdefault(key, id) != id:
                raise DuplicateJob(key, taken[key])
            appends += self._take(key, id, repeated)
        return appends

    def _take(self, key: str, id: str, repeated: bool = False) -> list[Append]:
        """The appends that give a key to a job: it hears so, and the one before stays over meanwhile.

        repeated: the job may be recorded already; then it is not asked who has the key now.
        Raises DuplicateJob where another has it.
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

    def _parents(self, made: Sequence[Made], exactly: set[str]) -> list[Append]:
        """Parents hear of their children, unless they are over.

        exactly: ids of those whose head did not say that they are not; they are opened. Raises BadInput.
        """
        children: dict[str, list[str]] = {}
        for one in made:
            if one.job.state.parent is not None:
                children.setdefault(one.job.state.parent, []).append(one.id)
        appends = []
        for parent, ids in children.items():
            if parent in exactly:
                opened = self.ledger.load(OpenJob, parent)
                if not opened.version:
                    raise StreamNotFound(opened.name)
                for id in ids:
                    opened.add_child(id)
                appends.append(append_of(opened))
            else:
                bodies = [body_of(JobChildAdded(child=id)) for id in ids]
                appends.append(Append(OpenJob.name_of(parent), bodies, Guard(frozenset(map(str, ACTIVE)))))
        return appends


def job_of(
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
) -> Made:
    """A job that can be recorded, of what `submit` takes. Raises BadInput for one that nobody could run."""
    if delay is not None and run_at is not None:
        raise BadInput("give delay or run_at, not both")
    if wrong := {"dedup_key", "delay_seconds"} & fields.keys():
        raise BadInput(f"{', '.join(sorted(wrong))}: a job is given `unique`, and `delay`")
    given = plain("payload", payload)
    key = key_of(operation, given, unique)
    if id is None and command is not None:
        id = uuid5(COMMANDS, command)
    job = OpenJob(checked_id(id))
    job.create(
        operation, payload=given, delay_seconds=seconds_of(delay), run_at=moment(run_at), dedup_key=key,
        parent=None if parent is None else checked_id(parent), meta=plain("meta", fields.pop("meta", None)),
        **fields,
    )  # fmt: skip
    return Made(job, append_of(job), key)


def job_within(operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> OpenJob:
    """A job that is recorded together with something else, of what `submit` takes; it cannot be unique.

    Raises BadInput.
    """
    made = job_of(operation, payload, **fields)
    if made.key is not None:
        raise BadInput(
            "a job that is recorded with the outcome of an operation cannot be unique: its key may be taken, "
            "and the outcome would be lost; submit it with `Jobs(session.ledger)`"
        )
    return made.job


def key_of(operation: str, payload: Mapping[str, Any], unique: object) -> str | None:
    """The deduplication key that `unique` asks for. Raises BadInput, BadName."""
    if unique is False or unique is True:
        return dedup_key(operation, payload) if unique else None
    if not isinstance(unique, str) or not unique:
        raise BadInput(f"unique {shown(unique)} must be True, False, or a key: text that is not empty")
    OpenKey.name_of(unique)
    return unique


def plain(what: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """A mapping as it is stored: JSON and nothing else. Raises BadBody, which says where it is not."""
    if value is not None and not isinstance(value, Mapping):
        raise BadInput(f"{what} {shown(value)} must be a mapping")
    read: dict[str, Any] = json.loads(canon.body(dict(value or {})))
    return read


def checked_id(id: str | UUID | None) -> str:
    """A job's id in its one spelling; a new one for None. Raises BadInput."""
    if id is None:
        return str(uuid4())
    try:
        return str(id if isinstance(id, UUID) else UUID(id))
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f"{shown(id)} is no id of a job: it must be a UUID") from None


def _checked(one: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(one, Mapping):
        raise BadInput(f"{shown(one)} must be a mapping of what `submit` takes, with its operation")
    if "command" in one:
        raise BadInput("a command id is given once, for all jobs together")
    return one
