"""Flow stages: the table of S0-62, row by row, then decided and recorded by ident, and ended once."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from ledger import AlreadyOpen, BadInput, Ledger, LockTimeout, WrongIdent
from ledger.pipelines import (
    LSM,
    OCT,
    Entry,
    LSMChannelId,
    LSMProjectId,
    LSMSliceId,
    LSMStateService,
    LSMStripId,
    OCTBatchId,
    OCTMosaicId,
    OCTProjectId,
    OCTSliceId,
    ProcessingState,
    ProjectStore,
    RunDecision,
    claim_flow,
    complete_stage,
    enter_flow_stage,
    flow_decision,
    force_rerun_from_payload,
    milestone_decision,
    should_skip_run,
)
from tests.pipelines.crowd import open_elsewhere
from tests.pipelines.recorded_facts import check_heads, recorded, words

STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"
ANY = (False, True)
SKIPPED, STARTED, RESTARTED = RunDecision.SKIPPED, RunDecision.STARTED, RunDecision.RESTARTED
PENDING, RUNNING, COMPLETED, FAILED = ProcessingState

# Tables


@pytest.mark.parametrize(
    ("payload", "forced"),
    [
        ({}, False),
        ({"force_rerun": False}, False),
        ({"force_rerun": True}, True),
        ({"force_rerun": 1}, True),
        ({"force_rerun": 0}, False),
        ({"force_rerun": None}, False),
        ({"force_rerun": "no"}, True),
    ],
)
def test_force_rerun_from_payload(payload: dict[str, Any], forced: bool) -> None:
    assert force_rerun_from_payload(payload) is forced


def test_only_skipped_is_skipped() -> None:
    assert [*map(str, RunDecision)] == ["skipped", "started", "restarted"]
    assert [should_skip_run(decision) for decision in RunDecision] == [True, False, False]
    for decision in RunDecision:
        entry = Entry(decision, STRIP)
        assert should_skip_run(entry) is entry.skipped is should_skip_run(decision)


ROWS = [
    # the state now, forced, skip if running: the decision, and whether mark_started is called
    (None, ANY, ANY, STARTED, True),
    (COMPLETED, (False,), ANY, SKIPPED, False),
    (COMPLETED, (True,), ANY, RESTARTED, True),
    (RUNNING, (False,), (True,), SKIPPED, False),
    (RUNNING, (True,), (True,), RESTARTED, True),
    (RUNNING, ANY, (False,), STARTED, True),
    (PENDING, ANY, ANY, STARTED, True),
    (FAILED, ANY, ANY, STARTED, True),
]
CASES = [
    (state, force, skip, decision, marked)
    for state, forces, skips, decision, marked in ROWS
    for force, skip in product(forces, skips)
]


def test_the_table_has_every_case_once() -> None:
    cases = [case[:3] for case in CASES]
    assert len(cases) == len({*cases}) == 5 * 2 * 2


@pytest.mark.parametrize(("state", "force", "skip", "decision", "marked"), CASES)
def test_flow_decision(
    state: ProcessingState | None, force: bool, skip: bool, decision: RunDecision, marked: bool
) -> None:
    view = None if state is None else SimpleNamespace(processing_state=state)
    assert flow_decision(view, force_rerun=force, skip_if_running=skip) is decision
    assert should_skip_run(decision) is not marked


WORDS = {RUNNING: "mark_started", COMPLETED: "mark_completed", FAILED: "mark_failed", PENDING: "touch"}


def test_what_is_decided_is_recorded_and_a_skip_records_nothing(
    service: LSMStateService, log: Ledger
) -> None:
    for number, (state, force, skip, decision, marked) in enumerate(CASES):
        ident = LSMStripId("p", number, 0, 2)  # each case has a strip of its own
        if state is not None:
            with service.open_strip(ident) as strip:
                getattr(strip, WORDS[state])()
        before = len(recorded(log))
        entry = enter_flow_stage(service, ident, force_rerun=force, skip_if_running=skip)
        added = [topic.removeprefix("lsm.") for _, topic in recorded(log)[before:]]
        if state is None:
            path = ["slice.created", "channel.created", "strip.created"]
            assert sorted(added) == sorted([*["project.created"] * (number == 0), *path, "strip.started"])
        else:
            assert added == ["strip.started"] * marked
        view = service.read_strip(ident)
        assert view is not None
        assert view.processing_state is (RUNNING if marked else state)
        assert (entry.decision, entry.ident, entry.milestone) == (decision, ident, None)
        assert (entry.number, entry.life) == ((view.attempts, 1) if marked else (0, 0))
        assert entry.takes_over is (marked and state is RUNNING)
    check_heads(log)


MILESTONES = [
    # the flag, under way, forced, skip if running: the decision, and so whether reset is called
    (True, ANY, (False,), ANY, SKIPPED),
    (True, ANY, (True,), ANY, RESTARTED),
    (False, (False,), ANY, ANY, STARTED),
    (False, (True,), (False,), (True,), SKIPPED),
    (False, (True,), (True,), (True,), RESTARTED),
    (False, (True,), ANY, (False,), STARTED),
]


def test_milestone_decision() -> None:
    seen = set()
    for flag, under_ways, forces, skips, decision in MILESTONES:
        for case in product((flag,), under_ways, forces, skips):
            done, under_way, force, skip = case
            assert milestone_decision(done, under_way, force_rerun=force, skip_if_running=skip) is decision, (
                case
            )
            seen.add(case)
    assert len(seen) == 16


@pytest.mark.parametrize(("flag", "force"), [*product(ANY, ANY)])
def test_milestone_decision_as_the_origin_took_it(flag: bool, force: bool) -> None:
    expected = (RESTARTED if force else SKIPPED) if flag else STARTED
    assert milestone_decision(flag, False, force_rerun=force) is expected
    assert milestone_decision(flag, True, force_rerun=force, skip_if_running=False) is expected


# By ident


LSM_IDENTS = [
    LSMProjectId("A_b"),
    LSMSliceId("A_b", 1),
    LSMChannelId("A_b", 1, 0),
    LSMStripId("A_b", 1, 0, 2),
]
OCT_IDENTS = [OCTProjectId("A_b"), OCTSliceId("A_b", 1), OCTMosaicId("A_b", 1, 2), OCTBatchId("A_b", 1, 2, 3)]


def test_w0_17_every_level_of_every_pipeline_has_stages(log: Ledger) -> None:
    for levels, idents in ((LSM, LSM_IDENTS), (OCT, OCT_IDENTS)):
        store = ProjectStore(levels, log)
        for ident in idents:
            entry = enter_flow_stage(store, ident)
            assert (entry.decision, entry.ident) == (STARTED, ident)
            assert enter_flow_stage(store, ident).skipped
            complete_stage(store, entry)
            assert store.read_item(ident).succeeded
            assert enter_flow_stage(store, ident, force_rerun=True).decision is RESTARTED


def test_what_is_no_ident_of_the_pipeline_is_a_type_error(service: LSMStateService, log: Ledger) -> None:
    wrong: list[Any] = [None, "p", ("p", 1, 0, 2), OCTBatchId("p", 1, 0, 2), LSMStripId, object()]
    for ident in wrong:
        with pytest.raises(WrongIdent, match="is no ident of this pipeline") as caught:
            enter_flow_stage(service, ident)
        assert isinstance(caught.value, TypeError)
    assert recorded(log) == []


def test_what_is_no_service_is_bad_input(log: Ledger) -> None:
    with pytest.raises(BadInput, match="neither a service nor a ProjectStore"):
        enter_flow_stage(log, STRIP)  # type: ignore[arg-type]


def test_the_entry_has_the_ident_as_the_caller_spells_it(service: LSMStateService) -> None:
    ident = LSMStripId("Brain_7", 1, 0, 2)
    assert enter_flow_stage(service, ident).ident == ident
    assert enter_flow_stage(service, LSMStripId("brain-7", 1, 0, 2)).skipped


def test_within_a_scope_the_claim_is_stored_with_the_scope(service: LSMStateService, log: Ledger) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        with pytest.raises(AlreadyOpen):
            enter_flow_stage(service, STRIP)
        entries = [claim_flow(channel.get_or_create_strip(i)) for i in (1, 2, 3)]
        assert claim_flow(channel.strips[2]).skipped
    assert [entry.decision for entry in entries] == [STARTED] * 3
    complete_stage(service, entries[1])
    assert words(log, STREAM) == ["created", "started", "completed"]


def test_a_claim_in_a_scope_that_fails_is_none(service: LSMStateService, log: Ledger) -> None:
    def claims_and_fails() -> None:
        with service.open_strip(STRIP) as strip:
            assert claim_flow(strip).decision is STARTED
            raise KeyError

    with pytest.raises(KeyError):
        claims_and_fails()
    assert recorded(log) == []


def test_a_scope_elsewhere_is_waited_for_so_long_and_no_longer(
    service: LSMStateService, log: Ledger, dsn: str
) -> None:
    with open_elsewhere(dsn), pytest.raises(LockTimeout, match="other"):
        enter_flow_stage(service, STRIP, timeout_seconds=0.05)
    assert recorded(log) == [("lsm.project/p", "lsm.project.created")]
    assert enter_flow_stage(service, STRIP, timeout_seconds=5).decision is STARTED
