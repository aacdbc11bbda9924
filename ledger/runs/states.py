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
from . import fields
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

_DETAILS: Final = {
    "flow_run_id": (fields.uuid, None),
    "task_run_id": (fields.uuid, None),
    "child_flow_run_id": (fields.uuid, None),
    "scheduled_time": (fields.time, None),
    "cache_key": (fields.text, None),
    "cache_expiration": (fields.time, None),
    "deferred": (fields.flag, False),
    "untrackable_result": (fields.flag, False),
    "pause_timeout": (fields.time, None),
    "pause_reschedule": (fields.flag, False),
    "pause_key": (fields.text, None),
    "run_input_keyset": (fields.texts_by_name, None),
    "refresh_cache": (fields.flag, None),
    "retriable": (fields.flag, None),
    "transition_id": (fields.uuid, None),
    "task_parameters_id": (fields.uuid, None),
    "traceparent": (fields.text, None),
    "deployment_concurrency_lease_id": (fields.uuid, None),
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
        timestamp = (at or Pending.clock()) if claimed is None else fields.time_read(claimed, "timestamp")
        return cls(
            new_id() if json.get("id") is None else checked_uuid(json["id"]),
            kind,
            kind.capitalize() if name is None else fields.text(name, "state name"),
            timestamp,
            None if message is None else fields.text(message, "message"),
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


# Constructors, by the names in use (spec S3-23). `more`: message, data, state_details.


def _made(kind: StateType, name: str | None, more: Mapping[str, Any]) -> State:
    unknown = more.keys() - {"message", "data", "state_details"}
    if unknown:
        raise BadInput(f"a state has no field {', '.join(sorted(unknown))}")
    return State.of({"type": kind, "name": name, **more})


def scheduled(at: datetime | None = None, name: str | None = None, **more: Any) -> State:
    """Scheduled to start at a time, by default now. Raises BadInput for two times (spec S3-24)."""
    details = dict(more.pop("state_details", None) or {})
    if at is not None and details.get("scheduled_time") is not None:
        raise BadInput("the scheduled time was given twice: as an argument and in state_details")
    if at is not None:
        details["scheduled_time"] = at
    return _made(StateType.SCHEDULED, name, {**more, "state_details": details})


def late(at: datetime | None = None, **more: Any) -> State:
    """Scheduled for a time that has passed."""
    return scheduled(at, "Late", **more)


def awaiting_retry(at: datetime | None = None, **more: Any) -> State:
    """Scheduled to run once more after a failure."""
    return scheduled(at, "AwaitingRetry", **more)


def awaiting_concurrency_slot(at: datetime | None = None, **more: Any) -> State:
    """Scheduled to ask again for a slot of a concurrency limit."""
    return scheduled(at, "AwaitingConcurrencySlot", **more)


def resuming(at: datetime | None = None, **more: Any) -> State:
    """Scheduled to go on after it was suspended."""
    return scheduled(at, "Resuming", **more)


def pending(name: str | None = None, **more: Any) -> State:
    """About to run."""
    return _made(StateType.PENDING, name, more)


def submitting(**more: Any) -> State:
    """About to run: a worker submits it."""
    return pending("Submitting", **more)


def infrastructure_pending(**more: Any) -> State:
    """About to run: its infrastructure starts."""
    return pending("InfrastructurePending", **more)


def running(name: str | None = None, **more: Any) -> State:
    """Running."""
    return _made(StateType.RUNNING, name, more)


def retrying(**more: Any) -> State:
    """Running again, after it awaited a retry."""
    return running("Retrying", **more)


def completed(name: str | None = None, **more: Any) -> State:
    """Over, with success."""
    return _made(StateType.COMPLETED, name, more)


def failed(name: str | None = None, **more: Any) -> State:
    """Over: its code raised."""
    return _made(StateType.FAILED, name, more)


def crashed(name: str | None = None, **more: Any) -> State:
    """Over: its process or infrastructure failed."""
    return _made(StateType.CRASHED, name, more)


def cancelled(name: str | None = None, **more: Any) -> State:
    """Over: it was cancelled."""
    return _made(StateType.CANCELLED, name, more)


def cancelling(name: str | None = None, **more: Any) -> State:
    """Its infrastructure shall be stopped."""
    return _made(StateType.CANCELLING, name, more)


def paused(
    name: str | None = None,
    *,
    timeout_seconds: float | None = None,
    expires_at: datetime | None = None,
    reschedule: bool = False,
    key: str | None = None,
    **more: Any,
) -> State:
    """Paused until it is resumed, or fails at the timeout.

    reschedule: its process ends, and it is scheduled again when it is resumed. Raises BadInput where the
    timeout is given twice (spec S3-24).
    """
    details = dict(more.pop("state_details", None) or {})
    given = [timeout_seconds is not None, expires_at is not None, details.get("pause_timeout") is not None]
    if sum(given) > 1:
        raise BadInput("give one of timeout_seconds, expires_at and the pause_timeout in state_details")
    if timeout_seconds is not None:
        expires_at = datetime.now(UTC) + timedelta(seconds=timeout_seconds)
    if expires_at is not None:
        details["pause_timeout"] = expires_at
    details |= {"pause_reschedule": reschedule, "pause_key": key}
    return _made(StateType.PAUSED, name, {**more, "state_details": details})


def suspended(**more: Any) -> State:
    """Paused, its process has ended; `more` as in `paused`."""
    return paused("Suspended", reschedule=True, **more)
