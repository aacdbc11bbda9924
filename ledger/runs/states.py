"""
States of flow runs and task runs (spec 4.3): their types and names, their JSON form, their constructors.

    State.of({"type": "SCHEDULED"})               as a client sends it
    awaiting_retry(at, message="once more")       as a rule makes it
    state.shown()                                 as a client reads it

Who proposes a state may claim its time. A state without a claimed time gets the database's time of the append
that records it; until then it shows this process's clock (`ledger.domain.state.Pending`). The order of the
states of a run is the order of the log, never these times (spec W3-02).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

from ..domain.frozen import FrozenDict, changed, frozen
from ..domain.state import Pending
from ..errors import BadInput, shown
from .json_values import checked_uuid, kept, new_id, time_text


class StateType(StrEnum):
    """The types of states (spec S3-20)."""

    SCHEDULED = "SCHEDULED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    CRASHED = "CRASHED"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"


TERMINAL: Final = frozenset({StateType.COMPLETED, StateType.CANCELLED, StateType.FAILED, StateType.CRASHED})
"""The types in which a run is over."""

# Values: how they are read from a client's JSON.


def time_read(value: Any, what: str = "time") -> datetime:
    """A time of a client's JSON: ISO 8601 with its offset, `T` or a space between date and time; in UTC.

    Raises BadInput, also for a time without an offset (spec S3-02).
    """
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadInput(f"{what} {shown(value)} must be a time in ISO 8601 with its offset from UTC") from None
    if found.utcoffset() is None:
        raise BadInput(f"{what} {shown(value)} has no offset from UTC: write it with Z or +00:00")
    return found if found.tzinfo is UTC else found.astimezone(UTC)


def _id(value: Any, _what: str) -> str:
    return checked_uuid(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{what} {shown(value)} must be text")
    return value


def _time(value: Any, what: str) -> str:
    return time_text(time_read(value, what))


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{what} {shown(value)} must be true or false")
    return value


def _texts(value: Any, what: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise BadInput(f"{what} {shown(value)} must be an object of texts")
    return value


_DETAILS: Final = {
    "flow_run_id": (_id, None),
    "task_run_id": (_id, None),
    "child_flow_run_id": (_id, None),
    "scheduled_time": (_time, None),
    "cache_key": (_text, None),
    "cache_expiration": (_time, None),
    "deferred": (_flag, False),
    "untrackable_result": (_flag, False),
    "pause_timeout": (_time, None),
    "pause_reschedule": (_flag, False),
    "pause_key": (_text, None),
    "run_input_keyset": (_texts, None),
    "refresh_cache": (_flag, None),
    "retriable": (_flag, None),
    "transition_id": (_id, None),
    "task_parameters_id": (_id, None),
    "traceparent": (_text, None),
    "deployment_concurrency_lease_id": (_id, None),
}
"""The details of a state (spec S3-22): how each is read, and its default."""
_DEFAULTS: Final = {name: default for name, (_, default) in _DETAILS.items()}


def _details_read(given: Any) -> FrozenDict[str, Any]:
    """The known details that differ from their defaults. Raises BadInput."""
    if given is None:
        return FrozenDict()
    if not isinstance(given, Mapping):
        raise BadInput(f"state_details {shown(given)} must be an object")
    read = {}
    for name, value in given.items():
        reader, default = _DETAILS.get(name, (None, None))
        if reader is not None and value is not None and value != default:
            read[name] = frozen(reader(value, name))
    return FrozenDict(read)


# The state.


@dataclass(frozen=True, slots=True)
class State:
    """A state of a run. timestamp: claimed by the client, or the database's time of the append.

    data: any JSON value, such as the reference to a result. state_details: the details of spec S3-22 that
    differ from their defaults, as JSON values; read one with `detail`.
    """

    id: str
    type: StateType
    name: str
    timestamp: datetime
    message: str | None = None
    data: Any = None
    state_details: Mapping[str, Any] = field(default=FrozenDict())

    @classmethod
    def of(cls, json: Mapping[str, Any], at: datetime | None = None) -> Self:
        """The state in a client's JSON; unknown fields are ignored.

        A missing id, name or scheduled time is filled in (spec S3-21). at: its time where it claims none; by
        default that of the coming append. Raises BadInput.
        """
        if not isinstance(json, Mapping):
            raise BadInput(f"a state {shown(json)} must be an object")
        try:
            kind = StateType(json.get("type"))  # type: ignore[arg-type]
        except ValueError:
            raise BadInput(
                f"state type {shown(json.get('type'))} must be one of {', '.join(StateType)}"
            ) from None
        name, message, claimed = json.get("name"), json.get("message"), json.get("timestamp")
        timestamp = (at or Pending.clock()) if claimed is None else time_read(claimed, "timestamp")
        return cls(
            new_id() if json.get("id") is None else checked_uuid(json["id"]),
            kind,
            kind.capitalize() if name is None else _text(name, "state name"),
            timestamp,
            None if message is None else _text(message, "message"),
            frozen(kept(json.get("data"))),
            _scheduled_by_default(kind, timestamp, _details_read(json.get("state_details"))),
        )

    @property
    def is_terminal(self) -> bool:
        """Whether a run is over in it."""
        return self.type in TERMINAL

    def detail(self, name: str) -> Any:
        """A detail as its JSON value, or its default. Raises KeyError for a name that spec S3-22 lacks."""
        return self.state_details.get(name, _DEFAULTS[name])

    def time_of(self, name: str) -> datetime | None:
        """A detail that is a time."""
        value = self.detail(name)
        return None if value is None else datetime.fromisoformat(value)

    @property
    def scheduled_time(self) -> datetime | None:
        """When the run shall start."""
        return self.time_of("scheduled_time")

    def with_details(self, **details: Any) -> Self:
        """The same state with some details changed; None takes one away. Raises BadInput."""
        return changed(self, state_details=_details_read({**self.state_details, **details}))

    def shown(self) -> dict[str, Any]:
        """Its JSON form, as clients read it."""
        return {
            "id": self.id,
            "type": self.type.value,
            "name": self.name,
            "timestamp": time_text(self.timestamp),
            "message": self.message,
            "data": self.data,
            "state_details": {**_DEFAULTS, **self.state_details},
        }

    def recorded(self) -> dict[str, Any]:
        """Its JSON form in a fact: without defaults, and without a time that only the append will give."""
        kept: dict[str, Any] = {"id": self.id, "type": self.type.value, "name": self.name}
        if type(self.timestamp) is not Pending:
            kept["timestamp"] = time_text(self.timestamp)
        if self.message is not None:
            kept["message"] = self.message
        if self.data is not None:
            kept["data"] = self.data
        if self.state_details:
            kept["state_details"] = self.state_details
        return kept

    def fresh_copy(self) -> Self:
        """The same content with a new id and a new time (spec S3-25)."""
        return changed(self, id=new_id(), timestamp=Pending.clock())

    @property
    def has_result(self) -> bool:
        """Whether it holds the reference to a persisted result, which a later state must not lose."""
        return isinstance(self.data, Mapping) and bool(self.data) and self.data.get("type") != "unpersisted"


def _scheduled_by_default(
    kind: StateType, timestamp: datetime, details: FrozenDict[str, Any]
) -> FrozenDict[str, Any]:
    if kind is not StateType.SCHEDULED or "scheduled_time" in details:
        return details
    return FrozenDict({**details, "scheduled_time": time_text(timestamp)})


# Constructors, by the names in use (spec S3-23). `fields`: message, data, state_details.


def _made(kind: StateType, name: str | None, fields: Mapping[str, Any]) -> State:
    unknown = fields.keys() - {"message", "data", "state_details"}
    if unknown:
        raise BadInput(f"a state has no field {', '.join(sorted(unknown))}")
    return State.of({"type": kind, "name": name, **fields})


def scheduled(at: datetime | None = None, name: str | None = None, **fields: Any) -> State:
    """Scheduled to start at a time, by default now. Raises BadInput for two times (spec S3-24)."""
    details = dict(fields.pop("state_details", None) or {})
    if at is not None and details.get("scheduled_time") is not None:
        raise BadInput("the scheduled time was given twice: as an argument and in state_details")
    if at is not None:
        details["scheduled_time"] = at
    return _made(StateType.SCHEDULED, name, {**fields, "state_details": details})


def late(at: datetime | None = None, **fields: Any) -> State:
    """Scheduled for a time that has passed."""
    return scheduled(at, "Late", **fields)


def awaiting_retry(at: datetime | None = None, **fields: Any) -> State:
    """Scheduled to run once more after a failure."""
    return scheduled(at, "AwaitingRetry", **fields)


def awaiting_concurrency_slot(at: datetime | None = None, **fields: Any) -> State:
    """Scheduled to ask again for a slot of a concurrency limit."""
    return scheduled(at, "AwaitingConcurrencySlot", **fields)


def resuming(at: datetime | None = None, **fields: Any) -> State:
    """Scheduled to go on after it was suspended."""
    return scheduled(at, "Resuming", **fields)


def pending(name: str | None = None, **fields: Any) -> State:
    """About to run."""
    return _made(StateType.PENDING, name, fields)


def submitting(**fields: Any) -> State:
    """About to run: a worker submits it."""
    return pending("Submitting", **fields)


def infrastructure_pending(**fields: Any) -> State:
    """About to run: its infrastructure starts."""
    return pending("InfrastructurePending", **fields)


def running(name: str | None = None, **fields: Any) -> State:
    """Running."""
    return _made(StateType.RUNNING, name, fields)


def retrying(**fields: Any) -> State:
    """Running again, after it awaited a retry."""
    return running("Retrying", **fields)


def completed(name: str | None = None, **fields: Any) -> State:
    """Over, with success."""
    return _made(StateType.COMPLETED, name, fields)


def failed(name: str | None = None, **fields: Any) -> State:
    """Over: its code raised."""
    return _made(StateType.FAILED, name, fields)


def crashed(name: str | None = None, **fields: Any) -> State:
    """Over: its process or infrastructure failed."""
    return _made(StateType.CRASHED, name, fields)


def cancelled(name: str | None = None, **fields: Any) -> State:
    """Over: it was cancelled."""
    return _made(StateType.CANCELLED, name, fields)


def cancelling(name: str | None = None, **fields: Any) -> State:
    """Its infrastructure shall be stopped."""
    return _made(StateType.CANCELLING, name, fields)


def paused(
    name: str | None = None,
    *,
    timeout_seconds: float | None = None,
    expires_at: datetime | None = None,
    reschedule: bool = False,
    key: str | None = None,
    **fields: Any,
) -> State:
    """Paused until it is resumed, or fails at the timeout.

    reschedule: its process ends, and it is scheduled again when it is resumed. Raises BadInput where the
    timeout is given twice (spec S3-24).
    """
    details = dict(fields.pop("state_details", None) or {})
    given = [timeout_seconds is not None, expires_at is not None, details.get("pause_timeout") is not None]
    if sum(given) > 1:
        raise BadInput("give one of timeout_seconds, expires_at and the pause_timeout in state_details")
    if timeout_seconds is not None:
        expires_at = datetime.now(UTC) + timedelta(seconds=timeout_seconds)
    if expires_at is not None:
        details["pause_timeout"] = expires_at
    details |= {"pause_reschedule": reschedule, "pause_key": key}
    return _made(StateType.PAUSED, name, {**fields, "state_details": details})


def suspended(**fields: Any) -> State:
    """Paused, its process has ended; `fields` as in `paused`."""
    return paused("Suspended", reschedule=True, **fields)
