"""What is taken first: the urgent, then the old; from the queues that are asked for."""

from __future__ import annotations

import pytest

from consumers.jobs.claim import LogOffers
from ledger import BadInput, Ledger
from ledger.jobs import Jobs, OpenJob
from ledger.jobs.leases import Leases
from tests.jobs.claims import claim_one, shown


def order(log: Ledger, *queues: str, at_once: int = 1) -> list[str]:
    """The jobs in the order in which they are taken."""
    shown(log)
    offers, found = LogOffers(log, "w", list(queues) or None, 60), list[str]()
    while taken := offers.take(at_once):
        found += [one.work.state.id for one in taken]
    return found


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_the_urgent_first_then_the_old(log: Ledger, at_once: int) -> None:
    """Also among several operations and queues."""
    jobs = Jobs(log)
    priorities = [0, 5, -3, 5, 0, 2**31 - 1, -(2**31), 1]
    ids = [
        jobs.submit(f"op{n % 3}", queue=f"q{n % 2}", priority=priority)
        for n, priority in enumerate(priorities)
    ]
    expected = sorted(range(len(ids)), key=lambda n: (-priorities[n], n))
    assert order(log, at_once=at_once) == [ids[n] for n in expected]


def test_only_from_the_queues_that_are_asked_for(log: Ledger) -> None:
    jobs = Jobs(log)
    a, b, c = (jobs.submit("ping", queue=queue) for queue in ("a", "b/%c", " c "))
    assert jobs.get(c).queue == "c", "white space around a name is none of it"
    assert order(log, "nobody") == []
    assert order(log, "b/%c", "c") == [b, c]
    assert order(log, "a") == [a]


def test_what_was_put_off_or_redriven_keeps_its_priority(log: Ledger) -> None:
    jobs = Jobs(log)
    first = jobs.submit("ping", priority=7)
    claimed = claim_one(log)
    claimed.work.attempt_failed("Boom")
    log.append_all([claimed.work.under_lease(claimed.token)])
    Leases(log).release([(claimed.work.name, claimed.token)])
    jobs.submit("ping")
    jobs.retry(first)
    assert order(log)[0] == first


def test_what_is_delayed_comes_when_it_is_due_and_not_before(log: Ledger) -> None:
    jobs = Jobs(log)
    later, now = jobs.submit("ping", priority=9, delay=3600), jobs.submit("ping")
    assert order(log) == [now]
    assert jobs.status(later) == "queued"


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 1.5, "high"])
def test_a_priority_that_is_none_is_refused(priority: int) -> None:
    with pytest.raises(BadInput, match="priority"):
        OpenJob("x").create("ping", priority=priority)
