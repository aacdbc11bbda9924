"""
Operations: what a worker runs, registered by name, each with a strict model of its payload.

    registry = Registry()

    class Count(Payload):
        file: str
        k: int = 3

    @registry.operation("count_kmers", Count)
    def count_kmers(session, payload, *, emit):
        emit("file.opened", fields={"file": payload.file})
        return OperationResult({"kmers": 17})

The outcome of an operation is what it returns or raises; it never changes the job itself. It owns no session
and no connection of a queue (spec S1-13).
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ledger import BadInput
from ledger.domain.canonical_json import body
from ledger.errors import BadPayload, UnknownOperation

if TYPE_CHECKING:
    from .context import OperationContext

MAX_ERRORS: Final = 5
"""Maximum number of listed errors of a payload."""
MAX_SUMMARY: Final = 500
"""Maximum length of a summary, in characters."""
JOB_ID: Final = "_job_id"
"""The field of a payload that holds the id of its job."""


class Payload(BaseModel):
    """A payload of an operation: strict (the text "yes" is no bool), frozen, no unknown fields (S1-12).

    The job's id is added under `_job_id` where a field has that alias: `job: str = Field(alias="_job_id")`;
    it is also `session.job_id` (spec S1-16).
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class RetryLaterError(Exception):
    """Raise it when a resource of the operation is busy: it runs again after delay_seconds (spec S1-11)."""

    def __init__(self, reason: str, delay_seconds: float = 60) -> None:
        super().__init__(reason)
        self.reason, self.delay_seconds = reason, delay_seconds


Message = Mapping[str, Any]
"""`{"operation": NAME, "payload": {…}}`, and what a batch may have besides: priority, max_attempts, …"""


