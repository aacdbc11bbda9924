"""Operations that do stages of a project; a first attempt says that it is there, and waits to be killed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from consumers.jobs import OperationContext, OperationResult, Registry
from ledger.pipelines import OCTBatchId, OCTMosaicId, OCTStateService, flow_stage, milestone

registry = Registry()


@registry.operation("process_batch")
def process_batch(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Process a batch of a mosaic."""
    with flow_stage(OCTStateService(session.ledger), OCTBatchId(**payload["batch"])) as entry:
        if entry.skipped:
            return OperationResult({"skipped": True})
        _wait_to_be_killed(session, emit)
    return OperationResult({"skipped": False, "decision": str(entry.decision)})


@registry.operation("process_slowly")
def process_slowly(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Process a batch; the first attempt takes as long as a file is not there, and listens to nobody."""
    with flow_stage(OCTStateService(session.ledger), OCTBatchId(**payload["batch"])) as entry:
        if session.attempt == 1:
            emit("there")
            while not Path(payload["file"]).exists():
                time.sleep(0.01)
    return OperationResult({"decision": str(entry.decision)})


@registry.operation("process_in_threads")
def process_in_threads(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Process batches of a mosaic, each in a thread of its own."""
    service = OCTStateService(session.ledger)

    def process(batch_id: int) -> str:
        with flow_stage(service, OCTBatchId(**payload["mosaic"], batch_id=batch_id)) as entry:
            if not entry.skipped and batch_id == 2:
                _wait_to_be_killed(session, emit)
        return str(entry.decision)

    with ThreadPoolExecutor(2) as pool:
        return OperationResult({"decisions": [*pool.map(process, (1, 2))]})


@registry.operation("stitch")
def stitch(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Do the work of a milestone of a mosaic."""

    @milestone(OCTStateService(session.ledger), "enface_stitched")
    def stitched(ident: OCTMosaicId) -> int:
        _wait_to_be_killed(session, emit)
        return session.attempt

    by = stitched(OCTMosaicId(**payload["mosaic"]))
    return OperationResult({"skipped": by is None, "attempt": by})


def _wait_to_be_killed(session: OperationContext, emit: Any) -> None:
    if session.attempt == 1:
        emit("there")
        time.sleep(600)
