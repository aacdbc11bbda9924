"""
Hints: news that work may have been offered, so that an idle worker need not ask the log all the time.

A hint decides nothing. It may come twice, or before the view `work` has the row, or never: so a worker
goes on asking for a second after each, and asks every few seconds without one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol, Self

from .claim import Offer, Offers
from .signal import Signal

AGAIN: Final = 1.0
"""Seconds for which a worker asks again after a hint: the view `work` may be behind the hint."""
SWEEP: Final = 5.0
"""Seconds after which a worker asks without a hint: a lost one costs no more."""


class Hints(Protocol):
    """A source of hints. It listens while its block runs, in a thread of its own.

    signal: set at each hint of work that is due now.
    """

    signal: Signal

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def heard(self) -> bool:
        """Whether work may have been offered, or became due, since the last call; True while it is deaf."""
        ...


class HintedOffers:
    """Offers of another source, asked when a hint came, when there may be more, and at each sweep."""

    def __init__(self, offers: Offers, hints: Hints, *, again: float = AGAIN, sweep: float = SWEEP) -> None:
        self.offers, self.hints, self.again, self.sweep = offers, hints, again, sweep
        self._asks_until = self._next_sweep = 0.0

    def take(self, limit: int, over: Sequence[tuple[str, int]] = ()) -> list[Offer]:
        now = time.monotonic()
        if self.hints.heard():
            self._asks_until = now + self.again
        if limit > 0 and not over and self._asks_until < now < self._next_sweep:
            return []
        taken = self.offers.take(limit, over)
        if limit > 0:
            self._next_sweep = now if len(taken) == limit else now + self.sweep
        return taken

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        self.offers.release(over)
