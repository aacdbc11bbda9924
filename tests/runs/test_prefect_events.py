"""Prefect's events, derived from the log: of flow runs, of task runs, and what clients sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from ledger import BadInput, Ledger
from ledger.embedded import Embedded
from ledger.runs.client_events import ClientEvents
from ledger.runs.flow_run import FlowRunStateSet, OpenFlowRun
from projections import Follower
from projections.runs.event_filters import EventFilter
from projections.runs.prefect_events import TOPICS, PrefectEvents
from tests.runs.given_reads import START, World, number, state
from tests.shared_ledger import shared_ledger


def frame(**fields: Any) -> dict[str, Any]:
    """An event of a user's own about a custom resource, as a client sends it."""
    resource = {"prefect.resource.id": f"my.thing.{uuid4()}", "colour": "red"}
    own = {"id": str(uuid4()), "occurred": START.isoformat(), "event": "thing.made", "resource": resource}
    return {**own, "related": [], "payload": {"n": 1}, **fields}


def report(task_run: str, name: str, kind: str, minutes: float, follows: str | None = None) -> dict[str, Any]:
    """A client's report of a state of a task run."""
    flow_run = {"prefect.resource.id": f"prefect.flow-run.{number(7)}", "prefect.resource.role": "flow-run"}
    return {
        "id": str(uuid4()),
        "occurred": (START + timedelta(minutes=minutes)).isoformat(),
        "event": f"prefect.task-run.{name}",
        "resource": {
            "prefect.resource.id": f"prefect.task-run.{task_run}", "prefect.resource.name": "load-0",
            "prefect.orchestration": "client", "prefect.state-type": kind, "prefect.state-name": name,
        },
        "related": [flow_run],
        "payload": {
            "validated_state": {"type": kind, "name": name},
            "task_run": {"name": "load-0", "task_key": "load", "dynamic_key": task_run, "run_count": 1},
        },
        "follows": follows,
    }  # fmt: skip


def wanted(**told: Any) -> EventFilter:
    return EventFilter.of(told)


def of_resource(id: str) -> EventFilter:
    return replace(wanted(resource={"id": [id]}), oldest_first=True)


def test_a_flow_run_has_an_event_for_each_state(world: World) -> None:
    events, run = PrefectEvents(world.log), world.ids["b"]
    page = events.read(of_resource(f"prefect.flow-run.{run}"))
    pending, running = page.events
    assert page.next is None
    assert [pending["event"], running["event"]] == ["prefect.flow-run.Pending", "prefect.flow-run.Running"]
    states = [
        one.event for one in world.log.read(f"flow_run/{run}") if isinstance(one.event, FlowRunStateSet)
    ]
    assert [pending["id"], running["id"]] == [one.state["id"] for one in states]
    assert running["occurred"] == "2026-03-01T12:06:00Z"
    assert running["resource"] == {
        "prefect.resource.id": f"prefect.flow-run.{run}",
        "prefect.resource.name": "blue-bee",
        "prefect.run-count": "1",
        "prefect.state-message": "",
        "prefect.state-name": "Running",
        "prefect.state-timestamp": "2026-03-01T12:06:00Z",
        "prefect.state-type": "RUNNING",
    }
    assert pending["resource"]["prefect.run-count"] == "0"  # as it was then
    assert running["payload"]["validated_state"] == {"type": "RUNNING", "name": "Running"}
    assert running["payload"]["intended"] == {"from": None, "to": "RUNNING"}
    roles = {one["prefect.resource.role"]: one["prefect.resource.id"] for one in running["related"]}
    assert roles["flow"] == f"prefect.flow.{world.ids['etl']}"
    assert roles["deployment"] == f"prefect.deployment.{world.ids['prod']}"
    assert roles["work-queue"] == f"prefect.work-queue.{world.ids['slow']}"
    tags = [one["prefect.resource.id"] for one in running["related"] if one["prefect.resource.role"] == "tag"]
    assert tags == ["prefect.tag.nightly", "prefect.tag.x", "prefect.tag.y"]


def test_an_event_names_the_state_before(log: Ledger) -> None:
    with log.open(OpenFlowRun, id := str(uuid4())) as opened:
        opened.create("red", number(1))
        first, second = state("PENDING"), state("PAUSED", 1, pause_reschedule=True)
        opened.record(FlowRunStateSet(state=first, status="pending"))
        before = {"id": first["id"], "type": "PENDING", "name": "Pending"}
        opened.record(FlowRunStateSet(state=second, status="paused", initial=before))
    _, paused = PrefectEvents(log).read(of_resource(f"prefect.flow-run.{id}")).events
    assert (paused["follows"], paused["payload"]["initial_state"]) == (
        first["id"], {"type": "PENDING", "name": "Pending"},
    )  # fmt: skip
    assert paused["payload"]["validated_state"]["pause_reschedule"] == "true"


