"""Repairing heads: each is set in the database only if its stream still ends where the fold did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ledger.log.sql import Statements

from ..fold import Fold, FoldSession, HeadRow
from ..fold.range import fold_one, go_on

SQL = Statements(__package__, "repair")


AT_ONCE: Final = 100
"""Heads in one transaction: an append to one of their streams waits for no more than these."""
MOST_TEXT: Final = 1 << 20
"""Characters of states in one transaction."""


class HeadTarget(NamedTuple):
    """The values that a head shall get. with_status, with_state: whether it is known; else the head keeps its
    own.

    token: the lease token, 0 for none, None if the head keeps its own.
    """

    stream: str
    version: int
    status: str | None
    with_status: bool
    state: str | None
    state_version: int
    state_schema: int | None
    with_state: bool
    token: int | None

    @classmethod
    def of(cls, fold: Fold, head: HeadRow | None) -> HeadTarget:
        """What the head of a folded stream should be.

        An existing head keeps a state that this process cannot fold to the end. A new head gets the state as
        far as it can be folded; readers fold the rest, or report why they cannot. If a topic is unknown here
        it gets no state, because nothing would show later that events of that topic are missing from it.
        """
        state = fold.folded > 0 and (fold.sure or (head is None and not fold.unknown))
        return cls(
            fold.stream, fold.version, fold.status, fold.has_status or head is None,
            fold.state if state else None, fold.folded if state else 0,
            fold.state_schema if state else None, state or head is None, fold.token,
        )  # fmt: skip

    def is_kept_by(self, head: HeadRow | None) -> bool:
        """Whether the head has these values; of a state, only whether version and code are the same."""
        if head is None or head.version != self.version:
            return False
        if self.with_status and head.status != self.status:
            return False
        if self.token is not None and self.token != (head.token or 0):
            return False
        state = (head.state_version, head.state_schema, head.state is None)
        return not self.with_state or state == (self.state_version, self.state_schema, self.state is None)


def repaired(session: FoldSession, targets: Iterable[HeadTarget]) -> Iterator[tuple[HeadTarget, str]]:
    """Set heads to their targets; yields each with its outcome: repaired, inserted, removed, same, busy.

    A stream that got events meanwhile is folded to its new end, while its appends wait briefly.
    """
    for batch in _batches(targets):
        with session.changes():
            outcomes = _sent(session, batch)
        for target, outcome in zip(batch, outcomes, strict=True):
            yield target, _held(session, target) if outcome in ("moved", "busy") else outcome


def _batches(targets: Iterable[HeadTarget]) -> Iterator[list[HeadTarget]]:
    batch: list[HeadTarget] = []
    size = 0
    for target in targets:
        batch.append(target)
        size += len(target.state or "")
        if len(batch) == AT_ONCE or size > MOST_TEXT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sent(session: FoldSession, batch: Sequence[HeadTarget]) -> list[str]:
    columns: dict[str, list[Any]] = {
        "streams": [target.stream for target in batch],
        "versions": [target.version for target in batch],
        "statuses": [target.status for target in batch],
        "with_status": [target.with_status for target in batch],
        "states": [target.state for target in batch],
        "state_versions": [target.state_version for target in batch],
        "state_schemas": [target.state_schema for target in batch],
        "with_state": [target.with_state for target in batch],
        "tokens": [target.token for target in batch],
    }
    ((outcomes,),) = session.rows(SQL.repair_heads, **columns)
    return list(outcomes)


def _held(session: FoldSession, target: HeadTarget) -> str:
    """Repair one head whose stream got events, or which an append held, while appends to it wait."""
    fold, head = fold_one(session, target.stream)
    if not fold.events:
        return "same" if head is None else "busy"
    with session.changes():
        if session.rows(SQL.hold_head, stream=fold.stream) != [(True,)]:
            return "busy"
        go_on(session, fold)
        target = HeadTarget.of(fold, head)
        return _sent(session, [target])[0]
