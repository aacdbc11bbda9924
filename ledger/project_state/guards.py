"""
The rules of stage guards: whether work may begin, and whose it then is; stages.py records it (spec 1.6).

A flow stage is the processing of an item; a milestone stage is the work that one flag of it stands for. An
Entry is what a guard answers, and more than a RunDecision because who was started must also end: its number
fences the end, so that who lost the work meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ..errors import BadInput, ClaimLost, UnknownFlag
from .facts import ProcessingState, Status
from .ident import Ident
from .open_item import OpenItem

# The decisions, as tables


class RunDecision(StrEnum):
    """What a guard says to work that wants to begin (spec S0-61)."""

    SKIPPED = "skipped"
    STARTED = "started"
    RESTARTED = "restarted"


class Processed(Protocol):
    """What shows where its processing stands: a view, or an open item."""

    @property
    def processing_state(self) -> ProcessingState: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """The answer to one entry into a stage; it can be pickled, and ended in another process.

    number: of the attempt, or of the claim on a milestone; 0 where skipped. life: the item's incarnation.
    takes_over: it was under way elsewhere, where it may go on: work may be done twice.
    """

    decision: RunDecision
    ident: Ident
    milestone: str | None = None
    number: int = 0
    life: int = 0
    takes_over: bool = False

    def __str__(self) -> str:
        return f"claim {self.number} on {self.milestone}" if self.milestone else f"attempt {self.number}"

    @property
    def skipped(self) -> bool:
        """Whether the work must not be done."""
        return self.decision is RunDecision.SKIPPED

    def held_by(self, item: OpenItem[Any]) -> bool:
        """Whether the item, open in a scope, is still being worked on under this entry."""
        if self.milestone is not None:
            return item.holds(self.milestone, self.number)
        return self._left_at(item, Status.RUNNING)

    def complete(self, item: OpenItem[Any]) -> None:
        """End with success in a scope of one's own: completed, or the flag set. Raises ClaimLost.

        A second end like the first changes nothing where the stage is a flow's.
        """
        self._check(item, Status.COMPLETED)
        if self.milestone is not None:
            item.set_flag(self.milestone)
        elif item.state.status is Status.RUNNING:
            item.mark_completed()

    def fail(self, item: OpenItem[Any], reason: str | None = None) -> None:
        """End without success in a scope of one's own: failed, or the claim left. Raises ClaimLost."""
        self._check(item, Status.FAILED)
        if self.milestone is not None:
            item.leave(self.milestone, self.number, reason)
        elif item.state.status is Status.RUNNING:
            item.mark_failed(reason)

    def _check(self, item: OpenItem[Any], ended: Status) -> None:
        if self.skipped:
            raise BadInput(f"{self.ident} was skipped, so there is nothing to end")
        mine = item.key == self.ident.key and type(item).IDENT is type(self.ident)
        over = self.milestone is None and self._left_at(item, ended)
        if not (mine and (self.held_by(item) or over)):
            raise ClaimLost(item.name, str(self))

    def _left_at(self, item: OpenItem[Any], status: Status) -> bool:
        state = item.state
        return (state.incarnation, state.attempts, state.status) == (self.life, self.number, status)


def should_skip_run(decision: RunDecision | Entry) -> bool:
    """Whether the guard said no (spec S0-61)."""
    return (decision.decision if isinstance(decision, Entry) else decision) is RunDecision.SKIPPED


def force_rerun_from_payload(payload: Mapping[str, Any]) -> bool:
    """Whether `payload["force_rerun"]` is there and true, as Python sees it: 1 is, and so is "no"."""
    return bool(payload.get("force_rerun"))


def flow_decision(
    view: Processed | None, *, force_rerun: bool = False, skip_if_running: bool = True
) -> RunDecision:
    """Whether to process an item that looks like this; None: there is none yet (spec S0-62).

    The item is to be marked as started if and only if this is not `skipped`: the `mark_started` that guards
    used to be handed is called in exactly these cases.
    """
    match view and view.processing_state:
        case ProcessingState.COMPLETED:
            return RunDecision.RESTARTED if force_rerun else RunDecision.SKIPPED
        case ProcessingState.RUNNING if skip_if_running:
            return RunDecision.RESTARTED if force_rerun else RunDecision.SKIPPED
        case _:
            return RunDecision.STARTED


def milestone_decision(
    flag: bool, under_way: bool = False, *, force_rerun: bool = False, skip_if_running: bool = True
) -> RunDecision:
    """Whether to do the work of a milestone whose flag is so (spec S0-63); under_way: it was entered already.

    The flag is to be reset, with its cascade, if and only if this is not `skipped`: the `reset` that guards
    used to be handed is called in exactly these cases. A milestone under way is treated as a running flow
    stage is; with `skip_if_running=False` the flag alone decides.
    """
    if flag or (under_way and skip_if_running):
        return RunDecision.RESTARTED if force_rerun else RunDecision.SKIPPED
    return RunDecision.STARTED


# In a scope: what is claimed stands when the scope is stored


def claim_flow(item: OpenItem[Any], *, force_rerun: bool = False, skip_if_running: bool = True) -> Entry:
    """Decide on an open item, and mark it as started unless skipped."""
    running = item.state.processing_state is ProcessingState.RUNNING
    decision = flow_decision(item.state, force_rerun=force_rerun, skip_if_running=skip_if_running)
    if should_skip_run(decision):
        return Entry(decision, item.ident)
    item.mark_started()
    return Entry(decision, item.ident, None, item.attempts, item.state.incarnation, running)


def claim_milestone(
    item: OpenItem[Any], milestone: str, *, force_rerun: bool = False, skip_if_running: bool = True
) -> Entry:
    """Decide on a flag of an open item; unless skipped, reset it and claim its work. Raises UnknownFlag."""
    if milestone not in item.FACTS.flags:
        raise UnknownFlag(milestone, item.CATEGORY, item.FACTS.flags)
    under_way = any(claim.milestone == milestone for claim in item.under_way)
    done = getattr(item.state, milestone)
    decision = milestone_decision(done, under_way, force_rerun=force_rerun, skip_if_running=skip_if_running)
    if should_skip_run(decision):
        return Entry(decision, item.ident, milestone)
    number = item.enter(milestone)
    return Entry(decision, item.ident, milestone, number, item.state.incarnation, under_way)
