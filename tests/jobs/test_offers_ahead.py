"""Work that a worker takes ahead: only after short work, only for a moment, and never what has limits."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.jobs import claim
from consumers.jobs.claim import LogOffers, OffersAhead
from ledger import Ledger
from ledger.jobs import Jobs
from ledger.jobs.leases import Leases
from tests.jobs.claims import shown

OVER = [("job/ended", 1), ("job/ended too", 1)]


def leased(log: Ledger) -> set[str]:
    return {lease.stream for lease in Leases(log).all()}


@pytest.fixture
def forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment that does not end in a test."""
    monkeypatch.setattr(claim, "MOMENT", 1000.0)


@pytest.mark.usefixtures("forever")
def test_as_many_are_taken_ahead_as_ended_a_moment_ago(log: Ledger) -> None:
    jobs = [f"job/{Jobs(log).submit('ping')}" for _ in range(6)]
    shown(log)
    offers = OffersAhead(LogOffers(log, "w", None, 60))
    assert [one.work.name for one in offers.take(1)] == jobs[:1]
    assert leased(log) == {*jobs[:1]}, "nothing has ended yet"
    assert offers.take(0, OVER) == []
    assert [one.work.name for one in offers.take(1)] == jobs[1:2]
    assert leased(log) == {*jobs[:4]}
    assert [one.work.name for one in offers.take(2)] == jobs[2:4]
    assert leased(log) == {*jobs[:4]}, "it had them already"
    offers.take(1, [(jobs[0], 2)])
    assert leased(log) == {*jobs[1:]}, "what is over is released with the next leases"
    offers.release([(jobs[1], 2)])
    assert leased(log) == {*jobs[2:5]}, "what was taken ahead is released as well"


def test_what_is_not_wanted_within_a_moment_is_released(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [f"job/{Jobs(log).submit('ping')}" for _ in range(3)]
    shown(log)
    offers = OffersAhead(LogOffers(log, "w", None, 60))
    monkeypatch.setattr(claim, "MOMENT", 1000.0)
    offers.take(0, OVER)
    (first,) = offers.take(1)
    assert leased(log) == {*jobs}
    assert offers.take(0) == []
    assert leased(log) == {*jobs}
    monkeypatch.setattr(claim, "MOMENT", -1.0)
    assert offers.take(0) == []
    assert leased(log) == {first.work.name}
    assert [one.work.name for one in offers.take(1)] == jobs[1:2], "and can be taken again"


@pytest.mark.usefixtures("forever")
@pytest.mark.parametrize("limits", [{"rate": 5, "seconds": 1000}, {"concurrency": 5}])
def test_what_has_limits_is_not_taken_ahead(log: Ledger, limits: dict[str, Any]) -> None:
    """Its lease would count against them, also while the worker does not run it."""
    Jobs(log).limit("rated", **limits)
    rated = [f"job/{Jobs(log).submit('rated')}" for _ in range(3)]
    plain = f"job/{Jobs(log).submit('ping')}"
    shown(log)
    offers = OffersAhead(LogOffers(log, "w", None, 60))
    offers.take(0, OVER)
    assert [one.work.name for one in offers.take(1)] == rated[:1]
    assert leased(log) == {rated[0]}
    assert [one.work.name for one in offers.take(2, [(rated[0], 2)])] == rated[1:]
    assert leased(log) == {*rated[1:], plain}
