"""Concurrency limits: who holds slots, when they come back, and that no interleaving gives too many."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput, Ledger
from ledger.log.append import append_of
from ledger.runs.leases import LeaseKind, RunLeases
from ledger.runs.limit import NOBODY, Limit, OpenLimit, SlotsReleased
from ledger.runs.limits import Full, Limits, Taken, appends_to_keep, appends_to_release, appends_to_take
from ledger.runs.records import Records
from ledger.runs.waiters import PATIENCE, Waiters

_numbers = count(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(log: Ledger, limit: int, name: str = "", **fields: Any) -> tuple[str, str]:
    """The name and the id of a new limit."""
    name = name or f"limit{next(_numbers)}"
    return name, Records(log).create("concurrency_limit", {"name": name, "limit": limit, **fields}).id


def state(log: Ledger, id: str) -> Limit:
    return log.load(OpenLimit, id).state


def taken(answer: Taken | Full) -> str:
    assert isinstance(answer, Taken)
    return answer.lease or NOBODY


def facts(log: Ledger, id: str) -> list[str]:
    return [one.topic.removeprefix("concurrency_limit.") for one in log.read(OpenLimit.name_of(id))]


def forget_rows(log: Ledger, *leases: str) -> None:
    """What a crash of the server does to the unlogged table."""
    RunLeases(log).release(LeaseKind.SLOTS, *leases)


def test_slots_are_taken_and_given_back(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 2)
    first = taken(limits.increment([name], 1, lease_seconds=60, holder={"type": "flow_run", "id": "a"}))
    second = taken(limits.increment([name], 1, lease_seconds=60))
    refused = limits.increment([name], 1, lease_seconds=60)
    assert isinstance(refused, Full)
    assert refused.limits == (name,)
    assert 0 < refused.retry_after_seconds < 60
    assert limits.release(first)
    assert limits.release(first) == []  # once
    assert [*state(shared, id).holdings] == [second]
    assert facts(shared, id) == ["created", *["slots_taken"] * 2, "slots_refused", "slots_released"]


def test_several_limits_are_taken_all_or_none(shared: Ledger) -> None:
    limits = Limits(shared)
    (one, first), (two, second) = made(shared, 5), made(shared, 1)
    taken(limits.increment([two], 1, lease_seconds=60))
    assert isinstance(limits.increment([one, two], 1, lease_seconds=60), Full)
    assert not state(shared, first).holdings
    assert len(state(shared, second).holdings) == 1


def test_names_without_a_limit_limit_nothing_and_their_lease_can_be_renewed(shared: Ledger) -> None:
    limits = Limits(shared)
    lease = taken(limits.increment(["nobody made this"], 1, lease_seconds=60))
    assert limits.renew(lease, 60)
    limits.release(lease)
    assert not limits.renew(lease, 60)


def test_what_can_never_be_granted_is_refused_as_input(shared: Ledger) -> None:
    limits = Limits(shared)
    name, _ = made(shared, 2)
    for slots, mode in ((3, "concurrency"), (0, "concurrency"), (1, "rate_limit")):
        with pytest.raises(BadInput):
            limits.increment([name], slots, mode)  # type: ignore[arg-type]


def test_slots_of_a_rate_limit_come_back_with_time() -> None:
    """A pure function of state and time: nothing is recorded for it."""
    limit = OpenLimit("x")
    limit.create({"name": "rate", "limit": 10, "slot_decay_per_second": 2.0})
    limit.take(NOBODY, 6, NOW)
    limit.take("lease", 4, NOW)
    held = limit.state.held(NOW + timedelta(seconds=4))
    assert held == {NOBODY: 0.0, "lease": 2.0}  # nobody's slots first
    assert limit.state.active_slots(NOW + timedelta(seconds=5)) == 0
    assert [limit.state.has_room(1, NOW + timedelta(seconds=s)) for s in (0, 0.49, 0.5)] == [
        False,
        False,
        True,
    ]
    assert limit.state.retry_after(1, NOW) == 0.5
    limit.take(NOBODY, 1, NOW + timedelta(seconds=0.5))  # a fraction that decayed is not lost
    assert limit.state.active_slots(NOW + timedelta(seconds=0.75)) == 9.5
    assert limit.release("lease", NOW + timedelta(seconds=9))
    assert limit.state.active_slots(NOW + timedelta(seconds=9)) == 0


def test_the_average_occupancy_is_weighted_over_the_last_releases() -> None:
    limit = OpenLimit("x")
    limit.create({"name": "x", "limit": 2})
    limit.take("a", 1, NOW)
    limit.release("a", NOW + timedelta(seconds=10))
    assert limit.state.occupancy == 2.0 + 10.0 / 4 - 2.0 / 4  # spec S3-61: over limit * 2 samples
    assert limit.state.retry_after(1, NOW) == 4.0 / 2


def test_a_holder_that_waits_is_refused_in_the_log_once(shared: Ledger) -> None:
    """A crowd of waiting clients does not grow the limit's stream; how many wait still spreads them."""
    limits = Limits(shared)
    name, id = made(shared, 1)

    def ask(run: str) -> Taken | Full:
        return limits.increment([name], 1, lease_seconds=60, holder={"type": "task_run", "id": run})

    def refusals() -> int:
        return facts(shared, id).count("slots_refused")

    held = taken(ask("a"))
    for _ in range(3):
        assert all(isinstance(ask(run), Full) for run in "bcdef")
    assert refusals() == 5
    last = ask("b")
    assert isinstance(last, Full)
    assert last.retry_after_seconds >= 0.7 * 2.0 * 5  # four others and itself, each for 2 s
    limits.release(held)
    limits.release(taken(ask("b")))
    held = taken(ask("a"))
    assert isinstance(ask("b"), Full)
    assert refusals() == 6  # a new request of one that was granted
    Records(shared).change("concurrency_limit", id, {"limit": 2})
    taken(ask("c"))
    assert isinstance(ask("b"), Full)
    assert refusals() == 7  # of the limit as it is now


