"""Running a decision again that somebody else came before."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import BadInput, TransitionConflict, shown

T = TypeVar("T")


def retry_conflicts(
    block: Callable[[], T],
    *,
    max_retries: int = 1,
    pause: float = 0.01,
    longest: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What a function returns, run again where it raises TransitionConflict, at most so often (spec S2-46).

    pause: seconds at most before the second run, doubled for each further one up to `longest`; how much of it
    is by chance, so that competitors part. A conflict in a transaction of the caller's own that goes on
    seeing what it saw is not retried: run that whole again (spec W2-08).
    """
    if max_retries < 0:
        raise BadInput(f"max_retries {shown(max_retries)} must be an integer, 0 or more")
    for nth in range(max_retries):
        try:
            return block()
        except TransitionConflict as conflict:
            if conflict.in_transaction:
                raise
        sleep(random.random() * min(longest, pause * 2**nth))
    return block()