def test_w3_08_what_was_not_committed_has_no_event_and_what_was_has_one(log: Ledger) -> None:
    """An event is the fact itself: it is neither lost nor does it announce what was rolled back."""
    events, follower = PrefectEvents(log), Follower(log, topics=TOPICS)
    id = str(uuid4())
    with suppress(RuntimeError), log.open(OpenFlowRun, id) as opened:
        opened.create("red", number(1))
        opened.record(FlowRunStateSet(state=state("RUNNING"), status="running"))
        raise RuntimeError("the transaction is given up")
    assert events.of(follower.poll()) == []
    with log.open(OpenFlowRun, id) as opened:
        opened.create("red", number(1))
        opened.record(FlowRunStateSet(state=(cancelling := state("CANCELLING")), status="cancelling"))
    batch = follower.poll()
    (event,) = events.of(batch, wanted(event={"name": ["prefect.flow-run.Cancelling"]}))
    assert (event["id"], event["event"]) == (cancelling["id"], "prefect.flow-run.Cancelling")
    assert events.of(batch, wanted(event={"name": ["prefect.flow-run.Suspended"]})) == []
    assert events.read(wanted()).events == [event]  # a reader of history gets the same


def test_what_clients_sent_comes_back(log: Ledger) -> None:
    sent, run = frame(payload={"deep": [1, {"x": None}]}), str(uuid4())
    first = report(run, "Running", "RUNNING", 1)
    done = report(run, "Completed", "COMPLETED", 2, first["id"])
    assert ClientEvents(log).record([sent, first, done]) == [None, None, None]
    got = {event["id"]: event for event in PrefectEvents(log).read(wanted()).events}
    received = got[sent["id"]].pop("received")
    assert received
    assert got[sent["id"]] == {**sent, "occurred": "2026-03-01T12:00:00Z", "follows": None}
    event = got[done["id"]]
    assert (event["event"], event["follows"]) == ("prefect.task-run.Completed", first["id"])
    assert event["resource"]["prefect.orchestration"] == "client"
    assert event["related"] == first["related"]
    assert event["payload"]["task_run"]["task_key"] == "load"
    assert event["payload"]["intended"] == {"from": "RUNNING", "to": "COMPLETED"}


@pytest.mark.parametrize(
    ("told", "included"),
    [
        ({}, True),
        ({"occurred": {"since": START.isoformat(), "until": START.isoformat()}}, True),
        ({"occurred": {"since": (START + timedelta(seconds=1)).isoformat()}}, False),
        ({"event": {"prefix": ["thing."], "exclude_name": ["thing.lost"]}}, True),
        ({"event": {"exclude_prefix": ["thing."]}}, False),
        ({"resource": {"id_prefix": ["my.thing."]}}, True),
        ({"resource": {"labels": {"colour": ["bl*", "r?d"]}}}, True),
        ({"resource": {"labels": {"colour": "!red"}}}, False),
        ({"resource": {"labels": {"size": "*"}}}, False),
        ({"related": {"role": ["owner"]}}, True),
        ({"related": [{"id": ["u.1"]}, {"role": ["other"]}]}, False),
        ({"related": {"resources_in_roles": [["u.1", "owner"]]}}, True),
        ({"any_resource": {"id": ["u.1"]}}, True),
        ({"any_resource": {"id_prefix": ["z"]}}, False),
        ({"text": {"query": 'RED +"made"'}}, True),
        ({"text": {"query": "red -made"}}, False),
        ({"id": {"id": [str(uuid4())]}}, False),
    ],
)
def test_a_filter_of_events(few: tuple[Ledger, str], told: dict[str, Any], included: bool) -> None:
    filter, (log, thing) = wanted(**told), few
    found = PrefectEvents(log).read(filter).events
    assert [event["event"] for event in found if event["event"] == thing] == [thing] * included
    assert all(filter.includes(event) for event in found)


@pytest.fixture(scope="module")
def few(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    """A ledger with few events, since every filter reads them all; and the name of one that it may find."""
    made = frame(
        event="thing.made", related=[{"prefect.resource.id": "u.1", "prefect.resource.role": "owner"}]
    )
    other = frame(event="other.lost", resource={"prefect.resource.id": "z.1"})
    with shared_ledger(postgres, template, "events") as log:
        ClientEvents(log).record([made, other, report(str(number(101)), "Running", "RUNNING", 1)])
        yield log, "thing.made"


def test_history_has_pages(log: Ledger) -> None:
    names = [f"thing.{nth}" for nth in range(5)]
    ClientEvents(log).record([frame(event=name) for name in names])
    events, found, start = PrefectEvents(log), list[str](), None
    while True:
        page = events.read(wanted(), limit=2, start=start)
        found += [event["event"] for event in page.events]
        if page.next is None:
            break
        start = page.next
    assert found == names[::-1]
    oldest = replace(wanted(), oldest_first=True)
    page = events.read(oldest, limit=3)
    rest = events.read(oldest, limit=3, start=page.next)
    assert [event["event"] for event in page.events + rest.events] == names
    assert (rest.next, events.count(wanted())) == (None, 5)


@pytest.mark.parametrize(
    "told",
    [
        [], {"nam": {}}, {"event": {"name": "x"}}, {"order": "up"}, {"occurred": {"since": "soon"}},
        {"related": {"resources_in_roles": [["a"]]}}, {"resource": {"labels": []}}, {"id": {"id": ["7"]}},
    ],
)  # fmt: skip
def test_a_wrong_filter_of_events_is_refused(told: Any) -> None:
    with pytest.raises(BadInput, match="filter"):
        EventFilter.of(told or ["not an object"])