def test_who_asks_no_more_waits_no_more() -> None:
    waiters, limit = Waiters(), Limit(id="x")
    ann, bob = {"type": "flow_run", "id": "ann"}, {"type": "flow_run", "id": "bob"}
    waiters.refused([limit], ann, 3, NOW)
    assert (waiters.others(limit, bob, NOW), waiters.others(limit, ann, NOW)) == (3, 0)
    later = NOW + PATIENCE + timedelta(seconds=1)
    assert (waiters.knows(limit, ann, NOW + PATIENCE), waiters.knows(limit, ann, later)) == (True, False)
    assert waiters.others(limit, bob, later) == 0


def test_refusals_raise_the_time_to_wait_and_fade(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 1)
    taken(limits.increment([name], 1, lease_seconds=60))
    waits = [limits.increment([name], 1, lease_seconds=60) for _ in range(8)]
    assert all(isinstance(wait, Full) for wait in waits)
    now = limits.leases.clock()
    assert state(shared, id).denied_slots(now) > 7
    assert state(shared, id).denied_slots(now + timedelta(seconds=20)) == 0


def test_w3_04_the_active_count_is_the_sum_of_holders(shared: Ledger) -> None:
    """A second release of the same lease, or of slots that nobody took, frees nothing of another's."""
    limits = Limits(shared)
    name, id = made(shared, 3)
    mine = taken(limits.increment([name], 1, lease_seconds=60))
    other = taken(limits.increment([name], 2, lease_seconds=60))
    limits.release(mine)
    limits.release(mine)
    limits.decrement([name], 5)
    assert state(shared, id).active_slots(limits.leases.clock()) == 2
    assert [*state(shared, id).holdings] == [other]
    last = shared.read(OpenLimit.name_of(id))[-1].event
    assert isinstance(last, SlotsReleased)
    assert (last.slots, last.surplus) == (0, 5)  # and the history shows it


def test_w3_04_a_slot_moves_in_the_same_append_as_the_state(shared: Ledger) -> None:
    """What a rule does: of two appends with the same slot one is stored, with all that goes with it."""
    limits = Limits(shared)
    name, id = made(shared, 1)
    opened, again = limits.opened([name]), limits.opened([name])
    first, second = appends_to_take(opened, "run-1"), appends_to_take(again, "run-2")
    assert not isinstance(first, Full)
    assert not isinstance(second, Full)
    variables = Records(shared).open("variable", str(uuid4())), Records(shared).open("variable", str(uuid4()))
    for nth, one in enumerate(variables):
        one.create({"name": f"state_{id}_{nth}".replace("-", ""), "value": nth})
    shared.append_all([append_of(variables[0]), *first])
    with pytest.raises(Exception, match=id):
        shared.append_all([append_of(variables[1]), *second])
    assert [*state(shared, id).holdings] == ["run-1"]
    assert shared.load(type(variables[1]), variables[1].id).version == 0
    shared.append_all(appends_to_release(limits.opened(ids=[id]), "run-1"))
    assert appends_to_release(limits.opened(ids=[id]), "run-1") == []


