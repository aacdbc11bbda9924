"""Scenario D: a pool of processes, a worker, a deployment and the runs that are asked for by the command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from commands import done
from prefect import flow, task
from waiting import report

HERE = Path(__file__)


@task
def develop(plate: str) -> str:
    return plate.upper()


@flow(name="d-plates", flow_run_name="plate {plate}", log_prints=True)
def plates(plate: str = "none") -> str:
    print("developing", plate)
    if plate == "broken":
        raise ValueError("a broken plate")
    return develop(plate)


def main() -> None:
    done("work-pool", "create", "d-pool", "--type", "process")
    done("work-queue", "create", "d-urgent", "--pool", "d-pool", "--priority", "1", "--limit", "2")
    source = flow.from_source(source=str(HERE.parent), entrypoint=f"{HERE.name}:plates")
    if asyncio.iscoroutine(source):
        source = asyncio.run(source)
    for name, queue in (("d-plates", None), ("d-urgent-plates", "d-urgent")):
        source.deploy(
            name=name,
            work_pool_name="d-pool",
            work_queue_name=queue,
            tags=["d-tag"],
            parameters={"plate": "default"},
            job_variables={"env": {"D_PLATES": "yes"}},
            print_next_steps=False,
            ignore_warnings=True,
        )
    said = done("deployment", "run", "d-plates/d-plates", "--param", "plate=one", "--tag", "d-asked")
    done("deployment", "run", "d-plates/d-plates", "--param", "plate=broken")
    done("deployment", "run", "d-plates/d-urgent-plates")
    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "d-pool"]
    ended = subprocess.run(
        [*worker, "--type", "process", "--name", "d-worker", "--run-once"],
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    report(worker=ended.returncode, named="d-plates/d-plates" in said or "d-plates" in said)


if __name__ == "__main__":
    main()
