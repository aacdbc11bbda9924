"""Stages guarded inside jobs: what a killed worker had claimed goes to the next attempt; nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import psycopg
import pytest

from consumers.jobs.reaper import Reaper
from consumers.pipelines import readiness
from ledger import Ledger
from ledger.jobs import Jobs
from ledger.pipelines import OCTBatchId, OCTMosaicId, OCTStateService, ProcessingState, enter_flow_stage
from tests.jobs.claims import LONG_AGO
from tests.jobs.conftest import eventually, topics, working

OPERATIONS = "tests.jobs.stage_operations:registry"
MOSAIC, BATCH = OCTMosaicId("p", 1, 1), OCTBatchId("p", 1, 1, 1)
IN_MOSAIC = {"project_name": "p", "slice_id": 1, "mosaic_id": 1}
Connection = psycopg.Connection[Any]


@pytest.fixture
def service(log: Ledger) -> OCTStateService:
    service = OCTStateService(log)
    with service.open_project("p") as project:
        project.plan(batches_per_mosaic=1, mosaics_per_slice=1)
    return service


def killed_at_work(log: Ledger, dsn: str, connection: Connection, job: str) -> None:
    """Let a worker of its own process run the job, kill it in the middle, and let its lease be over."""
    command = [
        sys.executable,
        "-m",
        "gateway.cli.main",
        "--dsn",
        dsn,
        "worker",
        "run",
        "--operations",
        OPERATIONS,
    ]
    with (
        TemporaryFile("w+") as said,
        subprocess.Popen([*command, "--no-services"], stderr=said) as worker,
    ):

        def is_at_work() -> bool:
            said.seek(0)
            assert (worker.poll() or 0) == 0, said.read()
            return "job.reported" in topics(Jobs(log), job)

        try:
            eventually(is_at_work)
        finally:
            worker.send_signal(signal.SIGKILL)
    connection.execute(LONG_AGO)
    assert Reaper(log).run_once().requeued == 1


def run_again(log: Ledger, job: str) -> Any:
    """What the job comes to under another worker."""
    with working(log, OPERATIONS):
        assert Jobs(log).wait(job, seconds=60) == {job: "succeeded"}
    return Jobs(log).result(job)


def test_the_next_attempt_takes_over_what_a_killed_worker_had_begun(
    service: OCTStateService, log: Ledger, dsn: str, connection: Connection
) -> None:
    job = Jobs(log).submit("process_batch", {"batch": {**IN_MOSAIC, "batch_id": 1}})
    killed_at_work(log, dsn, connection, job)
    assert service.read_batch(BATCH).processing_state is ProcessingState.RUNNING  # type: ignore[union-attr]
    assert run_again(log, job) == {"skipped": False, "decision": "restarted"}
    readiness(log).catch_up()
    assert [event.topic for event in log.read("psoct.mosaic.ready/p/1/1")] == ["psoct.mosaic.ready"]


def test_the_next_attempt_takes_over_a_milestone(
    service: OCTStateService, log: Ledger, dsn: str, connection: Connection
) -> None:
    job = Jobs(log).submit("stitch", {"mosaic": IN_MOSAIC})
    killed_at_work(log, dsn, connection, job)
    assert run_again(log, job) == {"skipped": False, "attempt": 2}
    readiness(log).catch_up()
    assert [event.topic for event in log.read("psoct.slice.ready/p/1")] == ["psoct.slice.ready"]


def test_threads_of_an_operation_claim_for_its_job_too(
    service: OCTStateService, log: Ledger, dsn: str, connection: Connection
) -> None:
    job = Jobs(log).submit("process_in_threads", {"mosaic": IN_MOSAIC})
    killed_at_work(log, dsn, connection, job)
    assert run_again(log, job)["decisions"][1] == "restarted"


def test_what_an_attempt_still_writes_that_was_replaced_is_refused(
    service: OCTStateService, log: Ledger, connection: Connection, tmp_path: Path
) -> None:
    batch, file = {**IN_MOSAIC, "batch_id": 1}, tmp_path / "go"
    job = Jobs(log).submit("process_slowly", {"batch": batch, "file": str(file)})
    with working(log, OPERATIONS, concurrency=1, grace_seconds=600, drain_seconds=60):
        eventually(lambda: "job.reported" in topics(Jobs(log), job), 60)
        connection.execute(LONG_AGO)
        assert Reaper(log).run_once().requeued == 1
        assert run_again(log, job) == {"decision": "restarted"}
        before = [event.topic for event in log.read("psoct.batch/p/1/1/1")]
        file.touch()
        eventually(lambda: "job.late_result" in topics(Jobs(log), job), 60)
    assert before == [f"psoct.batch.{word}" for word in ("created", "started", "started", "completed")]
    assert [event.topic for event in log.read("psoct.batch/p/1/1/1")] == before
    (late,) = [each.event for each in Jobs(log).events(job) if each.topic == "job.late_result"]
    assert late.error_code == "ClaimLost"  # type: ignore[union-attr]
    assert Jobs(log).result(job) == {"decision": "restarted"}


def test_what_somebody_else_has_begun_is_left_to_him(
    service: OCTStateService, log: Ledger, dsn: str, connection: Connection
) -> None:
    """The negative control: what no job claimed is skipped by every attempt."""
    enter_flow_stage(service, BATCH)
    job = Jobs(log).submit("process_batch", {"batch": {**IN_MOSAIC, "batch_id": 1}})
    assert run_again(log, job) == {"skipped": True}
    assert service.read_batch(BATCH).attempts == 1  # type: ignore[union-attr]
