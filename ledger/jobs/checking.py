"""What is refused before work is recorded: names, numbers and times with which nobody could run it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import BadInput, shown
from ..names import stream_name

LONGEST: Final = timedelta(days=36525)
"""How long work may be put off at most: a hundred years, so that every time can be told in every zone."""
_LONGEST: Final = LONGEST.total_seconds()
LARGEST: Final = 2**31 - 1
"""Largest priority and budget; the smallest priority is one below its negative."""
WRONGS: Final = 5
"""Faults of a field that are told, at most."""

M = TypeVar("M", bound=BaseModel)


class Offered(Protocol):
    """A fact that offers work: as JobCreated and BatchQueued."""

    @property
    def operation(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def timeout_seconds(self) -> float | None: ...


def made(kind: type[M], what: str, fields: Mapping[str, Any]) -> M:
    """A fact of these fields. Raises BadInput, which names what does not fit, and where."""
    try:
        return kind(**fields)
    except ValidationError as error:
        wrongs = [f"{'.'.join(map(str, one['loc'][:4]))}: {one['msg']}" for one in error.errors()[:WRONGS]]
        raise BadInput(f"{what} is not as it should be: {'; '.join(dict.fromkeys(wrongs))}") from None
    except TypeError as error:  # a field whose name is no text
        raise BadInput(f"{what} is not as it should be: {error}") from None


def check_offered(fact: Offered) -> None:
    """Refuse work that no worker could take. Raises BadInput, BadName."""
    if not fact.operation or not fact.queue:
        raise BadInput("a job needs the name of an operation, and of a queue")
    stream_name("operation", fact.operation)
    stream_name("queue", fact.queue)
    if not -LARGEST - 1 <= fact.priority <= LARGEST:
        raise BadInput(f"priority {shown(fact.priority)} must be an integer of 32 bits; 0 is the usual one")
    for name, least in (("max_attempts", 1), ("max_retries", 0), ("max_requeues", 0)):
        if not least <= getattr(fact, name) <= LARGEST:
            raise BadInput(f"{name} {shown(getattr(fact, name))} must be {least} or more, {LARGEST} at most")
    if fact.timeout_seconds is not None and not fact.timeout_seconds > 0:
        raise BadInput("timeout_seconds must be more than 0; leave it out for no limit")


def queue_name(queue: object) -> str:
    """A queue's name in its one spelling, without white space around (spec 2.7). Raises BadInput, BadName."""
    if not isinstance(queue, str) or not queue.strip():
        raise BadInput(f"queue {shown(queue)} must be text that is not empty")
    stream_name("queue", queue.strip())
    return queue.strip()


def seconds_of(delay: object) -> float:
    """A delay in seconds, 0 for None. Raises BadInput for one that is no time to wait."""
    if delay is None:
        return 0.0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, int | float) and type(seconds) is not bool and 0 <= seconds <= _LONGEST:
        return float(seconds)
    raise BadInput(f"delay {shown(delay)} must be seconds, 0 or more, or a timedelta; 100 years at most")


def moment(run_at: object) -> datetime | None:
    """A time in UTC. Raises BadInput for one without a zone, or beyond what can be told in every zone."""
    if run_at is None:
        return None
    if not isinstance(run_at, datetime) or run_at.utcoffset() is None:
        raise BadInput(
            f"run_at {shown(run_at)} must be a datetime with a time zone, such as datetime.now(UTC)"
        )
    try:
        at = run_at.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    if not 1970 <= at.year < 9000:
        raise BadInput(f"run_at {run_at.isoformat()} must lie between the years 1970 and 9000")
    return at
