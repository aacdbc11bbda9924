"""Scenario H: what the command `prefect` lists, inspects, changes and deletes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from commands import done, prefect
from prefect import flow, get_client, task
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import FlowRun
from waiting import report

HERE = Path(__file__)


@task
def look() -> None:
    create_markdown_artifact("seen", key="h-page")


@flow(name="h-looked", flow_run_name="h-seen", log_prints=True)
def looked() -> None:
    print("line one")
    look()
    print("line two")


@flow(name="h-kept", log_prints=True)
def kept(number: int = 1) -> None:
    pass


def said(*arguments: str) -> list[object]:
    """The exit code of a command and its lines that speak of this scenario."""
    code, text = prefect(*arguments)
    return [code, [line.strip() for line in text.splitlines() if "h-" in line or "h_" in line]]


def prepare() -> FlowRun:
    run = looked(return_state=True).state_details.flow_run_id
    done("work-pool", "create", "h-pool", "--type", "process")
    source = flow.from_source(source=str(HERE.parent), entrypoint=f"{HERE.name}:kept")
    source.deploy(name="h-kept", work_pool_name="h-pool", print_next_steps=False, ignore_warnings=True)
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run)


def of_deployments() -> dict[str, object]:
    name = "h-kept/h-kept"
    return {
        "schedule": said("deployment", "schedule", "create", name, "--cron", "0 5 * * *"),
        "schedules": said("deployment", "schedule", "ls", name),
        "run": said("deployment", "run", name, "--param", "number=3", "--start-in", "2 hours"),
        "deployments": said("deployment", "ls", "--flow-name", "h-kept"),
        "deployment": said("deployment", "inspect", name),
        "clear": said("deployment", "schedule", "clear", name, "-y"),
        "no schedules": said("deployment", "schedule", "ls", name),
    }


def of_pools() -> dict[str, object]:
    return {
        "pools": said("work-pool", "ls"),
        "pause": said("work-pool", "pause", "h-pool"),
        "pool": said("work-pool", "inspect", "h-pool"),
        "limit": said("work-pool", "set-concurrency-limit", "h-pool", "4"),
        "resume": said("work-pool", "resume", "h-pool"),
        "queue": said("work-queue", "create", "h-queue", "--pool", "h-pool", "--priority", "3"),
        "queue paused": said("work-queue", "pause", "h-queue", "--pool", "h-pool"),
        "queues": said("work-queue", "ls", "--pool", "h-pool"),
        "preview": [prefect("work-pool", "preview", "h-pool", "--hours", "3")[0]],
        "twice": said("work-pool", "create", "h-pool", "--type", "process"),
    }


def of_runs(run: FlowRun) -> dict[str, object]:
    with get_client(sync_client=True) as client:
        extra = client.create_flow_run_from_deployment(
            client.read_deployment_by_name("h-kept/h-kept").id, name="h-extra", tags=["h-tag"]
        )
    return {
        "runs": said("flow-run", "ls", "--flow-name", "h-looked"),
        "completed": said("flow-run", "ls", "--state-type", "COMPLETED", "--flow-name", "h-looked"),
        "logs": prefect("flow-run", "logs", str(run.id))[1].splitlines()[:1] != [],
        "run": prefect("flow-run", "inspect", str(run.id))[0],
        "cancelled": said("flow-run", "cancel", str(extra.id)),
        "again": [prefect("flow-run", "cancel", str(extra.id))[0]],
        "gone": [
            prefect("flow-run", "delete", str(extra.id))[0],
            prefect("flow-run", "inspect", str(extra.id))[0],
        ],
        "tasks": prefect("task-run", "ls")[0],
        "flows": said("flow", "ls", "--limit", "200"),
    }


def of_records() -> dict[str, object]:
    return {
        "set": said("variable", "set", "h_speed", "fast"),
        "overwrite": said("variable", "set", "h_speed", '{"h_x": 1}', "--overwrite"),
        "variable": said("variable", "get", "h_speed"),
        "variables": said("variable", "ls"),
        "inspect": said("variable", "inspect", "h_speed"),
        "unset": said("variable", "unset", "h_speed"),
        "missing": [prefect("variable", "get", "h_speed")[0]],
        "artifacts": said("artifact", "ls"),
        "artifact": said("artifact", "inspect", "h-page"),
        "block types": prefect("block", "type", "ls")[0],
        "secret type": prefect("block", "type", "inspect", "secret")[0],
        "blocks": said("block", "ls"),
        "limits": said("concurrency-limit", "ls"),
        "global limits": said("gcl", "ls"),
        "automations": prefect("automation", "ls")[0],
    }


async def health() -> object:
    async with get_client() as client:
        return [await client.api_healthcheck(), (await client.hello()).status_code]


def main() -> None:
    run = prepare()
    report(
        deployments=of_deployments(),
        pools=of_pools(),
        runs=of_runs(run),
        records=of_records(),
        health=asyncio.run(health()),
    )
    done("work-queue", "delete", "h-queue", "--pool", "h-pool")


if __name__ == "__main__":
    main()
