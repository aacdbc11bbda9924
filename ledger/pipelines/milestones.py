"""
A decorator for the work that leads to a flag of an item: done once, and recorded as done (spec S0-65).

    @milestone(LSM_STATE_SERVICE, "compressed", ident="strip_ident", on_failure=tell_the_lab)
    def compress(*, strip_ident: LSMStripId, force_rerun: bool = False) -> Path: ...

    (call) ──entered──▶ under way ──the function returns──▶ compressed ──▶ on_success
       │                    ├──it or evaluate_result raises──▶ left, with the reason ──▶ on_failure ──▶ raised
       └──skipped──▶ None   └──it returns RunDecision.SKIPPED──▶ left ──▶ None

The recorded fact is the event of success, and `left` that of failure; hooks only notify others (W0-18). A
worker that lost its claim meanwhile gets ClaimLost: the flag stays as it is, and no hook is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from typing import Any, Final, ParamSpec, TypeVar

from ..errors import BadInput, WrongIdent
from .ident import Ident
from .stages import (
    Entry,
    RunDecision,
    Where,
    complete_stage,
    enter_milestone_stage,
    fail_stage,
    force_rerun_from_payload,
    give_up,
    should_skip_run,
)

P = ParamSpec("P")
R = TypeVar("R")
DECLINED: Final = "the work decided to skip"
_log = logging.getLogger(__name__)


def milestone(
    where: Where,
    field: str,
    *,
    ident: str = "ident",
    evaluate_result: Callable[[Any], object] | None = None,
    on_success: Callable[[Any, Any], object] | None = None,
    on_failure: Callable[[Any, Exception], object] | None = None,
    skip_if_running: bool = True,
    timeout_seconds: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Guard a function by the flag `field` of the item that its argument `ident` names.

    The call returns None where it is skipped, and where the function itself returns RunDecision.SKIPPED: then
    the flag is not set (W0-10). It runs in spite of a set flag or a claim if its argument `force_rerun` is
    true or its `payload["force_rerun"]` is. evaluate_result(result): raises where the result is no success.
    on_success(ident, result); on_failure(ident, error): an error in a hook is logged and not raised.
    Raises BadInput for a function that does not return its result directly (async, generator). The call
    raises WrongIdent (a TypeError) without an ident, ClaimLost at its end, and the errors of
    `enter_milestone_stage`.
    """

    ways = {"skip_if_running": skip_if_running, "timeout_seconds": timeout_seconds}
    return _Guard(where, field, ident, evaluate_result, on_success, on_failure, ways).around


@dataclass(frozen=True, slots=True)
class _Guard:
    """The arguments of `milestone`."""

    where: Where
    field: str
    ident: str
    evaluate_result: Callable[[Any], object] | None
    on_success: Callable[[Any, Any], object] | None
    on_failure: Callable[[Any, Exception], object] | None
    ways: dict[str, Any]

    def around(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """The function, guarded."""
        form = _form_of(function, self.ident)

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            ident, force_rerun = _asked(form, self.ident, args, kwargs)
            entry = enter_milestone_stage(self.where, ident, self.field, force_rerun=force_rerun, **self.ways)
            return None if entry.skipped else self._done(entry, partial(function, *args, **kwargs))

        return guarded

    def _done(self, entry: Entry, work: Callable[[], R]) -> R | None:
        timeout = self.ways["timeout_seconds"]
        try:
            result = work()
            declined = isinstance(result, RunDecision | Entry) and should_skip_run(result)
            if self.evaluate_result is not None and not declined:
                self.evaluate_result(result)
        except BaseException as error:
            give_up(self.where, entry, error, timeout)
            _tell(self.on_failure, entry.ident, error)
            raise
        if declined:
            fail_stage(self.where, entry, DECLINED, timeout_seconds=timeout)
            return None
        complete_stage(self.where, entry, timeout_seconds=timeout)
        if self.on_success is not None:
            self.on_success(entry.ident, result)
        return result


def _form_of(function: Callable[..., Any], ident: str) -> Signature:
    """The signature of a function that can be guarded."""
    for kind in (iscoroutinefunction, isasyncgenfunction, isgeneratorfunction):
        if kind(function):
            raise BadInput(
                f"{function!r} returns before its work is done: a milestone needs a plain function"
            )
    form = signature(function)
    if ident not in form.parameters and not any(
        p.kind is Parameter.VAR_KEYWORD for p in form.parameters.values()
    ):
        raise BadInput(f"{function!r} has no argument {ident!r}: name the argument that holds the ident")
    return form


def _asked(form: Signature, ident: str, args: Any, kwargs: Any) -> tuple[Ident, bool]:
    """The ident among the arguments of a call, and whether they force a rerun."""
    bound = form.bind_partial(*args, **kwargs)
    bound.apply_defaults()
    given = dict(bound.arguments)
    for parameter in form.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name)
    if not isinstance(given.get(ident), Ident):
        raise WrongIdent(f"the argument {ident!r} must be an ident, such as LSMStripId(…)")
    payload = given.get("payload")
    forced = isinstance(payload, Mapping) and force_rerun_from_payload(payload)
    return given[ident], bool(given.get("force_rerun")) or forced


def _tell(on_failure: Callable[[Any, Exception], object] | None, item: Ident, error: BaseException) -> None:
    """Call the hook; its own errors must not hide the failure."""
    if on_failure is None or not isinstance(error, Exception):
        return
    try:
        on_failure(item, error)
    except Exception:
        _log.exception("%s: on_failure itself failed", item)
