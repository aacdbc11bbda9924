"""Milestone stages: entered with the reset first, fenced by the claim, ended once (spec S0-63, S0-64)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from ledger import ClaimLost, Ledger, UnknownFlag, WrongIdent
from ledger.pipelines import (
    Entry,
    Flag,
    Level,
    LSMChannelId,
    LSMSliceId,
    LSMStateService,
    LSMStripId,
    OCTSliceId,
    OCTStateService,
    Pipeline,
    ProjectStore,
    RunDecision,
    claim_milestone,
    complete_stage,
    enter_flow_stage,
    enter_milestone_stage,
    fail_stage,
    milestone_decision,
)
from tests.pipelines.recorded_facts import check_heads, recorded, words

STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"
SKIPPED, STARTED, RESTARTED = RunDecision


def enter(service: LSMStateService, milestone: str = "compressed", **ways: bool) -> Entry:
    return enter_milestone_stage(service, STRIP, milestone, **ways)


def flags(service: LSMStateService) -> tuple[bool, bool]:
    strip = service.read_strip(STRIP)
    assert strip is not None
    return strip.compressed, strip.uploaded


# Entering


def test_a_milestone_is_entered_done_and_skipped(service: LSMStateService, log: Ledger) -> None:
    first = enter(service)
    assert (first.decision, first.milestone, first.number, first.takes_over) == (
        STARTED,
        "compressed",
        1,
        False,
    )
    assert enter(service).decision is SKIPPED  # under way
    complete_stage(service, first)
    assert enter(service).decision is SKIPPED  # done
    assert words(log, STREAM) == ["created", "reset", "entered", "compressed"]
    again = enter(service, force_rerun=True)
    assert (again.decision, again.number, again.takes_over) == (RESTARTED, 2, False)
    assert words(log, STREAM)[4:] == ["reset", "entered"]
    assert flags(service) == (False, False)
    check_heads(log)


def test_a_reset_with_its_cascade_always_comes_first(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip(STRIP) as strip:
        strip.set_uploaded()
    assert enter(service).decision is STARTED  # `compressed` was false, and still what was made from it falls
    assert flags(service) == (False, False)
    reset = [event.data for event in log.read(STREAM) if event.topic == "lsm.strip.reset"]
    assert reset == ['{"cleared": ["compressed", "uploaded"]}']


def test_what_is_decided_is_recorded_and_a_skip_records_nothing(
    service: LSMStateService, log: Ledger
) -> None:
    cases = product((True, False), repeat=4)
    for number, (done, under_way, force, skip) in enumerate(cases):
        if done and under_way:
            continue  # a flag that is set ends the claim on it
        ident = LSMStripId("p", 1, 0, number)
        with service.open_strip(ident) as strip:
            if under_way:
                strip.enter("compressed")
            if done:
                strip.set_compressed()
        before = len(recorded(log))
        entry = enter_milestone_stage(service, ident, "compressed", force_rerun=force, skip_if_running=skip)
        decision = milestone_decision(done, under_way, force_rerun=force, skip_if_running=skip)
        assert entry.decision is decision
        added = [topic for _, topic in recorded(log)[before:]]
        assert added == ([] if entry.skipped else ["lsm.strip.reset", "lsm.strip.entered"])
        assert entry.takes_over is (under_way and not entry.skipped)
    check_heads(log)


def test_milestones_of_one_item_are_claimed_apart_and_from_its_processing(service: LSMStateService) -> None:
    enter_flow_stage(service, STRIP)
    entries = [enter(service, name) for name in ("compressed", "archived")]
    assert [entry.number for entry in entries] == [1, 2]
    for entry in reversed(entries):
        complete_stage(service, entry)
    strip = service.read_strip(STRIP)
    assert strip is not None
    assert (strip.compressed, strip.archived, strip.under_way, strip.attempts) == (True, True, (), 1)
    assert strip.processing_state == "running"


def test_what_is_made_from_it_is_no_longer_under_way(service: LSMStateService, log: Ledger) -> None:
    upload = enter(service, "uploaded")
    compress = enter(service, "compressed", force_rerun=True)
    with pytest.raises(ClaimLost, match="claim 1 on uploaded was taken over, ended or undone"):
        complete_stage(service, upload)
    complete_stage(service, compress)
    assert flags(service) == (True, False)


def test_within_a_scope_the_claim_is_stored_with_the_scope(service: LSMStateService, log: Ledger) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        strip = channel.get_or_create_strip(2)
        entry = claim_milestone(strip, "archived")
        assert entry.held_by(strip)
        assert claim_milestone(strip, "archived").skipped
        entry.complete(strip)
        assert claim_milestone(channel, "mip_stitched").decision is STARTED
    assert words(log, STREAM) == ["created", "reset", "entered", "archived"]


# Levels, idents and flags


GUARDED = Pipeline("guarded", [Level("plate", flags=[Flag("sealed")])])
PlateId = GUARDED[0].IDENT


def test_w0_17_slices_and_projects_have_milestones_too(log: Ledger, service: LSMStateService) -> None:
    oct_service, plates = OCTStateService(log), ProjectStore(GUARDED, log)
    cases: list[tuple[Any, Any, str]] = [
        (oct_service, OCTSliceId("p", 3), "registered"),
        (service, LSMChannelId("p", 1, 0), "mip_stitched"),
        (plates, PlateId("p"), "sealed"),
    ]
    for where, ident, name in cases:
        entry = enter_milestone_stage(where, ident, name)
        assert enter_milestone_stage(where, ident, name).skipped
        complete_stage(where, entry)
        store = where if isinstance(where, ProjectStore) else where.store
        assert getattr(store.read_item(ident), name) is True


def test_wrong_idents_and_flags_record_nothing(service: LSMStateService, log: Ledger) -> None:
    wrong: list[Any] = [None, "p", 3, ("p", 1), OCTSliceId("p", 1), PlateId("p")]
    for ident in wrong:
        with pytest.raises(WrongIdent) as no_ident:
            enter_milestone_stage(service, ident, "compressed")
        assert isinstance(no_ident.value, TypeError)
    for ident, name in [(STRIP, "mip_stitched"), (LSMSliceId("p", 1), "uploaded"), (STRIP, "attempts")]:
        with pytest.raises(UnknownFlag, match=f"'{name}' is not a flag of lsm") as no_flag:
            enter_milestone_stage(service, ident, name)
        assert isinstance(no_flag.value, AttributeError)
    assert recorded(log) == []


# Ending


def reset(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        strip.reset_compressed()


def set_by_hand(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        strip.set_compressed()


def reset_and_set_by_hand(service: LSMStateService) -> None:
    reset(service)
    set_by_hand(service)


def make_pending(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        strip.mark_pending()


def delete(service: LSMStateService) -> None:
    with service.open_project("p") as project:
        project.delete_strip(1, 0, 2)


def delete_and_enter(service: LSMStateService) -> None:
    delete(service)
    assert enter(service).decision is STARTED


def take_over(service: LSMStateService) -> None:
    assert enter(service, force_rerun=True).takes_over


def enter_beside(service: LSMStateService) -> None:
    assert enter(service, skip_if_running=False).decision is STARTED


def leave(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        (claim,) = strip.under_way
        assert strip.leave(*claim, "the operator said so")


LOSSES = [
    reset, set_by_hand, reset_and_set_by_hand, make_pending,
    delete, delete_and_enter, take_over, enter_beside, leave,
]  # fmt: skip


@pytest.mark.parametrize("end", [complete_stage, fail_stage])
def test_who_lost_the_claim_changes_nothing(
    service: LSMStateService, log: Ledger, end: Callable[..., None]
) -> None:
    for lose in LOSSES:
        delete(service)
        entry = pickle.loads(pickle.dumps(enter(service)))
        lose(service)
        before, view = recorded(log), service.read_strip(STRIP)
        with pytest.raises(ClaimLost, match=f"claim {entry.number} on compressed was") as caught:
            end(service, entry)
        assert caught.value.stream == STREAM
        assert recorded(log) == before, lose
        assert service.read_strip(STRIP) == view
    check_heads(log)


def test_a_claim_is_left_with_the_reason_and_the_flag_stays_false(
    service: LSMStateService, log: Ledger
) -> None:
    entry = enter(service)
    fail_stage(service, entry, "disk full")
    (left,) = [event.data for event in log.read(STREAM) if event.topic == "lsm.strip.left"]
    assert left == '{"reason": "disk full", "milestone": "compressed"}'
    assert flags(service) == (False, False)
    again = enter(service)
    assert (again.decision, again.number, again.takes_over) == (STARTED, 2, False)


@pytest.mark.parametrize("cure", [reset, make_pending, leave, take_over], ids=lambda cure: cure.__name__)
def test_a_killed_worker_keeps_others_out_until_its_claim_is_cured(
    service: LSMStateService, cure: Callable[[LSMStateService], None]
) -> None:
    enter(service)  # and then nothing more is heard
    assert enter(service).skipped
    cure(service)
    assert enter(service).skipped is (cure is take_over)