def test_w3_05_only_the_limits_that_were_asked_for_are_looked_at(shared: Ledger) -> None:
    limits = Limits(shared)
    (_, asked), (_, full) = made(shared, 1, "tag:asked"), made(shared, 1, "tag:full")
    taken(limits.take_tags(["full"], "another"))
    before = state(shared, full)
    answer = limits.take_tags(["asked", "unlimited"], "mine")
    assert isinstance(answer, Taken)
    assert [limit.name for limit in answer.limits] == ["tag:asked"]
    assert limits.take_tags(["asked"], "mine")  # once for a run, however often it asks
    assert state(shared, full) == before
    assert limits.opened(ids=[asked]).limits[0].shown_by_tag()["active_slots"] == ["mine"]
    released = limits.release_tags(["asked", "full"], "mine")
    assert [limit.name for limit in released] == ["tag:asked", "tag:full"]
    assert state(shared, full) == before
    assert not state(shared, asked).holdings


def test_w3_12_an_inactive_limit_takes_its_slots_back(shared: Ledger) -> None:
    limits, records = Limits(shared), Records(shared)
    name, id = made(shared, 1)
    lease = taken(limits.increment([name], 1, lease_seconds=60))
    records.change("concurrency_limit", id, {"active": False})
    free = taken(limits.increment([name], 1, lease_seconds=60))  # limits nothing, so nothing is held
    assert [*state(shared, id).holdings] == [lease]
    assert [limit.name for limit in limits.release(lease)] == [name]
    assert limits.release(free) == []
    records.change("concurrency_limit", id, {"active": True})
    assert state(shared, id).active_slots(limits.leases.clock()) == 0
    taken(limits.increment([name], 1, lease_seconds=60))
    records.delete("concurrency_limit", id)
    assert isinstance(limits.increment([name], 1, lease_seconds=60), Taken)


def expire(log: Ledger, lease: str) -> list[str]:
    """What the service does with a lease that ran out."""
    limits, leases = Limits(log), RunLeases(log)
    leases.renew(LeaseKind.SLOTS, lease, -1.0)
    gone = leases.take_expired(LeaseKind.SLOTS, kept=LeaseKind.LOST_SLOTS, keep=3600.0)
    return [
        limit.name for one in gone if one.key == lease for limit in limits.expire(lease, one.data["limits"])
    ]


def test_w3_07_a_lost_lease_is_taken_again_where_the_slot_is_free(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 1)
    lease = taken(limits.increment([name], 1, lease_seconds=60))
    assert expire(shared, lease) == [name]
    assert not state(shared, id).holdings
    assert limits.renew(lease, 60)
    assert [*state(shared, id).holdings] == [lease]
    assert expire(shared, lease) == [name]
    other = taken(limits.increment([name], 1, lease_seconds=60))
    assert not limits.renew(lease, 60)  # it is another's now
    limits.release(other)
    assert limits.renew(lease, 60)


def test_a_renewal_and_an_expiry_at_the_same_time_leave_one_truth(shared: Ledger) -> None:
    """Whoever comes first: the row and the slots agree afterwards."""
    limits, leases = Limits(shared), RunLeases(shared)
    name, id = made(shared, 1)
    lease = taken(limits.increment([name], 1, lease_seconds=60))
    leases.renew(LeaseKind.SLOTS, lease, -1.0)
    (gone,) = [one for one in leases.take_expired(LeaseKind.SLOTS, kept=LeaseKind.LOST_SLOTS, keep=60.0)
               if one.key == lease]  # fmt: skip
    assert limits.renew(lease, 60)  # between the row's end and the append of the expiry
    assert limits.expire(lease, gone.data["limits"]) == []
    assert [*state(shared, id).holdings] == [lease]
    assert leases.lasting(LeaseKind.SLOTS, [lease]) == {lease}


