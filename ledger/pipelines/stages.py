"""
Stages: whether work on an item may begin, who has it then, and how it ends (spec 1.6).

    with flow_stage(service, strip_id) as entry:      # pending ──▶ running ──▶ completed, or failed
        if not entry.skipped:
            process(strip_id)

A flow stage is the processing of an item; a milestone stage is the work that leads to one flag of it. The
decision is made on the state that the append is checked against: of all workers that claim an item at once,
one starts, and the others decide again and skip (W0-07). A skip records nothing. The end is fenced:
`complete_stage` and `fail_stage` raise ClaimLost, and change nothing, if the work was taken over, ended or
undone meanwhile.

A worker that is killed leaves the item running. The next attempt of its job takes the work over, and any
worker does once the job is over. For work without a job, a forced rerun or `mark_pending()`, for a milestone
also a reset, allows the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..domain.claimant import Claimant, present_claimant
from ..domain.names import split_name
from ..errors import BadInput, ClaimLost, UnknownFlag, WorkStopped, shown
from .facts import ProcessingState, Status
from .ident import Ident
from .item import OpenItem
from .service import ProjectStore, StateService

if TYPE_CHECKING:
    from ..log.ledger import Ledger

Where = StateService | ProjectStore
"""A service, or the store of a user's own pipeline."""
LONGEST: Final = 2000
"""Maximum length of a recorded reason, in characters."""
_log = logging.getLogger(__name__)

# The decisions, as tables


class RunDecision(StrEnum):
    """The decision for work that wants to begin (spec S0-61)."""

    SKIPPED = "skipped"
    STARTED = "started"
    RESTARTED = "restarted"


class Processed(Protocol):
    """What has a processing state: a view, or an open item."""

    @property
    def processing_state(self) -> ProcessingState: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of one entry into a stage; it can be pickled, and ended in another process.

    number: of the attempt, or of the claim on a milestone; 0 where skipped. life: the item's incarnation.
    takes_over: it was under way elsewhere and may still run there, so work may be done twice. left_by: the
    job or batch that began it, where it was taken over because that claim was over.
    """

    decision: RunDecision
    ident: Ident
    milestone: str | None = None
    number: int = 0
    life: int = 0
    takes_over: bool = False
    left_by: Claimant | None = None

    def __str__(self) -> str:
        return f"claim {self.number} on {self.milestone}" if self.milestone else f"attempt {self.number}"

    @property
    def skipped(self) -> bool:
        """Whether the work must not be done."""
        return self.decision is RunDecision.SKIPPED

    def held_by(self, item: OpenItem[Any]) -> bool:
        """Whether the item, open in a scope, is still being processed under this entry."""
        if self.milestone is not None:
            return item.holds(self.milestone, self.number)
        return self._left_at(item, Status.RUNNING)

    def complete(self, item: OpenItem[Any]) -> None:
        """End with success in the caller's own scope: completed, or the flag set. Raises ClaimLost.

        For a flow stage, repeating the same end changes nothing.
        """
        self._check(item, Status.COMPLETED)
        if self.milestone is not None:
            item.set_flag(self.milestone)
        elif item.state.status is Status.RUNNING:
            item.mark_completed()

    def fail(self, item: OpenItem[Any], reason: str | None = None) -> None:
        """End without success in the caller's own scope: failed, or the claim given up. Raises ClaimLost."""
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
    """Whether the decision is to skip (spec S0-61)."""
    return (decision.decision if isinstance(decision, Entry) else decision) is RunDecision.SKIPPED


def force_rerun_from_payload(payload: Mapping[str, Any]) -> bool:
    """Whether `payload["force_rerun"]` exists and is truthy in Python: 1 is, and so is "no"."""
    return bool(payload.get("force_rerun"))


