"""
A reactor that submits one job for each event of a class, exactly once.

    submit_when(log, OCTMosaicReady, "stitch_mosaic").run()

The job's id and command id are derived from the reactor's name and the position of the event. So a reactor
that was killed, or two that run side by side, submit the same job, and the ledger records it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ledger import NEW, BadInput, Cursor, Event, Ledger, Recorded, split_name
from ledger.domain.known import KNOWN
from ledger.errors import shown
from ledger.jobs.jobs import job_within
from ledger.pipelines.readiness import BecameReady, OpenReadiness

from ..reactor import Answer, Reactor

PayloadOf = Callable[[Recorded], Mapping[str, Any] | None]
"""The payload of the job, from the recorded event and the log before it; None: no job."""


def submit_when(
    ledger: Ledger,
    fact: type[Event],
    operation: str,
    payload: PayloadOf | None = None,
    *,
    name: str | None = None,
    after: int | Cursor = 0,
    **fields: Any,
) -> Reactor:
    """The reactor that submits a job of `operation` for each event of the class `fact`, exactly once.

    payload: of the recorded event, the job's payload; None submits nothing. It must follow from the log up to
    that event. A fact of readiness needs none: its job gets project_name, the ids of what is ready
    (`slice_id`, `mosaic_id`, …) and `round`, from 1: how often it was ready by then. name: of the reactor,
    else made of topic and operation. after: where it begins when it never ran; by default at the start of the
    log, so it submits for earlier events too. fields: of each job, as in `Jobs.submit`: queue,
    priority, tags, max_attempts, delay, …, but not unique, id, command and parent.
    Raises BadInput.
    """
    topic = _topic_of(fact, payload, operation, fields)
    named = name or f"{topic}.submits.{operation}"
    make = payload or ready_payload

    def answers(event: Recorded) -> Iterable[Answer]:
        given = make(event)
        if given is not None:
            job = job_within(operation, given, command=f"{named}:{event.position}", **fields)
            yield Answer(job.append.stream, [job.created], expected=NEW)

    return Reactor(ledger, named, answers, topics={topic}, after=after)


def _topic_of(fact: type[Event], payload: PayloadOf | None, operation: str, fields: Mapping[str, Any]) -> str:
    """The topic of the events. Raises BadInput at once for a job that no worker could run."""
    topic: str | None = getattr(fact, "topic", None)
    if not topic:
        raise BadInput(f"{shown(fact)} must be a class of facts with a topic, such as OCTMosaicReady")
    if payload is None and not issubclass(fact, BecameReady):
        raise BadInput(
            f"give a payload, a function of the recorded event: {topic} is not a fact of readiness"
        )
    if wrong := sorted({"id", "command", "parent"} & fields.keys()):
        raise BadInput(
            f"{', '.join(wrong)} cannot be given: each job gets its own id and command id, and has no parent"
        )
    job_within(operation, {}, **fields)
    return topic


def ready_payload(event: Recorded) -> dict[str, Any]:
    """Of a fact of readiness: which item was ready, and how often by then."""
    category, parts = split_name(event.stream)
    kind = KNOWN.streams.get(category)
    if kind is None or not issubclass(kind, OpenReadiness):
        raise BadInput(f"{event.stream} is not a stream of readiness")
    ids = kind.PARENT.IDENT.fields()
    return {**dict(zip(ids, kind.PARENT.key_of(parts), strict=True)), "round": event.version}
