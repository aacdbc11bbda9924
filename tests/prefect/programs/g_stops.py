"""Scenario G: a worker cancels; flows pause and go on with an input; a suspended run is started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from commands import beside, done
from prefect import flow, get_client, pause_flow_run, suspend_flow_run, task
from prefect.input import RunInput
from prefect.runtime import flow_run
from waiting import ENDS, followed, report, task_done

HERE = Path(__file__)


class Focus(RunInput):
    depth: int
    lens: str = "40x"


@task
def expose() -> None:
    pass


@flow(name="g-endless", flow_run_name="endless")
async def endless() -> None:
    expose()
    await asyncio.Event().wait()


@flow(name="g-pausing", flow_run_name="pausing")
def pausing(started: Callable[[UUID], None]) -> str:
    expose()
    started(UUID(flow_run.id))
    focus = pause_flow_run(
        wait_for_input=Focus.with_initial_data("How deep?", lens="60x"), timeout=600, poll_interval=1
    )
    pause_flow_run(timeout=600, poll_interval=1, key="second")
    return f"{focus.depth} {focus.lens}"


@flow(name="g-never-resumed", flow_run_name="never resumed")
def never_resumed() -> None:
    pause_flow_run(timeout=1, poll_interval=1)


@flow(name="g-suspended", flow_run_name="suspended", persist_result=True)
def suspended() -> int:
    focus = suspend_flow_run(wait_for_input=Focus, timeout=600, key="focus")
    return int(focus.depth)


async def resumed(run: UUID, **given: Any) -> str:
    async with get_client() as client:
        return (await client.resume_flow_run(run, run_input=given or None)).status.value


async def ask(name: str) -> UUID:
    async with get_client() as client:
        deployment = await client.read_deployment_by_name(name)
        return (await client.create_flow_run_from_deployment(deployment.id)).id


async def of_the_worker() -> None:
    """One run that the worker kills, one that ends its process while it waits for an input."""
    cancelled, held = await ask("g-endless/g"), await ask("g-suspended/g")
    async with followed(cancelled) as one, followed(held) as other:
        await one.until("Running")
        await task_done(cancelled)  # it is told while the process lives
        await asyncio.to_thread(done, "flow-run", "cancel", str(cancelled))
        await other.until("Suspended")
        report(resumed=await resumed(held, depth=4, lens="10x"))
        runs = [await one.until(*ENDS), await other.until(*ENDS)]
    report(worker={run.name: [run.state_name, run.run_count] for run in runs})


async def of_this_process() -> None:
    """A run that pauses twice, resumed from outside of it; and one that nobody resumes."""
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[UUID] = loop.create_future()
    running = asyncio.create_task(
        asyncio.to_thread(pausing, lambda run: loop.call_soon_threadsafe(begun.set_result, run))
    )
    run = await begun
    async with followed(run) as states:
        await states.until("Paused")
        answers = [await resumed(run, lens="100x"), await resumed(run, depth=9)]
        await states.until("Running")
        await states.until("Paused")
        answers.append(await resumed(run))
    report(answers=answers, depth=await running)
    late = await asyncio.to_thread(never_resumed, return_state=True)
    report(late=[late.name, late.message])


def main() -> None:
    asyncio.run(of_this_process())
    done("work-pool", "create", "g-pool", "--type", "process")
    for name in ("endless", "suspended"):
        source = flow.from_source(source=str(HERE.parent), entrypoint=f"{HERE.name}:{name}")
        source.deploy(name="g", work_pool_name="g-pool", print_next_steps=False, ignore_warnings=True)
    worker = (
        "-m",
        "prefect",
        "worker",
        "start",
        "--pool",
        "g-pool",
        "--type",
        "process",
        "--name",
        "g-worker",
    )
    with beside(*worker):
        asyncio.run(of_the_worker())


if __name__ == "__main__":
    main()