def test_a_renewal_works_although_the_table_was_lost(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 1)
    lease = taken(limits.increment([name], 1, lease_seconds=60))
    forget_rows(shared, lease)
    assert limits.renew(lease, 60)
    forget_rows(shared, lease)
    assert [limit.name for limit in limits.release(lease)] == [name]
    assert not state(shared, id).holdings


def test_a_lease_can_be_kept_without_renewals(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 1)
    lease = taken(limits.increment([name], 1, lease_seconds=60))
    shared.append_all(appends_to_keep(limits.opened([name]), lease))
    assert not state(shared, id).holdings[lease].leased
    assert appends_to_keep(limits.opened([name]), lease) == []


def test_an_operator_resets_a_limit(shared: Ledger) -> None:
    limits = Limits(shared)
    name, id = made(shared, 3, f"tag:t{next(_numbers)}")
    taken(limits.increment([name], 3, lease_seconds=60))
    limits.reset(id, {"task": {"slots": 1, "holder": {"type": "task_run", "id": "task"}}})
    (opened,) = limits.opened(ids=[id])
    assert opened.shown_by_tag()["active_slots"] == ["task"]
    limits.reset(id, {NOBODY: {"slots": 2}})
    assert opened.shown_at(NOW)["avg_slot_occupancy_seconds"] == 2.0
    (opened,) = limits.opened(ids=[id])
    assert opened.shown_at(NOW)["active_slots"] == 2
    assert limits.reset(str(uuid4()), {}) is None


def test_never_more_than_the_limit_however_many_take_at_once(shared: Ledger) -> None:
    """Race: each thread takes and releases; the history never holds more than the limit."""
    name, id = made(shared, 3)
    begun, granted = threading.Barrier(4), list[str]()

    def work() -> None:
        limits = Limits(shared)
        begun.wait()
        for _ in range(8):
            answer = limits.increment([name], 1, lease_seconds=60)
            if isinstance(answer, Taken) and answer.lease:
                granted.append(answer.lease)
                limits.release(answer.lease)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replayed = OpenLimit(id)
    most = 0.0
    for one in shared.read(OpenLimit.name_of(id)):
        replayed.replay(one.event, one.recorded_at)
        most = max(most, sum(one.slots for one in replayed.state.holdings.values()))
    assert granted
    assert 0 < most <= 3
    assert not replayed.state.holdings
    assert replayed.state == state(shared, id)  # the head is the fold


WHAT = ("take", "take", "release", "expire", "nobody", "give_back", "switch", "raise", "lower")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(WHAT),
        st.integers(0, 4),
        st.integers(1, 3),
        st.floats(0, 5, allow_nan=False).map(lambda seconds: round(seconds, 3)),
    ),
    max_size=25,
)  # fmt: skip


@given(STEPS, st.sampled_from([0.0, 0.0, 0.5, 3.0]))
@settings(max_examples=25, deadline=None)
def test_slots_equal_the_fold_of_any_history(steps: list[tuple[str, int, int, float]], decay: float) -> None:
    """Law: the active count is the sum of what leases hold, never below zero, never taken above the limit."""
    limit, now = OpenLimit("x"), NOW
    limit.create({"name": "x", "limit": 4, "slot_decay_per_second": decay})
    model: dict[str, float] = {}
    for what, who, slots, seconds in steps:
        now += timedelta(seconds=seconds)
        lease = f"lease{who}"
        before = limit.state.active_slots(now)
        match what:
            case "take" | "nobody" if limit.state.has_room(slots, now) and slots <= limit.state.limit:
                key = lease if what == "take" else NOBODY
                if limit.state.active and (key == NOBODY or key not in model):
                    assert before + slots <= limit.state.limit + 1e-6
                    model[key] = model.get(key, 0) + slots
                limit.take(key, slots, now)
            case "release" | "expire":
                assert limit.release(lease, now) == (lease in model)
                model.pop(lease, None)
            case "give_back":
                given = limit.give_back(slots, now)
                model[NOBODY] = model.get(NOBODY, 0) - given
            case "switch":
                limit.change({"active": not limit.state.active})
            case "raise" | "lower":
                limit.change({"limit": 6 if what == "raise" else 2})
        assert limit.state.active_slots(now) >= 0
        if decay == 0:
            held = {key: value for key, value in model.items() if value}
            assert limit.state.held(now) == held
    again = OpenLimit("x", past=[(event, now) for event in limit.news])
    assert again.state.held(now) == limit.state.held(now)
    assert again.state.occupancy == limit.state.occupancy
