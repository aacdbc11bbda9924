"""Crash detection by heartbeats: a silent run is marked, and never one that is alive."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from consumers.runs.crashes import Crashes
from consumers.runs.listening import KEY
from ledger.runs import FlowRun
from ledger.runs.heartbeats import Heartbeats
from ledger.runs.json_values import new_id
from ledger.runs.leases import LeaseKind
from ledger.runs.records import Records
from ledger.runs.run_logs import RunLogs
from ledger.runs.states import cancelled, completed, pending, running
from tests.runs.given_services import CLOCK, Ran, line, task


def beating(ran: Ran, every: float = 30.0) -> FlowRun:
    """A running flow run that has sent two heartbeats, and whose last one is as old as its lease is long."""
    run = ran.run(pending(), running())
    for nth in range(2):
        Heartbeats(ran.log).received({run.id: CLOCK + timedelta(seconds=nth * every)})
    return run


def seconds_of_lease(ran: Ran, run: FlowRun, *at: float) -> float:
    """How long its lease lasts after heartbeats at these seconds."""
    for one in at:
        Heartbeats(ran.log).received({run.id: CLOCK + timedelta(seconds=one)})
    found = ran.leases.get(LeaseKind.FLOW_RUN, run.id)
    assert found is not None
    return found.seconds


def test_a_lease_lasts_three_of_the_longest_intervals(ran: Ran) -> None:
    run = ran.run(pending(), running())
    assert seconds_of_lease(ran, run, 0) == 1800  # not known yet
    assert seconds_of_lease(ran, run, 180) == 540
    assert seconds_of_lease(ran, run, 185) == 540  # no client sends them so often
    assert seconds_of_lease(ran, run, 100) == 540  # it came late
    assert seconds_of_lease(ran, run, 425) == 720


def test_w3_01_another_attempt_says_nothing_of_the_interval(ran: Ran) -> None:
    """Its first heartbeat comes as soon as it begins, and its process may have another interval."""
    run = ran.run(pending(), running())
    assert seconds_of_lease(ran, run, 0, 30) == 90
    ran.runs.set_state(run.id, running())
    assert seconds_of_lease(ran, run, 65) == 1800
    assert seconds_of_lease(ran, run, 245) == 540


TEMPLATE: dict[str, Any] = {
    "job_configuration": {"command": "{{ command }}", "env": "{{ env }}"},
    "variables": {"properties": {"command": {}, "env": {"default": {}}}},
}
FREQUENCY = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"


@pytest.mark.parametrize(
    ("job_template", "variables", "seconds"),
    [
        (TEMPLATE, {"env": {FREQUENCY: "600"}}, 1800),
        (TEMPLATE, {"env": {FREQUENCY: "7200"}}, 21600),
        (TEMPLATE, {f"env.{FREQUENCY}": 200}, 600),
        (TEMPLATE, {"env": {"PREFECT_RUNNER_HEARTBEAT_FREQUENCY": 30}}, 540),
        (TEMPLATE, {"env": {FREQUENCY: "{{ prefect.variables.often }}"}}, 1800),
        (TEMPLATE, {"env": [FREQUENCY]}, 1800),
        ({**TEMPLATE, "job_configuration": {"command": "{{ command }}"}}, {"env": {FREQUENCY: "60"}}, 1800),
        ({}, {"env": {FREQUENCY: "60"}}, 1800),
    ],
)
def test_w3_01_the_interval_that_job_variables_set_counts_from_the_first_heartbeat_on(
    ran: Ran, job_template: Mapping[str, Any], variables: Mapping[str, Any], seconds: float
) -> None:
    """Where the pool passes them on; it counts as no shorter than the default of clients."""
    pool = Records(ran.log).create("work_pool", {"name": new_id(), "base_job_template": job_template})
    run = ran.run(pending(), running(), work_pool_id=pool.id, job_variables=variables)
    assert seconds_of_lease(ran, run, 0) == seconds
    ran.leases.release(LeaseKind.FLOW_RUN, run.id)
    Heartbeats(ran.log).expected([run.id])  # its table was lost
    assert seconds_of_lease(ran, run) == seconds


def test_w3_01_a_silent_run_is_crashed_after_three_intervals(ran: Ran) -> None:
    run = beating(ran)
    ran.listen(1000)
    ran.age(LeaseKind.FLOW_RUN, run.id, 89)
    assert ran.round(Crashes(ran.log)) == 0
    silent(ran, run)
    assert ran.round(Crashes(ran.log)) == 1
    assert ran.state(run) == ("CRASHED", "Crashed")
    assert ran.round(Crashes(ran.log)) == 0
    assert ran.runs.set_state(run.id, completed()).written  # it lived: its own word counts


def silent(ran: Ran, run: FlowRun) -> None:
    """Nothing of it was recorded for longer than its lease."""
    with ran.log.reader() as connection:
        connection.execute(
            "UPDATE ledger.run_leases SET seconds = 0, until = clock_timestamp()"
            " WHERE kind = 'flow_run' AND key = %s",
            [run.id],
        )


def test_w3_01_a_run_that_is_alive_is_never_crashed(ran: Ran) -> None:
    """It has logged; it has changed; it is over; no server listened; it sends no heartbeats at all."""
    logged, changed, over, quiet = (beating(ran) for _ in range(4))
    never = ran.run(pending(), running())
    ran.listen(1000)
    for run in (logged, changed, over):
        ran.age(LeaseKind.FLOW_RUN, run.id, 91)
    RunLogs(ran.log).write([line(logged)])
    ran.runs.change(changed.id, tags=["alive"])
    ran.runs.set_state(over.id, cancelled(), force=True)
    assert ran.round(Crashes(ran.log)) == 0
    states = [ran.state(run)[0] for run in (logged, changed, over, quiet, never)]
    assert states == ["RUNNING", "RUNNING", "CANCELLED", "RUNNING", "RUNNING"]
    assert ran.leases.lasting(LeaseKind.FLOW_RUN, [logged.id, over.id]) == {logged.id}


def test_w3_01_a_view_that_is_behind_is_no_sign_of_death(ran: Ran) -> None:
    run = beating(ran)
    ran.listen(1000)
    service = Crashes(ran.log)
    ran.round(service)
    task(ran, run, "working", pending(), running())  # not in the view yet
    silent(ran, run)
    assert service.run_once() == 0
    assert ran.state(run)[0] == "RUNNING"
    ran.runs.set_state(run.id, completed())


def test_w3_01_nobody_is_silent_while_no_server_listens(ran: Ran) -> None:
    run = beating(ran)
    silent(ran, run)
    ran.leases.release(LeaseKind.LISTENING, KEY)
    assert ran.round(Crashes(ran.log)) == 0
    with ran.log.reader() as connection:
        connection.execute("UPDATE ledger.run_leases SET seconds = 90 WHERE key = %s", [run.id])
    ran.listen(30)  # since half a minute, while its lease lasts 90 seconds
    assert ran.round(Crashes(ran.log)) == 0
    assert ran.state(run)[0] == "RUNNING"
