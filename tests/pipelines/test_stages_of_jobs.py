"""Stages that were begun for a job: who may take over what it left behind, and who may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID, uuid4

import pytest

from ledger import ClaimLost, Ledger
from ledger.domain.claimant import Claimant, claiming_for, present_claimant, process_claims_for
from ledger.errors import WorkStopped
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.pipelines import (
    Entry,
    LSMStateService,
    LSMStripId,
    RunDecision,
    claim_flow,
    complete_stage,
    fail_stage,
)
from ledger.pipelines.stages import BATCH
from tests.pipelines.crowd import Crowd, both_stages, both_ways, enter, entered, service_of
from tests.pipelines.recorded_facts import check_heads

STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"
SKIPPED, STARTED, RESTARTED = RunDecision


def started(log: Ledger, job: str) -> Claimant:
    """A claim on a job."""
    with log.open(OpenJob, job) as opened:
        opened.start("w")
    return Claimant(opened.name, opened.state.token or 0)


def again(log: Ledger, job: str) -> Claimant:
    """The claim of the attempt after one whose worker vanished."""
    with log.open(OpenJob, job) as opened:
        opened.expire()
    return started(log, job)


def ended(log: Ledger, job: str, how: str) -> None:
    with log.open(OpenJob, job) as opened:
        match how:
            case "succeeded":
                opened.succeed()
            case "failed":
                opened.fail("OSError", "disk")
            case "cancelled":
                opened.cancel()


@pytest.fixture
def job(log: Ledger) -> str:
    return Jobs(log).submit("process")


def nobody() -> AbstractContextManager[None]:
    return claiming_for(None)


@contextmanager
def another_job(log: Ledger) -> Iterator[None]:
    with claiming_for(started(log, Jobs(log).submit("process"))):
        yield


@both_stages
def test_the_next_attempt_takes_over_what_the_one_before_left(
    service: LSMStateService, log: Ledger, job: str, guard: str
) -> None:
    first = started(log, job)
    with claiming_for(first):
        lost = enter(guard, service, STRIP)
        assert (lost.decision, enter(guard, service, STRIP).decision) == (STARTED, SKIPPED)
    with claiming_for(again(log, job)):
        entry = enter(guard, service, STRIP)
        assert (entry.decision, entry.takes_over, entry.left_by) == (RESTARTED, True, first)
    for end in (complete_stage, fail_stage):
        with pytest.raises(ClaimLost):
            end(service, lost)
    with (
        claiming_for(first),
        pytest.raises(WorkStopped, match=r"a later attempt of this job works on lsm\.strip"),
    ):
        enter(guard, service, STRIP, force_rerun=True)
    complete_stage(service, entry)
    with claiming_for(first):
        assert enter(guard, service, STRIP).skipped
    check_heads(log)


@both_stages
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_what_a_job_left_that_is_over_anybody_takes_over(
    service: LSMStateService, log: Ledger, job: str, guard: str, how: str
) -> None:
    claimant = started(log, job)
    with claiming_for(claimant):
        enter(guard, service, STRIP)
    ended(log, job, how)
    entry = enter(guard, service, STRIP)
    assert (entry.decision, entry.left_by) == (RESTARTED, claimant)
    assert enter(guard, service, STRIP).skipped, "nobody's job began it this time"


@both_stages
def test_what_a_job_began_that_is_not_over_is_left_to_it(
    service: LSMStateService, log: Ledger, job: str, guard: str
) -> None:
    """Whether it is at work, waits to be tried again, or is at work anew."""
    with claiming_for(started(log, job)):
        enter(guard, service, STRIP)
    for whom in (nobody, lambda: another_job(log)):
        with whom():
            assert enter(guard, service, STRIP).skipped
    with log.open(OpenJob, job) as opened:
        opened.expire()
    for whom in (nobody, lambda: another_job(log)):
        with whom():
            assert enter(guard, service, STRIP).skipped
    started(log, job)
    assert enter(guard, service, STRIP).skipped
    assert entered(log, STREAM) == 1


@both_stages
def test_what_nobodys_job_began_is_left_to_whoever_did(
    service: LSMStateService, log: Ledger, job: str, guard: str
) -> None:
    enter(guard, service, STRIP)
    with claiming_for(started(log, job)):
        assert enter(guard, service, STRIP).skipped


@both_stages
def test_within_a_job_work_can_be_begun_for_nobody(
    service: LSMStateService, log: Ledger, job: str, guard: str
) -> None:
    """What is ended elsewhere, after the job is over."""
    with claiming_for(started(log, job)), claiming_for(None):
        entry = enter(guard, service, STRIP)
    with claiming_for(again(log, job)):
        assert enter(guard, service, STRIP).skipped
    ended(log, job, "succeeded")
    assert enter(guard, service, STRIP).skipped
    complete_stage(service, entry)


@both_stages
@pytest.mark.parametrize(
    "stream",
    [f"job/{UUID(int=7)}", f"batch/{UUID(int=7)}/1", "job", "batch", "job/no uuid", "lamp/a", "job/a/b/c"],
)
def test_of_work_that_is_not_in_this_ledger_nobody_knows_whether_it_is_over(
    service: LSMStateService, log: Ledger, guard: str, stream: str
) -> None:
    with claiming_for(Claimant(stream, 3)):
        enter(guard, service, STRIP)
    assert enter(guard, service, STRIP).skipped
    with claiming_for(Claimant(stream, 4)):
        assert enter(guard, service, STRIP).decision is RESTARTED


def test_a_batch_is_a_claimant_as_a_job_is(service: LSMStateService, log: Ledger, job: str) -> None:
    with log.open(OpenBatch, job, "1") as batch:
        batch.queue(1, "process", "default")
    with log.open(OpenBatch, job, "1") as batch:
        batch.start("w")
    with claiming_for(Claimant(batch.name, batch.state.token or 0)):
        enter("flow", service, STRIP)
    assert enter("flow", service, STRIP).skipped
    with log.open(OpenBatch, job, "1") as batch:
        batch.fail("OSError")
    assert enter("flow", service, STRIP).decision is RESTARTED


@both_stages
def test_a_batch_of_a_later_round_takes_over_what_one_of_the_round_before_left(
    service: LSMStateService, guard: str
) -> None:
    """Those of the round before are cancelled, but perhaps not yet; a batch of the same round is another."""
    assert BATCH == OpenBatch.CATEGORY
    job = uuid4()
    old, new = Claimant(f"batch/{job}/1", 9), Claimant(f"batch/{job}/2.7", 2)
    with claiming_for(old):
        enter(guard, service, STRIP)
    for other in (
        f"batch/{job}/2",
        f"batch/{uuid4()}/2.1",
        f"batch/{job}/x.1",
        f"batch/{job}/{'9' * 5000}.1",
        f"job/{job}",
    ):
        with claiming_for(Claimant(other, 99)):
            assert enter(guard, service, STRIP).skipped
    with claiming_for(new):
        assert enter(guard, service, STRIP).left_by == old
    with claiming_for(Claimant(f"batch/{job}/2.8", 99)):
        assert enter(guard, service, STRIP).skipped
    with claiming_for(old), pytest.raises(WorkStopped):
        enter(guard, service, STRIP)


@pytest.mark.parametrize("end", ["mark_completed", "mark_failed", "mark_pending", "delete"])
def test_an_end_forgets_for_whom_it_was_begun(
    service: LSMStateService, log: Ledger, job: str, end: str
) -> None:
    with claiming_for(started(log, job)):
        enter("flow", service, STRIP)
    if end == "delete":
        with service.open_project("p") as project:
            project.delete_slice(1)
    with service.open_strip(STRIP) as strip:
        if end != "delete":
            getattr(strip, end)()
        assert strip.state.begun_for == ()
    ended(log, job, "failed")
    with service.open_strip(STRIP) as strip:
        strip.mark_started()
        assert claim_flow(strip).skipped
    check_heads(log)


def left_milestone(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        (claim,) = strip.under_way
        strip.leave(*claim)


def reset_milestone(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        strip.reset_compressed()


@pytest.mark.parametrize("end", [left_milestone, reset_milestone])
def test_a_milestone_forgets_it_too_and_the_processing_does_not(
    service: LSMStateService, log: Ledger, job: str, end: Callable[[LSMStateService], None]
) -> None:
    with claiming_for(started(log, job)):
        enter("flow", service, STRIP)
        enter("milestone", service, STRIP)
    end(service)
    with service.open_strip(STRIP) as strip:
        assert [each.milestone for each in strip.state.begun_for] == [None]


@both_ways
@both_stages
def test_of_many_that_take_over_at_one_moment_one_does(
    log: Ledger, job: str, guard: str, locked: bool
) -> None:
    service = service_of(log, locked)
    with claiming_for(started(log, job)):
        enter(guard, service, STRIP)
    ended(log, job, "failed")
    with Crowd(6) as crowd:
        entries: list[Entry] = crowd.all(lambda: enter(guard, service, STRIP))
    assert sorted(str(entry.decision) for entry in entries) == ["restarted", *["skipped"] * 5]
    assert entered(log, STREAM) == 2


def test_threads_share_what_is_said_for_the_process_and_a_context_goes_before_it() -> None:
    mine, other = Claimant("job/a", 2), Claimant("job/b", 2)
    process_claims_for(mine)
    try:
        with Crowd(2) as crowd:
            assert crowd.all(present_claimant) == [mine, mine]
        with claiming_for(other):
            assert present_claimant() == other
            with claiming_for(None):
                assert present_claimant() is None
        assert present_claimant() == mine
    finally:
        process_claims_for(None)
    assert present_claimant() is None
