"""Waiting by the server's events until a run is in a state; what a program reports to the test."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.events import Event
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter, EventRelatedFilter, EventResourceFilter

PATIENCE = 600
"""Seconds after which a wait is a failure."""
ENDS = ("Completed", "Cancelled", "Failed", "Crashed")


class Followed:
    """The states of one flow run in their order, from the present one on."""

    def __init__(self, run: FlowRun, events: AsyncIterator[Event]) -> None:
        self._run, self._events = run, events
        self._present = run.state_name
        # The server also sends what was before.
        self._since = run.state.timestamp if run.state is not None else run.created

    async def until(self, *names: str) -> FlowRun:
        """The run, in its present state or when the next state with one of these names was announced."""
        present, self._present = self._present, None
        if present in names:
            return self._run
        async with asyncio.timeout(PATIENCE):
            async for event in self._events:
                is_news = self._since is None or event.occurred > self._since
                if is_news and event.resource.get("prefect.state-name") in names:
                    self._since = event.occurred
                    async with get_client() as client:
                        return await client.read_flow_run(self._run.id)
        raise AssertionError("the events ended")


@asynccontextmanager
async def followed(run: UUID) -> AsyncIterator[Followed]:
    """Follow a flow run, whose present state is read when the events are already on their way."""
    resource = EventResourceFilter(id=[f"prefect.flow-run.{run}"])
    changes = EventFilter(event=EventNameFilter(prefix=["prefect.flow-run."]), resource=resource)
    async with get_events_subscriber(changes) as events, get_client() as client:
        yield Followed(await client.read_flow_run(run), events)


async def first_run(deployment: str, *names: str) -> FlowRun:
    """The first run of a deployment that gets into one of these states, which may not exist yet."""
    changes = EventFilter(event=EventNameFilter(prefix=["prefect.flow-run."]))
    async with asyncio.timeout(PATIENCE), get_client() as client, get_events_subscriber(changes) as events:
        known = await client.read_deployment_by_name(deployment)
        async for event in events:
            related = {resource.id for resource in event.related}
            if event.resource.get("prefect.state-name") in names and (
                f"prefect.deployment.{known.id}" in related
            ):
                return await client.read_flow_run(UUID(event.resource.id.removeprefix("prefect.flow-run.")))
    raise AssertionError("the events ended")


async def task_done(run: UUID) -> None:
    """Wait until a task of this flow run is completed, which the server tells also afterwards."""
    done = EventFilter(
        event=EventNameFilter(name=["prefect.task-run.Completed"]),
        related=EventRelatedFilter(id=[f"prefect.flow-run.{run}"]),
    )
    async with asyncio.timeout(PATIENCE), get_events_subscriber(done) as events:
        await anext(aiter(events))


def report(**facts: Any) -> None:
    """Facts that only the client knows, for the comparison of servers."""
    place = Path(os.environ["SCENARIO_REPORT"])
    known = json.loads(place.read_text()) if place.exists() else {}
    place.write_text(json.dumps(known | facts, default=str))
