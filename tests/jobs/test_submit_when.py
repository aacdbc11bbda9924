"""A job for each fact of a kind: one, however often and by however many reactors the fact is seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from consumers.jobs import submit_when
from consumers.jobs.submitter import ready_payload
from consumers.pipelines import readiness
from ledger import BadInput, BadName, Ledger, Recorded
from ledger.jobs import Job, Jobs, OpenJob
from ledger.log.ledger import connect
from ledger.log.readers import ParkedStreams, Positions
from ledger.pipelines import LSMChannelReady, LSMStateService, OCTMosaicReady, OCTSliceReady, OCTStateService
from tests.jobs.claims import claim
from tests.lamp import LampBroke, LampMade

NAME = "psoct.mosaic.ready.submits.stitch"


def done(log: Ledger, mosaic_id: int) -> None:
    """The only batch of a mosaic is processed, perhaps anew; readiness sees it."""
    with OCTStateService(log).open_project("Mouse_7") as project:
        project.plan(batches_per_mosaic=1, mosaics_per_slice=1)
        mosaic = project.get_or_create_mosaic(1, mosaic_id)
        mosaic.get_or_create_batch(1).mark_started()
    with OCTStateService(log).open_batch("mouse-7", slice_id=1, mosaic_id=mosaic_id, batch_id=1) as batch:
        batch.mark_completed()
    readiness(log).catch_up()


def submitted(log: Ledger) -> list[Job]:
    """All jobs, in the order of the log."""
    created = [each.stream for each in log.log(0, log.bound()) if each.topic == "job.created"]
    return [Jobs(log).get(stream.removeprefix("job/")) for stream in created]


def test_a_mosaic_that_is_ready_has_a_job_and_each_later_round_another(log: Ledger) -> None:
    done(log, 1)
    reactor = submit_when(log, OCTMosaicReady, "stitch", queue="big", max_attempts=3)
    assert (reactor.catch_up(), reactor.name) == (1, NAME)
    done(log, 2)
    done(log, 1)
    assert reactor.catch_up() == 2
    jobs = submitted(log)
    ids = {"project_name": "mouse-7", "slice_id": 1}
    assert [job.payload for job in jobs] == [
        {**ids, "mosaic_id": 1, "round": 1},
        {**ids, "mosaic_id": 2, "round": 1},
        {**ids, "mosaic_id": 1, "round": 2},
    ]
    assert {(job.operation, job.queue, job.max_attempts, job.status) for job in jobs} == {
        ("stitch", "big", 3, "queued")
    }
    meta = log.read(OpenJob.name_of(jobs[0].id))[0].meta
    (ready, _) = log.read("psoct.mosaic.ready/mouse-7/1/1")
    assert (meta.actor, meta.causation) == (f"reactor {NAME}", ready.position)
    assert claim_one_of(log, jobs[0].id)


def claim_one_of(log: Ledger, job: str) -> bool:
    """Whether a worker can claim it."""
    return f"job/{job}" in {taken.work.name for taken in claim(log)}


def test_a_reactor_that_begins_anew_or_runs_doubled_submits_nothing_twice(log: Ledger, dsn: str) -> None:
    for mosaic_id in (1, 2, 3):
        done(log, mosaic_id)
    assert submit_when(log, OCTMosaicReady, "stitch").catch_up() == 3
    once = [job.id for job in submitted(log)]
    assert Positions(log).forget(NAME)
    for mosaic_id in (4, 5):
        done(log, mosaic_id)
    ledgers = [connect(dsn) for _ in range(3)]
    try:
        with ThreadPoolExecutor(3) as pool:
            assert [
                *pool.map(lambda each: submit_when(each, OCTMosaicReady, "stitch").catch_up(), ledgers)
            ] == [5, 5, 5]
    finally:
        for each in ledgers:
            each.close()
    jobs = submitted(log)
    assert [job.id for job in jobs[:3]] == once
    assert sorted(job.payload["mosaic_id"] for job in jobs) == [1, 2, 3, 4, 5]  # type: ignore[type-var]


def test_channels_and_slices_too(log: Ledger) -> None:
    lsm = LSMStateService(log)
    with lsm.open_project("p") as project:
        project.plan(strips_per_slice=1)
        project.get_or_create_strip_by_parts(3, 1, 2).set_compressed()
    with OCTStateService(log).open_project("p") as other:
        other.plan(mosaics_per_slice=1)
        other.get_or_create_mosaic(4, 7).set_enface_stitched()
    readiness(log).catch_up()
    submit_when(log, LSMChannelReady, "stitch_channel").catch_up()
    submit_when(log, OCTSliceReady, "register").catch_up()
    assert [(job.operation, job.payload) for job in submitted(log)] == [
        ("stitch_channel", {"project_name": "p", "slice_id": 3, "channel_id": 2, "round": 1}),
        ("register", {"project_name": "p", "slice_id": 4, "round": 1}),
    ]


def test_any_fact_can_ask_for_a_job_and_none_must(log: Ledger) -> None:
    def payload(event: Recorded) -> dict[str, Any] | None:
        return None if event.stream == "lamp/spare" else {"lamp": event.stream}

    for lamp in ("lamp/a", "lamp/spare", "lamp/b"):
        log.append(lamp, LampMade(), LampBroke())
    reactor = submit_when(log, LampBroke, "replace", payload, name="replacing", delay=60, tags=["lamps"])
    reactor.catch_up()
    assert [job.payload for job in submitted(log)] == [{"lamp": "lamp/a"}, {"lamp": "lamp/b"}]
    assert {(job.delay_seconds, job.tags) for job in submitted(log)} == {(60.0, ("lamps",))}
    assert reactor.name == "replacing"


def test_it_can_begin_later_than_at_the_start_of_the_log(log: Ledger) -> None:
    done(log, 1)
    reactor = submit_when(log, OCTMosaicReady, "stitch", after=log.bound())
    reactor.catch_up()
    done(log, 2)
    reactor.catch_up()
    assert [job.payload["mosaic_id"] for job in submitted(log)] == [2]


def test_another_payload_for_the_same_fact_is_refused_loudly(log: Ledger) -> None:
    log.append("lamp/a", LampMade(), LampBroke())
    for n in (1, 2):
        reactor = submit_when(log, LampBroke, "replace", lambda _, n=n: {"n": n})  # type: ignore[misc]
        reactor.catch_up()
        if n == 1:
            Positions(log).forget(reactor.name)
    (parked,) = ParkedStreams(log).all()
    assert (parked.stream, "CommandReused" in parked.error) == ("lamp/a", True)
    assert [job.payload for job in submitted(log)] == [{"n": 1}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fact": LampBroke}, "lamp.broke is not a fact of readiness"),
        ({"fact": str}, "must be a class of facts with a topic"),
        ({"unique": True}, "cannot be unique"),
        ({"id": "5bd3f2a0-6d8c-4c0e-9c1d-0f6f7a2f3b11"}, "id cannot be given: each job gets"),
        ({"command": "x", "parent": "y"}, "command, parent cannot be given: each job gets"),
        ({"delay": -1}, "delay"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_work_is_refused_at_once(log: Ledger, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        submit_when(log, **{"fact": OCTMosaicReady, "operation": "stitch", **given})


def test_an_operation_that_makes_no_name_wants_one(log: Ledger) -> None:
    with pytest.raises(BadName):
        submit_when(log, OCTMosaicReady, "Stitch It!")
    assert submit_when(log, OCTMosaicReady, "Stitch It!", name="stitching").name == "stitching"


def test_a_stream_of_nothing_that_gets_ready_is_refused(log: Ledger) -> None:
    log.append("lamp/a", LampMade())
    with pytest.raises(BadInput, match="not a stream of readiness"):
        ready_payload(log.read("lamp/a")[0])
