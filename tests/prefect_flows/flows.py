"""Flows of these tests; `python -m tests.prefect_flows.flows PROJECT FOLDER STRIP …` runs `mark`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from prefect import flow, task

from consumers.prefect_flows import PrefectLocks, acting_in_run, ledger_from_block
from ledger import Ledger
from ledger.pipelines import LSMStateService, ProcessingState


def service_of(log: Ledger) -> LSMStateService:
    return LSMStateService(log, locks=PrefectLocks("lsm"))


@task
def mark_strip(project: str, strip_id: int, folder: str | None) -> None:
    """Mark a strip; with a folder, prove there that nobody else has the project open."""
    with ledger_from_block() as log, acting_in_run():
        with service_of(log).open_strip(project, slice_id=1, strip_id=strip_id) as strip:
            if folder is not None:
                alone = Path(folder, "alone")
                alone.touch(exist_ok=False)
                strip.mark_completed()
                alone.unlink()
            else:
                strip.mark_completed()


@flow(log_prints=False)
def mark(project: str, strip_ids: list[int], folder: str | None = None) -> None:
    for strip_id in strip_ids:
        mark_strip(project, strip_id, folder)
    with ledger_from_block() as log, acting_in_run():
        service_of(log).store.update(project, lambda opened: opened.touch())


@flow
def start_project(project: str) -> None:
    """Nothing but the ledger's own default says who acts."""
    with ledger_from_block() as log, LSMStateService(log).open_project(project) as opened:
        opened.mark_started()


@flow
async def mark_async(project: str) -> ProcessingState:
    def work() -> ProcessingState:
        with ledger_from_block() as log, acting_in_run():
            service = service_of(log)
            with service.open_project(project) as opened:
                opened.mark_completed()
            return service.read_project(project).processing_state

    return await asyncio.to_thread(work)


if __name__ == "__main__":
    mark(sys.argv[1], [int(strip) for strip in sys.argv[3:]], sys.argv[2])