def flow_decision(
    view: Processed | None, *, force_rerun: bool = False, skip_if_running: bool = True
) -> RunDecision:
    """Whether to process an item in this state; None: it does not exist yet (spec S0-62).

    Mark the item as started if and only if this is not `skipped`: guards that take a `mark_started` call it
    in exactly these cases.
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
    """Whether to do the work of a milestone with this flag (spec S0-63); under_way: it was entered already.

    Reset the flag, with its cascade, if and only if this is not `skipped`: guards that take a `reset` call it
    in exactly these cases. A milestone under way is treated like a running flow stage; with
    `skip_if_running=False` the flag alone decides.
    """
    if flag or (under_way and skip_if_running):
        return RunDecision.RESTARTED if force_rerun else RunDecision.SKIPPED
    return RunDecision.STARTED


# In a scope: the claim holds once the scope is stored


def claim_flow(item: OpenItem[Any], *, force_rerun: bool = False, skip_if_running: bool = True) -> Entry:
    """Decide on an open item, and mark it as started unless skipped.

    What a job or batch began is restarted once its claim is over. Raises WorkStopped within a job if a
    later attempt of it has the work.
    """
    state = item.state
    running = state.processing_state is ProcessingState.RUNNING
    left_by = left_behind(item, None) if running else None
    forced = force_rerun or left_by is not None
    decision = flow_decision(state, force_rerun=forced, skip_if_running=skip_if_running)
    if should_skip_run(decision):
        return Entry(decision, item.ident)
    item.mark_started()
    return Entry(decision, item.ident, None, item.attempts, item.state.incarnation, running, left_by)


def claim_milestone(
    item: OpenItem[Any], milestone: str, *, force_rerun: bool = False, skip_if_running: bool = True
) -> Entry:
    """Decide on a flag of an open item; unless skipped, reset it and claim its work.

    What a job or batch began is restarted once its claim is over. Raises UnknownFlag; WorkStopped as
    `claim_flow`.
    """
    if milestone not in item.FACTS.flags:
        raise UnknownFlag(milestone, item.CATEGORY, item.FACTS.flags)
    under_way = any(claim.milestone == milestone for claim in item.under_way)
    left_by = left_behind(item, milestone) if under_way else None
    done, forced = getattr(item.state, milestone), force_rerun or left_by is not None
    decision = milestone_decision(done, under_way, force_rerun=forced, skip_if_running=skip_if_running)
    if should_skip_run(decision):
        return Entry(decision, item.ident, milestone)
    number = item.enter(milestone)
    return Entry(decision, item.ident, milestone, number, item.state.incarnation, under_way, left_by)


# Work that a job or batch began and left: whether the claim under which it began is over.
#
# For the next attempt of the same job it is over, because that has a greater token; for a batch of a later
# round too, because the batches of the earlier round are cancelled. For others it is over when the job or
# batch has ended: until then a later attempt may take its work. A job of another ledger never counts as over
# here, and work that no job began stays with its worker.

BATCH: Final = "batch"
"""The category of batches, as in `ledger.jobs`, which is imported only where a job is read."""


def left_behind(item: OpenItem[Any], milestone: str | None) -> Claimant | None:
    """Who left the work that is under way on an open item; None where it may still be running.

    milestone: the flag that it leads to; None for the processing of the item.
    Raises WorkStopped where a later attempt of the present job has it: the present one has lost its claim.
    """
    begun = next((each for each in item.state.begun_for if each.milestone == milestone), None)
    if begun is None:
        return None
    held, mine = Claimant(begun.stream, begun.token), present_claimant()
    order = None if mine is None else _order(held, mine)
    if mine is not None and order is not None:
        theirs, ours = order
        if ours < theirs:
            raise WorkStopped(mine.stream, f"a later attempt of this job works on {item.name}")
        return held if theirs < ours else None
    return held if item.tree is not None and _is_over(item.tree.ledger, held) else None


def _order(held: Claimant, mine: Claimant) -> tuple[int, int] | None:
    """Two numbers; the greater one has the later claim on the same work. None: it is other work."""
    if held.stream == mine.stream:
        return held.token, mine.token
    theirs, ours = _round_of(held.stream), _round_of(mine.stream)
    if theirs is None or ours is None or theirs[0] != ours[0] or theirs[1] == ours[1]:
        return None
    return theirs[1], ours[1]


def _round_of(stream: str) -> tuple[str, int] | None:
    """Job and round of a batch; None for any other stream."""
    category, key = split_name(stream)
    if category != BATCH or len(key) != 2:
        return None
    first, dot, _ = key[1].partition(".")
    try:
        return key[0], int(first) if dot else 1
    except ValueError:  # a stream of the user's own
        return None


def _is_over(ledger: Ledger, claimant: Claimant) -> bool:
    """Whether the job or batch has ended."""
    from ..jobs.work import work_at  # rarely needed, and slow to import

    try:
        (work,) = ledger.load_each([work_at(claimant.stream)])
        return work.over
    except BadInput:  # not the name of a job or batch
        return False


# By ident: each decided and recorded in one append


def enter_flow_stage(
    where: Where,
    ident: Ident,
    *,
    force_rerun: bool = False,
    skip_if_running: bool = True,
    timeout_seconds: float | None = None,
) -> Entry:
    """Decide whether to process the item, of any level, and mark it as started unless skipped (spec S0-62).

    Raises WrongIdent, LockTimeout, AlreadyOpen within a scope of this thread (there, use `claim_flow`),
    WorkStopped within a job if a later attempt of it has the work.
    """
    return _entered(
        where,
        ident,
        lambda item: claim_flow(item, force_rerun=force_rerun, skip_if_running=skip_if_running),
        timeout_seconds,
    )


def enter_milestone_stage(
    where: Where,
    ident: Ident,
    milestone: str,
    *,
    force_rerun: bool = False,
    skip_if_running: bool = True,
    timeout_seconds: float | None = None,
) -> Entry:
    """Decide whether to do the work of a flag; unless skipped, reset the flag and claim it (spec S0-63).

    Raises WrongIdent, UnknownFlag, LockTimeout, AlreadyOpen within a scope of this thread (there, use
    `claim_milestone`), WorkStopped within a job if a later attempt of it has the work.
    """
    return _entered(
        where,
        ident,
        lambda item: claim_milestone(
            item, milestone, force_rerun=force_rerun, skip_if_running=skip_if_running
        ),
        timeout_seconds,
    )


def complete_stage(where: Where, entry: Entry, *, timeout_seconds: float | None = None) -> None:
    """End a stage with success: the item is completed, or the flag set. Raises ClaimLost; nothing changes."""
    store_of(where).update_item(entry.ident, entry.complete, timeout_seconds=timeout_seconds)


def fail_stage(
    where: Where, entry: Entry, reason: str | None = None, *, timeout_seconds: float | None = None
) -> None:
    """End a stage without success: the item failed, or the claim is left. Raises ClaimLost."""
    store_of(where).update_item(
        entry.ident, lambda item: entry.fail(item, reason), timeout_seconds=timeout_seconds
    )


@contextmanager
def flow_stage(
    where: Where,
    ident: Ident,
    *,
    force_rerun: bool = False,
    skip_if_running: bool = True,
    timeout_seconds: float | None = None,
) -> Iterator[Entry]:
    """The processing of an item: completed at the end of the block, failed after any exception (W0-08).

    The block runs in any case, so it must check `entry.skipped`. Raises what `enter_flow_stage` does; at the
    end ClaimLost where the item was taken over, ended or undone meanwhile.
    """
    ways: dict[str, Any] = {"force_rerun": force_rerun, "skip_if_running": skip_if_running}
    entry = enter_flow_stage(where, ident, timeout_seconds=timeout_seconds, **ways)
    if entry.skipped:
        yield entry
        return
    try:
        yield entry
    except BaseException as error:
        give_up(where, entry, error, timeout_seconds)
        raise
    complete_stage(where, entry, timeout_seconds=timeout_seconds)


def give_up(where: Where, entry: Entry, error: BaseException, timeout_seconds: float | None = None) -> None:
    """Record that the work ended with this error, and log it; never raises, so the error itself is kept."""
    reason = reason_of(error)
    _log.error("%s: %s failed: %s", entry.ident, entry, reason)
    try:
        fail_stage(where, entry, reason, timeout_seconds=timeout_seconds)
    except ClaimLost as lost:
        _log.warning("%s", lost)
    except Exception as trouble:
        error.add_note(f"{entry.ident}: the failure of {entry} could not be recorded: {trouble}")
        _log.exception("%s: the failure of %s could not be recorded", entry.ident, entry)


def reason_of(error: BaseException) -> str:
    """An error as text that can be recorded, whatever its message contains."""
    try:
        said = str(error).encode("utf-8", "replace").decode().replace("\0", "�")
    except Exception as wrong:
        said = f"(its text raised {type(wrong).__name__})"
    return (f"{type(error).__name__}: {said}" if said else type(error).__name__)[:LONGEST]


def store_of(where: Where) -> ProjectStore:
    """The store of a service, or the store itself."""
    store = where.store if isinstance(where, StateService) else where
    if not isinstance(store, ProjectStore):
        raise BadInput(f"{shown(where)} is neither a service nor a ProjectStore")
    return store


def _entered(
    where: Where, ident: Ident, claim: Callable[[OpenItem[Any]], Entry], timeout_seconds: float | None
) -> Entry:
    entry = store_of(where).update_item(ident, claim, timeout_seconds=timeout_seconds)
    entry = replace(entry, ident=ident)  # with the caller's spelling of the project
    stage = entry.milestone or "processing"
    if entry.left_by is not None:
        _log.warning("%s: %s is taken over from %s, whose claim is over", ident, stage, entry.left_by)
    elif entry.takes_over and entry.decision is RunDecision.RESTARTED:
        _log.warning("%s: %s is under way and was forced to restart; work may be done twice", ident, stage)
    else:
        _log.info("%s: %s %s", ident, stage, entry.decision)
    return entry
