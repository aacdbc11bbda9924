"""The policies of runs: how often they retry, and what is known of pauses (spec 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..errors import BadInput, shown

MAX_DELAYS = 50
"""Most retry delays of a task (spec S3-31)."""


@dataclass(frozen=True, slots=True)
class FlowRunPolicy:
    """The policy of a flow run (spec S3-30). retry_delay: seconds.

    pause_keys: of the pauses that it was in. resuming: it was paused, and has not run since. retry_type:
    `in_process` or `reschedule`.
    """

    max_retries: int = 0
    retry_delay_seconds: float = 0.0
    retries: int | None = None
    retry_delay: int | None = None
    pause_keys: tuple[str, ...] = ()
    resuming: bool = False
    retry_type: str | None = None

    @classmethod
    def of(cls, json: Mapping[str, Any] | None) -> Self:
        """The policy in a client's JSON; the deprecated fields fill what is not set. Raises BadInput."""
        given = _given(json)
        retry_type = given.get("retry_type")
        if retry_type not in (None, "in_process", "reschedule"):
            raise BadInput(f"retry_type {shown(retry_type)} must be in_process or reschedule")
        delay = _number(given, "retry_delay", None)
        return cls(
            max_retries=_count(given, "max_retries", 0) or 0,
            retry_delay_seconds=_number(given, "retry_delay_seconds", None) or 0.0,
            retries=_count(given, "retries", None),
            retry_delay=None if delay is None else int(delay),
            pause_keys=tuple(sorted(map(str, given.get("pause_keys") or ()))),
            resuming=bool(given.get("resuming")),
            retry_type=retry_type,
        )

    def shown(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "max_retries": self.max_retries,
            "retry_delay_seconds": self.retry_delay_seconds,
            "retries": self.retries,
            "retry_delay": self.retry_delay,
            "pause_keys": list(self.pause_keys),
            "resuming": self.resuming,
            "retry_type": self.retry_type,
        }


@dataclass(frozen=True, slots=True)
class TaskRunPolicy:
    """The policy of a task run (spec S3-31). retry_delay: seconds, or one delay for each retry."""

    max_retries: int = 0
    retry_delay_seconds: float = 0.0
    retries: int | None = None
    retry_delay: float | tuple[float, ...] | None = None
    retry_jitter_factor: float | None = None

    @classmethod
    def of(cls, json: Mapping[str, Any] | None) -> Self:
        """The policy in a client's JSON; the deprecated fields fill what is not set. Raises BadInput."""
        given = _given(json)
        jitter = _number(given, "retry_jitter_factor", None)
        if jitter is not None and jitter < 0:
            raise BadInput(f"retry_jitter_factor {jitter} must not be negative")
        return cls(
            max_retries=_count(given, "max_retries", 0) or 0,
            retry_delay_seconds=_number(given, "retry_delay_seconds", None) or 0.0,
            retries=_count(given, "retries", None),
            retry_delay=_delays(given),
            retry_jitter_factor=jitter,
        )

    def shown(self) -> dict[str, Any]:
        """Its JSON form."""
        delay = self.retry_delay
        return {
            "max_retries": self.max_retries,
            "retry_delay_seconds": self.retry_delay_seconds,
            "retries": self.retries,
            "retry_delay": list(delay) if isinstance(delay, tuple) else delay,
            "retry_jitter_factor": self.retry_jitter_factor,
        }

    def delay_before(self, attempt: int) -> float:
        """Seconds before a further attempt after so many; the last delay of a list is repeated."""
        delay = self.retry_delay
        if isinstance(delay, tuple):
            return delay[max(0, min(attempt - 1, len(delay) - 1))] if delay else 0.0
        return delay or 0.0


def _given(json: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that are set, with `retries` and `retry_delay` filled from the deprecated ones."""
    if json is not None and not isinstance(json, Mapping):
        raise BadInput(f"empirical_policy {shown(json)} must be an object")
    given = {name: value for name, value in (json or {}).items() if value is not None}
    if "retries" not in given and given.get("max_retries"):
        given["retries"] = given["max_retries"]
    if "retry_delay" not in given and given.get("retry_delay_seconds"):
        given["retry_delay"] = given["retry_delay_seconds"]
    return given


def _count(given: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = given.get(name, default)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadInput(f"{name} {shown(value)} must be an integer")


def _number(given: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = given.get(name, default)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)  # as it is read again from the state
    raise BadInput(f"{name} {shown(value)} must be a number")


def _delays(given: Mapping[str, Any]) -> float | tuple[float, ...] | None:
    delay = given.get("retry_delay")
    if not isinstance(delay, list | tuple):
        return _number(given, "retry_delay", None)
    if len(delay) > MAX_DELAYS:
        raise BadInput(f"retry_delay has {len(delay)} delays, more than {MAX_DELAYS}")
    return tuple(_number({"retry_delay": one}, "retry_delay", None) or 0.0 for one in delay)
