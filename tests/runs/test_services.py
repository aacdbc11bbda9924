"""The services of runs, round by round: each acts on what is due, and on nothing else."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from consumers.runs import Listening, RunServices
from consumers.runs.cancellations import Cancellations
from consumers.runs.deployment_scheduler import Ahead, DeploymentScheduler
from consumers.runs.late_runs import LateRuns
from consumers.runs.listening import KEY
from consumers.runs.log_retention import LogRetention
from consumers.runs.pause_expiry import PauseExpiry
from consumers.runs.slot_leases import SlotLeases
from consumers.runs.worker_status import WorkerStatus
from ledger.runs import FlowRun, StateType
from ledger.runs.deployments import Deployments
from ledger.runs.json_values import new_id
from ledger.runs.leases import LeaseKind
from ledger.runs.limit import OpenLimit
from ledger.runs.limits import Limits, Taken
from ledger.runs.run_logs import RunLogs
from ledger.runs.states import cancelled, cancelling, completed, paused, pending, running, scheduled
from ledger.runs.work_pools import WorkPools
from projections.runs import flow_runs
from tests.jobs.conftest import eventually
from tests.runs.given_services import CLOCK, Ran, ago, line, task

# Late runs and pauses


def test_a_run_that_did_not_start_is_late_once(ran: Ran) -> None:
    late, early, begun = (ran.run(scheduled(ago(seconds))) for seconds in (3700, 3500, 3700))
    ran.runs.set_state(begun.id, pending())
    assert ran.round(LateRuns(ran.log, after=3600)) == 1
    assert ran.state(late) == ("SCHEDULED", "Late")
    assert ran.state(early) == ("SCHEDULED", "Scheduled")
    assert ran.state(begun) == ("PENDING", "Pending")
    assert ran.round(LateRuns(ran.log, after=3600)) == 0
    assert ran.runs.get(late.id).next_scheduled_start_time == late.next_scheduled_start_time


def test_a_late_mark_from_a_view_that_is_behind_changes_nothing(ran: Ran) -> None:
    run = ran.run(scheduled(ago(3700)))
    ran.projector.catch_up()
    ran.runs.set_state(run.id, pending())
    assert LateRuns(ran.log, after=3600).run_once() == 0
    assert ran.state(run) == ("PENDING", "Pending")


def test_a_pause_that_nobody_ended_fails(ran: Ran) -> None:
    over = ran.run(running(), paused(expires_at=ago(1)))
    waiting, resumed = (
        ran.run(running(), paused(timeout_seconds=60)),
        ran.run(running(), paused(expires_at=ago(1))),
    )
    ran.projector.catch_up()
    ran.runs.set_state(resumed.id, running(), force=True)
    assert PauseExpiry(ran.log).run_once() == 1
    assert [ran.state(one)[0] for one in (over, waiting, resumed)] == ["FAILED", "PAUSED", "RUNNING"]
    state = ran.runs.get(over.id).state
    assert state is not None
    assert state.message == "The flow was paused and never resumed."


# Slots


def limit(ran: Ran, name: str, slots: int = 1) -> str:
    return ran.records.create("concurrency_limit", {"name": name, "limit": slots}).id


def holders(ran: Ran, id: str) -> list[str]:
    return [*ran.log.load(OpenLimit, id).state.holdings]


def lease(ran: Ran, name: str, holder: FlowRun | None = None, seconds: float | None = 60) -> str:
    told = None if holder is None else {"type": "flow_run", "id": holder.id}
    given = None if seconds is not None else new_id()
    answer = Limits(ran.log).increment([name], 1, lease_seconds=seconds, holder=told, lease=given)
    assert isinstance(answer, Taken)
    assert answer.lease is not None
    return answer.lease


def test_the_slot_of_a_holder_that_was_killed_comes_back_once(ran: Ran) -> None:
    """Any number of services look at once; the history has one release."""
    ran.listen(1000)
    id = limit(ran, "killed")
    lost = lease(ran, "killed")
    ran.age(LeaseKind.SLOTS, lost, 61)
    services = [SlotLeases(ran.log) for _ in range(3)]
    begun, freed = threading.Barrier(3), list[int]()

    def work(service: SlotLeases) -> None:
        begun.wait()
        freed.append(service.run_once())

    threads = [threading.Thread(target=work, args=[service]) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(freed) == 1
    assert holders(ran, id) == []
    topics = [event.topic for event in ran.log.read(OpenLimit.name_of(id))]
    assert topics.count("concurrency_limit.slots_released") == 1


def test_a_service_that_was_killed_on_the_way_leaves_the_slot_to_the_next(ran: Ran) -> None:
    """Its row is out and its slots are not given back: as after a crash that lost the table."""
    ran.listen(1000)
    id = limit(ran, "half")
    lost = lease(ran, "half")
    ran.age(LeaseKind.SLOTS, lost, 61)
    assert ran.leases.take_expired(LeaseKind.SLOTS)
    service = SlotLeases(ran.log)
    assert service.run_once() == 0
    assert holders(ran, id) == [lost]
    ran.age(LeaseKind.SLOTS, lost, 61)
    assert service.run_once() == 1
    assert holders(ran, id) == []


def test_a_lease_does_not_run_out_while_no_server_could_renew_it(ran: Ran) -> None:
    id = limit(ran, "down")
    lost = lease(ran, "down")
    ran.age(LeaseKind.SLOTS, lost, 61)
    ran.listen(30)
    assert SlotLeases(ran.log).run_once() == 0
    assert holders(ran, id) == [lost]
    ran.listen(90)
    assert SlotLeases(ran.log).run_once() == 1


def test_a_renewed_lease_stays_and_the_slots_of_runs_that_are_over_come_back(ran: Ran) -> None:
    ids = [limit(ran, name) for name in ("alive", "over", "kept")]
    over, going = ran.run(running(), completed()), ran.run(running())
    alive = lease(ran, "alive")
    lease(ran, "over", over, seconds=None)
    kept = lease(ran, "kept", going, seconds=None)
    assert SlotLeases(ran.log).run_once() == 1
    assert [holders(ran, id) for id in ids] == [[alive], [], [kept]]


def test_old_log_lines_are_deleted_and_new_ones_stay(ran: Ran) -> None:
    run = ran.run(running())
    RunLogs(ran.log).write([line(run)])
    assert LogRetention(ran.log, days=0).run_once() == 0
    assert LogRetention(ran.log, days=1).run_once() == 0
    assert LogRetention(ran.log, days=1e-9).run_once() >= 1
    assert RunLogs(ran.log).count({"flow_run_id": {"any_": [run.id]}}) == 0


# Cancelled runs


def test_what_belongs_to_a_cancelled_run_is_cancelled(ran: Ran) -> None:
    parent = ran.run(pending(), running())
    own, done = (
        task(ran, parent, "own", pending(), running()),
        task(ran, parent, "done", pending(), completed()),
    )
    stand_ins = [task(ran, parent, key, pending(), running()) for key in ("local", "remote")]
    deployed = deployment(ran, name="remote")
    local = ran.run(pending(), running(), parent_task_run_id=stand_ins[0].id)
    remote = ran.run(pending(), running(), parent_task_run_id=stand_ins[1].id, deployment_id=deployed)
    assert ran.round(Cancellations(ran.log)) == 0  # the parent runs
    ran.runs.set_state(parent.id, cancelled(), force=True)
    assert ran.round(Cancellations(ran.log)) == 3
    assert [ran.tasks.get(one.id).state_type for one in (own, done)] == ["CANCELLED", "COMPLETED"]
    assert [ran.state(one)[0] for one in (local, remote)] == ["CANCELLED", "CANCELLING"]
    assert ran.round(Cancellations(ran.log)) == 0  # its worker ends it
    ran.runs.set_state(remote.id, cancelled())
    ran.round(Cancellations(ran.log))
    assert [ran.tasks.get(one.id).state_type for one in stand_ins] == ["CANCELLED", "CANCELLED"]


def test_a_cancelled_run_that_runs_again_keeps_its_task_runs(ran: Ran) -> None:
    parent = ran.run(pending(), running())
    own = task(ran, parent, "own", pending(), running())
    ran.runs.set_state(parent.id, cancelled(), force=True)
    ran.projector.catch_up()
    ran.runs.set_state(parent.id, running(), force=True)
    assert Cancellations(ran.log).run_once() == 0
    assert ran.tasks.get(own.id).state_type == "RUNNING"


def test_a_run_that_nobody_ends_is_cancelled_after_a_while(ran: Ran) -> None:
    run = ran.run(pending(), running(), cancelling())
    assert ran.round(Cancellations(ran.log)) == 0
    assert ran.state(run)[0] == "CANCELLING"
    assert ran.round(Cancellations(ran.log, timeout=0)) == 1
    assert ran.state(run)[0] == "CANCELLED"


# The scheduler


def deployment(ran: Ran, *schedules: dict[str, Any], name: str = "d", **fields: Any) -> str:
    flow = ran.records.upsert("flow", {"name": "scheduled"})[0].id
    given = [{"schedule": one, "active": True} for one in schedules]
    body = {"name": name, "flow_id": flow, "schedules": given, **fields}
    return Deployments(ran.log).upsert(body)[0].id


def planned(ran: Ran, id: str) -> list[FlowRun]:
    ran.projector.catch_up()
    chosen = {"flow_runs": {"deployment_id": {"any_": [id]}}}
    return flow_runs(ran.log, chosen, "NEXT_SCHEDULED_START_TIME_ASC")


HOURLY = {"interval": 3600.0, "anchor_date": "2026-01-01T00:00:00Z", "timezone": "UTC"}


def test_the_runs_of_a_schedule_are_made_ahead_once(ran: Ran) -> None:
    id = deployment(ran, HOURLY, name="ahead", parameters={"x": 1}, tags=["mine"])
    scheduler = DeploymentScheduler(ran.log)
    scheduler.run_once()
    runs = planned(ran, id)
    assert len(runs) == 3
    assert {run.state_type for run in runs} == {StateType.SCHEDULED}
    times = [run.next_scheduled_start_time for run in runs if run.next_scheduled_start_time]
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(hours=1)] * 2
    assert runs[0].auto_scheduled
    assert set(runs[0].tags) == {"auto-scheduled", "mine"}
    assert runs[0].parameters == {"x": 1}
    assert scheduler.run_once() == 0
    assert DeploymentScheduler(ran.log).run_once() == 0  # another process is elected


def test_many_schedulers_make_each_run_once(ran: Ran) -> None:
    id = deployment(ran, {**HOURLY, "interval": 600.0}, name="raced")
    begun, errors = threading.Barrier(3), list[BaseException]()

    def work() -> None:
        try:
            scheduler = DeploymentScheduler(ran.log)
            begun.wait()
            for _ in range(3):
                scheduler.run_once()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    times = [run.next_scheduled_start_time for run in planned(ran, id)]
    assert len(times) == len(set(times)) >= 6


def test_a_paused_deployment_has_no_runs_and_a_resumed_one_has_them_again(ran: Ran) -> None:
    id = deployment(ran, HOURLY, name="pausing")
    scheduler, deployments = DeploymentScheduler(ran.log), Deployments(ran.log)
    scheduler.run_once()
    deployments.pause(id)
    scheduler.run_once()
    assert planned(ran, id) == []
    deployments.resume(id)
    scheduler.run_once()
    assert len(planned(ran, id)) == 3


def test_a_schedule_that_cannot_be_computed_stops_no_other(
    ran: Ran, caplog: pytest.LogCaptureFixture
) -> None:
    id = deployment(ran, HOURLY, name="mixed")
    opened = ran.records.open("deployment", id)
    good = opened.state.fields["schedules"][0]
    bad = {**good, "id": new_id(), "schedule": {"cron": "0 0 30 2"}}
    ran.records.change("deployment", id, {"schedules": [bad, good]})
    DeploymentScheduler(ran.log).run_once()
    assert len(planned(ran, id)) == 3
    assert bad["id"] in caplog.text


def test_how_far_ahead_runs_are_made() -> None:
    minutely = {"schedule": {**HOURLY, "interval": 60.0}}
    assert len([*Ahead().of(minutely, CLOCK)]) == 60
    assert len([*Ahead(max_runs=10).of(minutely, CLOCK)]) == 10
    assert len([*Ahead().of({**minutely, "max_scheduled_runs": 5}, CLOCK)]) == 5
    yearly = {"schedule": {"cron": "0 0 1 1 *"}}
    assert len([*Ahead().of(yearly, CLOCK)]) == 0  # not within 100 days


# Workers


def test_a_silent_worker_is_offline_and_its_pool_is_not_ready(ran: Ran) -> None:
    pools, service = WorkPools(ran.log), WorkerStatus(ran.log)
    pools.create({"name": "pool", "type": "process"})
    worker = pools.heartbeat("pool", "w", 30)
    assert worker["status"] == "ONLINE"
    assert ran.round(service) == 0
    ran.age(LeaseKind.WORKER, worker.id, 91)
    (seen,) = pools.workers("pool")
    assert ran.round(service) == 1
    assert ran.records.get("worker", worker.id)["status"] == "OFFLINE"
    assert pools.workers("pool") == [seen | {"updated": pools.workers("pool")[0]["updated"]}]
    assert seen["last_heartbeat_time"] is not None
    assert pools.get("pool")["status"] == "NOT_READY"
    assert pools.heartbeat("pool", "w", 30)["status"] == "ONLINE"
    ran.leases.release(LeaseKind.WORKER, worker.id)  # the table was lost
    service = WorkerStatus(ran.log)
    assert ran.round(service) == 0
    ran.age(LeaseKind.WORKER, worker.id, 91)
    assert ran.round(service) == 1


# All of them


def test_one_of_many_processes_runs_the_services(ran: Ran) -> None:
    """Given two, then one is elected and runs them all; when it ends, the other one does."""
    first, second = RunServices(ran.log), RunServices(ran.log)
    with second:
        with first:
            eventually(lambda: any(all(one.begun for one in each.services) for each in (first, second)))
            assert not (first.services[0].begun and second.services[0].begun)
        eventually(lambda: all(one.begun for one in second.services))
    assert [one.error for one in (*first.services, *second.services) if one.error] == []


def test_the_mark_of_listening_lasts_while_a_server_is_there(ran: Ran) -> None:
    ran.leases.release(LeaseKind.LISTENING, KEY)
    with Listening(ran.log):
        eventually(lambda: ran.leases.lasting(LeaseKind.LISTENING, [KEY]))
    first = ran.leases.get(LeaseKind.LISTENING, KEY)
    ran.leases.mark(LeaseKind.LISTENING, KEY, 60)
    again = ran.leases.get(LeaseKind.LISTENING, KEY)
    assert first is not None
    assert again is not None
    assert again.taken_at == first.taken_at  # without a gap
    ran.age(LeaseKind.LISTENING, KEY, 100)
    ran.leases.mark(LeaseKind.LISTENING, KEY, 60)
    after = ran.leases.get(LeaseKind.LISTENING, KEY)
    assert after is not None
    assert after.taken_at > first.taken_at
