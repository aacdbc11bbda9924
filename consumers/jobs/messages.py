"""Messages between a worker and its child processes: tasks one way, outcomes the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CUT: Final = 76
"""Exit code of a child that cannot answer, because an operation closed its pipe (sysexits: EX_PROTOCOL)."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message to a child: its registry, how it connects, and the environment of its worker."""

    registry: str
    connect: dict[str, Any]
    paths: list[str]
    folder: str
    environment: dict[str, str]
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A claimed piece of work. stream, token: of the claim, after which it is at `version`.

    job: the id of the job; batch: the number of the batch, None for the job itself.
    """

    stream: str
    token: int
    version: int
    operation: str
    payload: str
    job: str
    attempt: int
    batch: str | None = None
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that an operation submits: recorded together with the operation's outcome."""

    id: str
    operation: str
    payload: Mapping[str, Any]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task, which the worker records under the claim."""

    stream: str
    token: int
    jobs: tuple[Prepared, ...] = ()


@dataclass(frozen=True, slots=True)
class Succeeded(Outcome):
    """It returned. then: its second step, as (operation, queue, payload)."""

    result: Mapping[str, Any] = field(default_factory=dict)
    progress_current: int | None = None
    progress_total: int | None = None
    then: tuple[str, str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Deferred(Outcome):
    """It returned deferred; so many batches are recorded already, in the present round."""

    result: Mapping[str, Any] = field(default_factory=dict)
    batches: int = 0
    failure_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class RetryLater(Outcome):
    """It raised RetryLaterError."""

    reason: str = ""
    delay_seconds: float = 60


@dataclass(frozen=True, slots=True)
class Failed(Outcome):
    """It raised, or its process died. transient: the infrastructure is the cause; another attempt is made.

    error_code: the name of the error's class; `ProcessDied` where its process ended or cannot answer,
    `JobTimeout` where it took too long. details: traceback; signal or exit_code; output (the end of what was
    printed); timeout_seconds.
    """

    error_code: str = ""
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    transient: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyRecorded(Outcome):
    """It has recorded its end itself, in a transaction with its rows."""


@dataclass(frozen=True, slots=True)
class Stopped(Outcome):
    """It stopped because its claim was over, or because the worker ends: nothing is recorded."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnknownHere(Stopped):
    """The process does not know the operation, though its worker did when it started: it is given back."""
