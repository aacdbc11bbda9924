"""`/api/events/in` of the whole server: what clients send becomes task runs and events."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ledger.runs.task_run import OpenTaskRun
from ledger.tokens import Role
from tests.gateway.http.conftest import Running
from tests.runs.raw_socket import RawSocket


def an_event(name: str, resource: str, /, **more: Any) -> dict[str, Any]:
    given = {"id": str(uuid4()), "occurred": "2026-11-23T04:00:00Z", "event": name, "payload": {}}
    return given | {"resource": {"prefect.resource.id": resource}, "related": [], "follows": None} | more


def test_reports_of_task_runs_and_other_events_are_recorded_before_the_pong(prefect: Running) -> None:
    task_run, first = str(uuid4()), str(uuid4())
    with_client = {"prefect.resource.id": f"prefect.task-run.{task_run}", "prefect.orchestration": "client"}
    run = {"name": "add", "task_key": "add-1", "dynamic_key": str(uuid4())}
    reports = [
        an_event(
            f"prefect.task-run.{type.title()}", "", id=id, follows=follows, resource=with_client,
            occurred=f"2026-11-23T04:00:0{nth}Z",
            payload={"validated_state": {"type": type, "name": type.title()}, "task_run": run},
        )
        for nth, (type, id, follows) in enumerate(
            [("PENDING", first, None), ("RUNNING", str(uuid4()), first)]
        )
    ]  # fmt: skip
    one = RawSocket(prefect.url, "/api/events/in")
    one.log_in(f"laptop:{prefect.tokens[Role.OPERATOR]}")
    one.send(*reports, *reports, an_event("my.event", "my.thing"))
    one.ping()
    assert prefect.log.load(OpenTaskRun, task_run).state.status == "running"
    (received,) = prefect.log.read("run_event/my.thing")
    assert (received.topic, received.meta.actor) == ("run_event.received", "the operator")
    assert one.close() == 1000
