"""A worker with hints asks when one came, when there may be more, and every few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

import pytest

from consumers.jobs.claim import LogOffers, Offer
from consumers.jobs.hints import HintedOffers
from consumers.jobs.signal import Signal
from ledger import Ledger
from ledger.jobs import Jobs
from tests.jobs.claims import shown
from tests.jobs.conftest import eventually, working


class Said:
    """Hints that a test gives by hand."""

    def __init__(self) -> None:
        self.signal, self.news, self.always = Signal(), False, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal.close()

    def heard(self) -> bool:
        """Whether one was given since; with `always`, as if there were no hints."""
        news, self.news = self.news, False
        return news or self.always

    def give(self) -> None:
        """Give one."""
        self.news = True
        self.signal.set()


@pytest.fixture
def said() -> Iterator[Said]:
    """Hints by hand."""
    with Said() as hints:
        yield hints


class Counted:
    """Offers of the log, and how often they were asked for."""

    def __init__(self, log: Ledger) -> None:
        self.offers, self.asked = LogOffers(log, "w", None, 60), 0

    def take(self, limit: int, over: Sequence[tuple[str, int]] = ()) -> list[Offer]:
        """As the log does."""
        self.asked += limit > 0
        return self.offers.take(limit, over)

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        """As the log does."""
        self.offers.release(over)


def test_when_it_asks(log: Ledger, said: Said) -> None:
    """At first, while there may be more, with what is over, and at each sweep; else not."""
    jobs, counted = Jobs(log), Counted(log)
    offers = HintedOffers(counted, said, sweep=3600)
    for _ in range(3):
        jobs.submit("ping")
    shown(log)
    taken = [offers.take(2) for _ in range(4)]
    assert ([len(one) for one in taken], counted.asked) == ([2, 1, 0, 0], 2)
    again = offers.take(5, [(one.work.name, one.token) for one in taken[0]])  # released, and so taken anew
    assert (len(again), counted.asked) == (2, 3)
    offers._next_sweep = 0.0
    assert (offers.take(5), counted.asked) == ([], 4)


def test_it_asks_for_a_while_after_a_hint(log: Ledger, said: Said) -> None:
    """The view `work` may be behind the hint."""
    jobs, counted = Jobs(log), Counted(log)
    offers = HintedOffers(counted, said, again=60, sweep=3600)
    shown(log)
    assert (offers.take(5), offers.take(5), counted.asked) == ([], [], 1)
    said.give()
    assert (offers.take(5), counted.asked) == ([], 2)
    jobs.submit("ping")
    shown(log)
    assert (len(offers.take(5)), counted.asked) == (1, 3)


def test_a_worker_with_hints(log: Ledger, said: Said) -> None:
    """A hint starts work at once, without one the sweep does; between them it asks for nothing."""
    jobs, counted = Jobs(log), Counted(log)
    with working(log, hints=said, offers=counted) as at_work:
        eventually(lambda: counted.asked)
        offers = at_work.worker.offers
        assert isinstance(offers, HintedOffers)
        offers.again, offers.sweep, offers._next_sweep = 0.5, 3600, 0.0
        # Before there is the view, a worker asks again and again.
        eventually(lambda: offers._next_sweep > time.monotonic() + 1800)
        assert _asked_in(counted, 1.0) == 0
        said.always, asked = True, counted.asked
        eventually(lambda: counted.asked > asked + 2)
        said.always = False
        job = jobs.submit("ping")
        said.give()
        assert jobs.wait(job, seconds=30) == {job: "succeeded"}
        eventually(lambda: _asked_in(counted, 0.5) == 0)
        unheard = jobs.submit("ping")
        offers.sweep = offers._next_sweep = 0.1
        assert jobs.wait(unheard, seconds=30) == {unheard: "succeeded"}
    assert at_work.error is None


def _asked_in(counted: Counted, seconds: float) -> int:
    """How often they are asked for in so many seconds."""
    before = counted.asked
    time.sleep(seconds)
    return counted.asked - before
