"""Claims that wait for scopes elsewhere, that take over, and two steps that decide under the lock."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ledger import Ledger, LockTimeout
from ledger.pipelines import LSMStateService, LSMStripId, LSMStripState, RunDecision
from tests.pipelines.crowd import Crowd, both_stages, both_ways, enter, entered, open_elsewhere, service_of

STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"


@both_stages
def test_those_that_wait_for_a_scope_elsewhere(log: Ledger, dsn: str, guard: str) -> None:
    """Those with little time give up and record nothing; of the patient ones one is started."""
    service, gave_up = LSMStateService(log), threading.Semaphore(0)

    def hasty() -> str:
        with pytest.raises(LockTimeout):
            enter(guard, service, STRIP, timeout_seconds=0.05)
        gave_up.release()
        return "gave up"

    def patient() -> str:
        return str(enter(guard, service, STRIP, timeout_seconds=30).decision)

    def hold() -> str:
        for _ in range(3):
            assert gave_up.acquire(timeout=30)
        assert log.head(STREAM) is None
        held.set()
        return "held"

    with open_elsewhere(dsn) as held, Crowd(7) as crowd:
        said = crowd.all(hasty, patient, hasty, patient, hasty, patient, hold)
    assert Counter(said) == {"gave up": 3, "started": 1, "skipped": 2, "held": 1}
    assert entered(log, STREAM) == 1


@both_stages
def test_of_many_that_take_over_the_last_holds_it(log: Ledger, guard: str) -> None:
    service = LSMStateService(log)
    with Crowd(6) as crowd:
        entries = crowd.all(lambda: enter(guard, service, STRIP, force_rerun=True))
    assert sorted(entry.number for entry in entries) == [1, 2, 3, 4, 5, 6]
    assert Counter(entry.decision for entry in entries) == {RunDecision.STARTED: 1, RunDecision.RESTARTED: 5}
    with service.open_strip(STRIP) as strip:
        assert [entry.number for entry in entries if entry.held_by(strip)] == [6]


@both_ways
def test_exactly_one_of_two_steps_deletes_the_source(log: Ledger, locked: bool) -> None:
    """Spec S0-66: whichever comes second sees that the other is done."""
    service, last = service_of(log, locked), Counter[str]()

    def processed(strip: LSMStripState) -> str | None:
        strip.mark_completed()
        return "process" if strip.archived else None

    def archived(strip: LSMStripState) -> str | None:
        strip.set_archived()
        return "archive" if strip.succeeded else None

    with Crowd(2) as crowd:
        for number in range(200):
            strip = LSMStripId("p", 1, number % 20, number)
            both = crowd.all(
                lambda strip=strip: service.store.update_item(strip, processed),
                lambda strip=strip: service.store.update_item(strip, archived),
            )
            (deleter,) = filter(None, both)  # exactly one
            last[deleter] += 1
    assert last.total() == 200
    assert len(last) == 2, "one step was always the last: they did not meet"