@dataclass(frozen=True)
class OperationResult:
    """The result of an operation that did not fail (spec S1-10).

    result: kept in the fact of the success. progress_current, progress_total: None leaves what was reported.
    deferred: the operation is over and the job goes on as the set of its batches and children; without any it
    succeeded (spec S1-40). publish_operations: (queue, message) for each batch; a batch returns at most one,
    its second step. publish_after_commit: (queue, id) of jobs that `session.submit` prepared, for
    another queue. failure_ratio: as in `ledger.jobs.job.JobDispatched`.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    progress_current: int | None = None
    progress_total: int | None = None
    deferred: bool = False
    publish_after_commit: Sequence[tuple[str, str]] = ()
    publish_operations: Iterable[tuple[str, Message]] = ()
    failure_ratio: float = 1.0


PROGRESS_END: Final = 2**63
"""Progress is less than this, and not less than its negative: what a bigint of PostgreSQL holds."""


def checked(operation: str, result: object) -> OperationResult:
    """What an operation returned; None is an empty result. Raises TypeError, ValueError."""
    if result is None:
        return OperationResult()
    if not isinstance(result, OperationResult):
        raise TypeError(
            f"operation {operation!r} returned {type(result).__name__}, not OperationResult or None"
        )
    if not isinstance(result.result, Mapping):
        raise TypeError(f"the result of {operation!r} is {type(result.result).__name__}, not a mapping")
    for name in ("progress_current", "progress_total"):
        number: object = getattr(result, name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} is {type(number).__name__}: it must be an int or None")
        if not -PROGRESS_END <= number < PROGRESS_END:
            raise ValueError(f"{name} is {number}: it must fit 64 bits")
    return result


class Emit(Protocol):
    """Emits an event while the operation runs: visible at once, in a transaction of its own (spec S1-15).

    fields `_progress_current` and `_progress_total` are the job's progress. Raises WorkStopped once the job
    was cancelled or its lease lost; any other error is logged and does not fail the operation.
    """

    def __call__(
        self,
        event: str,
        message: str | None = None,
        fields: Mapping[str, Any] | None = None,
        level: str = "info",
    ) -> None: ...


class Operation(Protocol):
    """An operation: its name, and what it does (spec S1-13).

    Optional: `payload_model`, a pydantic model that checks its payload; without one it gets the mapping
    itself. `description`, a text. `summarize_payload(payload)` or `(payload, session)`, which returns a short
    text about a payload. `ends_process`: True if its process must not run anything else afterwards, because
    the operation leaves traces there.
    """

    @property
    def name(self) -> str: ...

    def execute(self, session: OperationContext, payload: Any, *, emit: Emit) -> OperationResult | None: ...


@dataclass(frozen=True)
class FunctionOperation:
    """A function as an operation."""

    name: str
    function: Callable[..., OperationResult | None]
    payload_model: type[BaseModel] | None = None
    description: str | None = None
    summarize_payload: Callable[..., str | None] | None = None
    ends_process: bool = False

    def execute(self, session: OperationContext, payload: Any, *, emit: Emit) -> OperationResult | None:
        """Call it."""
        return self.function(session, payload, emit=emit)


F = TypeVar("F", bound=Callable[..., OperationResult | None])


class Registry:
    """The operations of a worker, by name (spec S1-14)."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}

    def register(self, operation: Operation) -> None:
        """Add an operation. Raises BadInput, a ValueError, if its name is taken or it is not an operation."""
        name: object = getattr(operation, "name", None)
        if not isinstance(name, str) or not name or not callable(getattr(operation, "execute", None)):
            raise BadInput(f"{operation!r} is not an operation: it needs a name and a method execute")
        if name in self._operations:
            raise BadInput(f"operation {name!r} is registered already: give this one another name")
        self._operations[name] = operation

    def operation(
        self,
        name: str,
        payload: type[BaseModel] | None = None,
        *,
        summarize: Callable[..., str | None] | None = None,
        ends_process: bool = False,
    ) -> Callable[[F], F]:
        """Register a function, called with (session, payload, emit=…); its docstring is the description.

        payload: its model. summarize: as `summarize_payload` of an operation. ends_process: as there.
        """

        def registered(function: F) -> F:
            text = inspect.getdoc(function) or None
            self.register(FunctionOperation(name, function, payload, text, summarize, ends_process))
            return function

        return registered

    def get(self, name: str) -> Operation:
        """The operation of this name. Raises UnknownOperation, which is a KeyError."""
        try:
            return self._operations[name]
        except KeyError:
            raise UnknownOperation(name, self._operations) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all operations, sorted."""
        return tuple(sorted(self._operations))

    def describe(self, name: str) -> str | None:
        """The description of an operation. Raises UnknownOperation."""
        text = getattr(self.get(name), "description", None)
        return text if isinstance(text, str) else None

    def summary(
        self, name: str, payload: Mapping[str, Any], session: OperationContext | None = None
    ) -> str | None:
        """A short text about a payload; None where there is none (spec S1-13). Never raises."""
        try:
            summarize = getattr(self.get(name), "summarize_payload", None)
            if summarize is None:
                return None
            takes = len(inspect.signature(summarize).parameters)
            text = summarize(dict(payload), session) if takes > 1 else summarize(dict(payload))
            return text[:MAX_SUMMARY] if isinstance(text, str) else None
        except Exception:
            return None

    def payload(self, name: str, payload: Mapping[str, Any], job: str | None = None) -> Any:
        """A payload as its operation gets it: checked, a copy. Raises UnknownOperation, BadPayload."""
        return self.payload_of(name, body(dict(payload)), job)

    def payload_of(self, name: str, text: str, job: str | None = None) -> Any:
        """As `payload`, from JSON text: a list is a list to a strict model then, and a time in text a time.

        job: the id of the job, added under `_job_id` where no model or the model wants it (spec S1-16).
        """
        model: type[BaseModel] | None = getattr(self.get(name), "payload_model", None)
        if model is None:
            given = json.loads(text)
            return given if job is None else {**given, JOB_ID: job}
        if job is not None and _wants_id(model):
            text = body({**json.loads(text), JOB_ID: job})
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            wrongs = [
                f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}"
                for e in error.errors()[:MAX_ERRORS]
            ]
            raise BadPayload(name, model.__name__, wrongs) from None


@cache
def _wants_id(model: type[BaseModel]) -> bool:
    """Whether a model has a field for the job's id."""
    return any(JOB_ID in (info.alias, info.validation_alias) for info in model.model_fields.values())


def registry_at(place: str) -> Registry:
    """The registry that `MODULE:NAME` names; NAME is `registry` where it is not given. Raises BadInput."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name or "registry")
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{place!r} does not name a registry of operations: {error}") from error
    if not isinstance(found, Registry):
        raise BadInput(f"{place!r} is not a Registry but {type(found).__name__}")
    return found
