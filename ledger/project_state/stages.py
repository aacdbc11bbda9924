"""
Stages by ident: work on an item begins and ends, each decided and recorded in one append (spec 1.6).

    with flow_stage(service, strip_id) as entry:      # pending ──▶ running ──▶ completed, or failed
        if not entry.skipped:
            process(strip_id)

The decision (guards.py) is taken on the state that the append is checked against: of all that claim one item
at one moment, one is started, and the others decide again and are skipped (W0-07). A skip records nothing.
The end is fenced: `complete_stage` and `fail_stage` raise ClaimLost, and change nothing, where the work was
taken over, ended or undone meanwhile. A worker that is killed leaves its item running: a forced rerun or
`mark_pending()`, for a milestone also its reset, lets the next one in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ..errors import BadInput, ClaimLost, shown
from .guards import Entry, RunDecision, claim_flow, claim_milestone
from .ident import Ident
from .open_item import OpenItem
from .service import StateService
from .store import ProjectStore

Where = StateService | ProjectStore
"""A service, or the store of a pipeline of one's own."""
LONGEST: Final = 2000
"""Characters of a reason that are kept."""
_log = logging.getLogger(__name__)


def enter_flow_stage(
    where: Where,
    ident: Ident,
    *,
    force_rerun: bool = False,
    skip_if_running: bool = True,
    timeout_seconds: float | None = None,
) -> Entry:
    """Decide whether to process the item, of any level, and mark it as started unless skipped (spec S0-62).

    Raises WrongIdent, LockTimeout, AlreadyOpen within a scope of this thread (there, use `claim_flow`).
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
    `claim_milestone`).
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
    """The processing of an item: completed at the end of the block, failed by any exception (W0-08).

    The block must look at `entry.skipped`: it runs in any case. Raises what `enter_flow_stage` does; at the
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
    """Record that the work ended by this error, and log it; never raises, as the error is what matters."""
    reason = reason_of(error)
    _log.error("%s: %s failed: %s", entry.ident, entry, reason)
    try:
        fail_stage(where, entry, reason, timeout_seconds=timeout_seconds)
    except ClaimLost as lost:
        _log.warning("%s", lost)
    except Exception as trouble:
        error.add_note(f"{entry.ident}: that {entry} failed could not be recorded: {trouble}")
        _log.exception("%s: that %s failed could not be recorded", entry.ident, entry)


def reason_of(error: BaseException) -> str:
    """An error in words that can be recorded, whatever it says."""
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
    entry = replace(entry, ident=ident)  # as the caller spells the project
    stage = entry.milestone or "processing"
    if entry.takes_over and entry.decision is RunDecision.RESTARTED:
        _log.warning("%s: %s is under way and was forced to restart; work may be done twice", ident, stage)
    else:
        _log.info("%s: %s %s", ident, stage, entry.decision)
    return entry
