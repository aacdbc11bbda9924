"""Run a decision again when another writer came first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import BadInput, StreamConflict, TransitionConflict, shown

T = TypeVar("T")


def retry_conflicts(
    decide: Callable[[], T],
    *,
    attempts: int = 10,
    pause: float = 0.01,
    max_pause: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `decide`, and call it again when it raises StreamConflict; return its result (spec S2-46).

    `decide` must load its streams anew each time. attempts: calls in all; the last conflict is raised.
    Between two calls a random time passes, so that competitors separate: at most `pause` seconds before the
    second call, doubled for each further one, never more than `max_pause`.
    A conflict in the caller's own transaction that keeps its old snapshot is raised at once: run the whole
    transaction again (spec W2-08).
    """
    if attempts < 1:
        raise BadInput(f"attempts {shown(attempts)} must be an integer, 1 or more")
    for nth in range(attempts - 1):
        try:
            return decide()
        except StreamConflict as conflict:
            if isinstance(conflict, TransitionConflict) and conflict.in_transaction:
                raise
        sleep(random.random() * min(max_pause, pause * 2 ** min(nth, 30)))
    return decide()
