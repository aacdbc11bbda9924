"""Slots of deployments' limits: taken, kept and given back in the append of the state (spec 4.6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ledger
from ledger.runs import FlowRuns, Verdict, states
from ledger.runs.json_values import new_id
from ledger.runs.leases import LeaseKind
from ledger.runs.limits import Limits
from ledger.runs.records import Records

CLIENT = "3.9.1"


class Deployment:
    """A deployment with a limit, for the runs of one test."""

    def __init__(self, log: ledger.Ledger, slots: int, strategy: str | None = None, **limit: Any) -> None:
        records, self.flow, self.runs, self.limits = Records(log), new_id(), FlowRuns(log), Limits(log)
        self.limit = records.create("concurrency_limit", {"name": new_id(), "limit": slots, **limit}).id
        options = {} if strategy is None else {"concurrency_options": {"collision_strategy": strategy}}
        self.id = records.create(
            "deployment", {"name": "d", "flow_id": self.flow, "concurrency_limit_id": self.limit, **options}
        ).id

    def run(self) -> str:
        return self.runs.create(self.flow, state=states.scheduled(), deployment_id=self.id)[0].id

    def holders(self) -> list[str]:
        (limit,) = self.limits.opened(ids=[self.limit])
        return [(one.holder or {})["id"] for one in limit.state.holdings.values()]

    def moved(self, run: str, *proposed: states.State) -> list[Verdict]:
        return [self.runs.set_state(run, state, client_version=CLIENT).status for state in proposed]


def test_a_run_holds_a_slot_from_pending_to_its_end(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    run = given.run()
    assert given.holders() == []
    given.moved(run, states.pending(), states.submitting(), states.running())
    assert given.holders() == [run]
    given.moved(run, states.completed())
    assert given.holders() == []
    state = given.runs.get(run).state
    assert state is not None
    assert state.detail("deployment_concurrency_lease_id") is None


@pytest.mark.parametrize(
    ("strategy", "then"),
    [("ENQUEUE", "AwaitingConcurrencySlot"), (None, "AwaitingConcurrencySlot"), ("CANCEL_NEW", "Cancelled")],
)
def test_where_no_slot_is_free_a_run_waits_or_is_cancelled(
    shared: ledger.Ledger, strategy: str | None, then: str
) -> None:
    given = Deployment(shared, 1, strategy)
    first, second = given.run(), given.run()
    given.moved(first, states.pending())
    answer = given.runs.set_state(second, states.pending())
    assert (answer.status, answer.rule, answer.run.state_name) == (
        Verdict.REJECT,
        "SecureFlowConcurrencySlots",
        then,
    )
    assert given.holders() == [first]


def test_a_limit_of_none_aborts(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 0)
    assert given.moved(given.run(), states.pending()) == [Verdict.ABORT]


def test_a_deployment_that_is_gone_aborts(shared: ledger.Ledger) -> None:
    runs = FlowRuns(shared)
    run, _ = runs.create(new_id(), state=states.scheduled(), deployment_id=new_id())
    answer = runs.set_state(run.id, states.pending())
    assert (answer.status, answer.reason) == (Verdict.ABORT, "Deployment not found.")


def test_w3_12_an_inactive_limit_gives_no_slots_and_takes_them_back(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    first, second = given.run(), given.run()
    given.moved(first, states.pending(), states.running())
    Records(shared).change("concurrency_limit", given.limit, {"active": False})
    assert given.moved(second, states.pending(), states.running()) == [Verdict.ACCEPT] * 2
    assert given.moved(first, states.completed()) == [Verdict.ACCEPT]
    assert given.holders() == []


def test_a_slot_is_kept_in_a_pause_and_over_a_retry(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    run = given.run()
    given.runs.change(run, empirical_policy={"retries": 1})
    given.moved(run, states.pending(), states.running(), states.paused(), states.running(), states.failed())
    assert given.runs.get(run).state_name == "AwaitingRetry"
    assert given.holders() == [run]
    given.moved(run, states.running(), states.failed())
    assert given.runs.get(run).state_name == "Failed"
    assert given.holders() == []


def test_a_suspended_run_gives_its_slot_back(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    run = given.run()
    given.moved(run, states.pending(), states.running(), states.suspended())
    assert given.holders() == []
    assert given.moved(run, states.resuming(), states.pending()) == [Verdict.ACCEPT] * 2
    assert given.holders() == [run]


@pytest.mark.parametrize("way", ["forced", "cancelled", "deleted"])
def test_w3_04_no_way_out_leaks_a_slot(shared: ledger.Ledger, way: str) -> None:
    given = Deployment(shared, 1)
    run = given.run()
    given.moved(run, states.pending(), states.running())
    match way:
        case "forced":
            given.runs.set_state(run, states.crashed(), force=True)
        case "cancelled":
            given.moved(run, states.cancelling(), states.cancelled())
        case _:
            given.runs.delete(run)
    assert given.holders() == []


def test_w3_07_a_lost_lease_is_taken_again_where_a_slot_is_free(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    run, other = given.run(), given.run()
    given.moved(run, states.pending())
    (limit,) = given.limits.opened(ids=[given.limit])
    (lease,) = limit.state.holdings
    given.limits.release(lease)  # as when it ran out
    assert given.moved(run, states.running()) == [Verdict.ACCEPT]
    assert given.holders() == [run]

    given.limits.release(lease)
    given.moved(other, states.pending())
    assert given.holders() == [other]
    third = given.run()
    given.moved(other, states.cancelled())
    given.moved(third, states.pending())
    (limit,) = given.limits.opened(ids=[given.limit])
    (lease,) = limit.state.holdings
    given.limits.release(lease)
    assert given.moved(other, states.scheduled(), states.pending()) == [Verdict.ACCEPT] * 2
    answer = given.runs.set_state(third, states.running(), client_version=CLIENT)
    assert (answer.status, answer.rule, answer.run.state_name) == (
        Verdict.REJECT,
        "ValidateDeploymentConcurrencyAtRunning",
        "Cancelled",
    )


def test_an_old_client_keeps_its_slot_without_a_lease(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1)
    run = given.run()
    given.moved(run, states.pending())
    given.runs.set_state(run, states.running(), client_version="3.4.10")
    (limit,) = given.limits.opened(ids=[given.limit])
    (lease,) = limit.state.holdings
    assert given.limits.leases.get(LeaseKind.SLOTS, lease) is None
    assert given.holders() == [run]


def test_a_late_run_of_a_full_deployment_that_cancels_is_cancelled(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 1, "CANCEL_NEW")
    first, second = given.run(), given.run()
    assert given.runs.mark_late(second).run.state_name == "Late"
    given.moved(first, states.pending())
    third = given.run()
    answer = given.runs.mark_late(third)
    assert (answer.rule, answer.run.state_name) == ("EnforceDeploymentConcurrencyOnLate", "Cancelled")


def test_many_workers_at_once_take_as_many_slots_as_there_are(shared: ledger.Ledger) -> None:
    given = Deployment(shared, 3)
    runs = [given.run() for _ in range(10)]
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda run: given.runs.set_state(run, states.pending()), runs))
    assert sorted(answer.status for answer in answers) == ["ACCEPT"] * 3 + ["REJECT"] * 7
    assert len(given.holders()) == 3
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda run: given.runs.set_state(run, states.cancelled()), given.holders()))
    assert given.holders() == []
