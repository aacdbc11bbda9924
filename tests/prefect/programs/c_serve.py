"""Scenario C: a flow served with a schedule; what `serve` starts is run, and its end pauses it."""

from __future__ import annotations

import asyncio
import datetime
import sys

from commands import beside
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.schedules import Cron, Interval, RRule
from waiting import ENDS, first_run, followed, report

OFTEN = datetime.timedelta(seconds=20)
"""Often enough that the program need not wait long, and seldom enough that one run comes and not many."""


@task
def count(number: int) -> int:
    return number + 1


@flow(name="c-served", flow_run_name="served {number}")
def served(number: int = 1) -> int:
    return count(number)


def serve() -> None:
    soon = datetime.datetime.now(datetime.UTC) + OFTEN / 2
    served.serve(
        name="c-often",
        description="again and again",
        tags=["c-tag"],
        version="1.2",
        schedules=[
            Interval(OFTEN, anchor_date=soon, parameters={"number": 5}, slug="often"),
            Cron("0 6 * * 1", timezone="Europe/Berlin", active=False),
            RRule("FREQ=WEEKLY;BYDAY=TU", active=False),
        ],
        global_limit=3,
    )


async def watch() -> None:
    """Wait for the run that the schedule made, then for one that is asked for."""
    async with get_client() as client:
        scheduled = await first_run("c-served/c-often", "Completed")
        assert scheduled.deployment_id is not None
        asked = await client.create_flow_run_from_deployment(
            scheduled.deployment_id, parameters={"number": 7}, name="asked", idempotency_key="once"
        )
        again = await client.create_flow_run_from_deployment(scheduled.deployment_id, idempotency_key="once")
        async with followed(asked.id) as run:
            ended = await run.until(*ENDS)
    report(
        scheduled=[scheduled.name, scheduled.state_name, scheduled.auto_scheduled, scheduled.parameters],
        asked=[ended.name, ended.state_name, ended.auto_scheduled, ended.parameters],
        same=again.id == asked.id,
    )


def main() -> None:
    with beside(__file__, "serve", until="being served"):
        asyncio.run(watch())


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
