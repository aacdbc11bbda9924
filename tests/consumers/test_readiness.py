"""A channel is ready once for each time that its strips became complete, and only then (spec S0-72)."""

from __future__ import annotations

import pytest

from consumers.pipelines import readiness
from ledger import BadInput, Body, Ledger, acting
from ledger.pipelines import (
    LSMChannelId,
    LSMChannelReadiness,
    LSMChannelReady,
    LSMChannelState,
    LSMProjectState,
    LSMStripState,
)
from tests.consumers.conftest import Lab

READY = "lsm.channel.ready/p/1/1"


def test_the_last_strip_makes_its_channel_ready(lab: Lab, log: Ledger) -> None:
    lab.build(strips=3, plan=3)
    lab.compress(3, 1)
    assert lab.rounds() == []
    with acting(correlation="order 66"):
        lab.compress(2)
    assert lab.rounds() == ["p/1/1"]
    (last,) = log.read("lsm.strip/p/1/1/2", after=1)
    (fact,) = log.read(READY)
    assert fact.event == LSMChannelReady(total=3, present=3, position=last.position, by=last.stream)
    assert (fact.meta.actor, fact.meta.causation) == ("reactor readiness", last.position)
    assert fact.meta.correlation == "order 66"
    state = log.load(LSMChannelReadiness, "P", 1, 1).state
    assert (state.rounds, state.total, state.by) == (1, 3, last.stream)
    assert state.first_at == state.last_at == fact.recorded_at


def test_w0_12_what_comes_later_makes_it_ready_no_second_time(lab: Lab) -> None:
    lab.build(plan=2)
    lab.compress(1, 2)
    assert lab.rounds() == ["p/1/1"]
    for strip_id in (1, 2):
        with lab.strip(strip_id) as strip:
            strip.mark_started()
            strip.set_compressed()
            strip.mark_completed()
            strip.set_archived()
            strip.set_uploaded()
            strip.touch()
    assert lab.rounds() == ["p/1/1"]


def test_w0_11_a_set_completed_while_no_reactor_runs_is_recorded_when_one_does(lab: Lab, log: Ledger) -> None:
    """State and event cannot part: the reactor reads the state's own facts, whenever it comes."""
    lab.build(plan=2)
    lab.compress(1, 2)
    with lab.strip(1) as strip:
        strip.reset_compressed()
    lab.compress(1)
    with lab.strip(2) as strip:
        strip.reset_compressed()
    assert log.streams(READY) == []
    assert lab.rounds() == ["p/1/1", "p/1/1"], "both rounds, though the set is not complete any more"


def test_w0_04_a_failed_strip_does_not_count(lab: Lab) -> None:
    lab.build(plan=2)
    lab.compress(1)
    with lab.strip(2) as strip:
        strip.mark_failed("no focus")
        strip.set_compressed()
    assert lab.channel().state.exists
    assert lab.rounds() == []
    with lab.strip(2) as strip:
        strip.mark_started()
    assert lab.rounds() == ["p/1/1"], "it was compressed, and is not failed any more"
    for change in (LSMStripState.mark_failed, LSMStripState.mark_completed):
        with lab.strip(1) as strip:
            change(strip)
    assert lab.rounds() == ["p/1/1"] * 2


def test_a_reset_arms_it_again(lab: Lab) -> None:
    lab.build(plan=2)
    lab.compress(1, 2)
    for nth in (2, 3):
        with lab.strip(nth - 1) as strip:
            strip.reset_compressed()
        assert lab.rounds() == ["p/1/1"] * (nth - 1)
        lab.compress(nth - 1)
        assert lab.rounds() == ["p/1/1"] * nth


def test_a_channel_that_is_deleted_and_made_again_starts_from_nothing(lab: Lab) -> None:
    lab.build(plan=2)
    lab.compress(1, 2)
    with lab.service.open_project("p") as project:
        assert project.delete_channel(1, 1)
    assert lab.rounds() == ["p/1/1"]
    lab.build(strips=1)
    lab.compress(1)
    assert lab.rounds() == ["p/1/1"], "strip 2 was of its former life"
    with lab.service.open_channel(LSMChannelId("p", 1, 1)) as channel:
        channel.get_or_create_strip(2).set_compressed()
    assert lab.rounds() == ["p/1/1"] * 2


def test_a_slice_that_is_made_again_does_not_bring_its_channels_back(lab: Lab) -> None:
    lab.build(plan=2)
    lab.compress(1)
    with lab.service.open_project("p") as project:
        project.delete_slice(1)
        project.get_or_create_slice(1)
    lab.build()
    lab.compress(1, 2)
    assert lab.rounds() == ["p/1/1"]


def test_what_is_left_below_a_former_life_does_not_count(lab: Lab, log: Ledger) -> None:
    """As another process made it that had not seen the slice's deletion yet."""
    lab.build(strips=0, channels=0, plan=2)
    for _ in range(2):
        with lab.service.open_project("p") as project:
            project.get_or_create_slice(1)
            project.delete_slice(1)
    with lab.service.open_project("p") as project:
        project.get_or_create_slice(1)
    for under in (1, 3):
        with log.open(LSMChannelState, "p", 1, under) as channel:
            channel.create(under=under)
        for strip_id in (1, 2):
            with lab.strip(strip_id, channel_id=under) as strip:
                strip.create(under=1)
                strip.set_compressed()
    assert lab.rounds() == ["p/1/3"]


def test_a_whole_project_in_one_append(lab: Lab) -> None:
    """Its events are in the order of names: channels before the project and the slices that they are in."""
    with lab.service.open_project("p") as project:
        for strip_id in (1, 2):
            project.get_or_create_strip_by_parts(1, strip_id, 1).set_compressed()
        project.plan(strips_per_slice=2)
    assert lab.rounds() == ["p/1/1"]


def test_children_whose_parents_come_later_count_from_then_on(lab: Lab, log: Ledger) -> None:
    """As in one append of a pipeline whose level names sort the other way round."""
    for strip_id in (1, 2):
        with log.open(LSMStripState, "p", 1, 1, strip_id) as strip:
            strip.create(under=1)
            strip.set_compressed()
    with log.open(type(lab.channel()), "p", 1, 1) as channel:
        channel.create(under=1)
    assert lab.rounds(2) == []
    with log.open(LSMProjectState, "p") as project:
        project.create()
    assert lab.rounds(2) == []
    with lab.service.open_slice("p", slice_id=1):
        pass
    assert lab.rounds(2) == ["p/1/1"]


def test_what_is_so_in_the_midst_of_an_append_only_is_no_round(lab: Lab) -> None:
    """Nobody ever saw channel 1 complete: strip 1 was compressed in the append that reset strip 2."""
    lab.build(plan=2)
    lab.compress(2)
    for _ in range(2):
        with lab.service.open_channel(LSMChannelId("p", 1, 1)) as channel:
            channel.strips[1].set_compressed()
            channel.strips[2].reset_compressed()
        assert lab.rounds() == []
        with lab.service.open_channel(LSMChannelId("p", 1, 1)) as channel:
            channel.strips[1].reset_compressed()
            channel.strips[2].set_compressed()
    lab.compress(1)
    with lab.service.open_channel(LSMChannelId("p", 1, 1)) as channel:
        channel.strips[1].reset_compressed()
        channel.strips[1].set_compressed()
    assert lab.rounds() == ["p/1/1"], "incomplete in the midst of an append is no round either"


@pytest.mark.parametrize("warm", [True, False])
def test_the_plan_decides_and_may_change(lab: Lab, log: Ledger, warm: bool) -> None:
    lab.build(strips=3, channels=2, plan=3)
    for channel_id in (1, 2):
        lab.compress(1, 2, channel_id=channel_id)
    reactor = readiness(log)

    def rounds() -> list[str]:
        (reactor if warm else readiness(log)).catch_up()
        return lab.rounds(caught_up=True)

    assert rounds() == []
    lab.plan(2)
    assert rounds() == ["p/1/1", "p/1/2"]
    lab.plan(3)
    lab.compress(3)
    assert rounds() == ["p/1/1", "p/1/2", "p/1/1"]
    lab.plan(None)
    lab.plan(1)
    assert rounds() == ["p/1/1", "p/1/2", "p/1/1", "p/1/1", "p/1/2"]


def test_without_a_total_nothing_is_ready(lab: Lab) -> None:
    lab.build()
    lab.compress(1, 2)
    lab.plan(0)
    assert lab.rounds() == []
    lab.plan(2)
    assert lab.rounds() == ["p/1/1"]


def test_a_total_for_projects_without_a_plan(lab: Lab) -> None:
    lab.build(strips=2)
    lab.build(strips=2, plan=3, project="q")
    lab.compress(1, 2)
    lab.compress(1, 2, project="q")
    assert lab.rounds(2) == ["p/1/1"]


def test_a_total_that_nobody_knows_is_refused(log: Ledger) -> None:
    with pytest.raises(BadInput, match=r"'strips' is no total .* there are: .*strips_per_slice"):
        readiness(log, strips=2)


def test_strips_count_from_one_whatever_else_is_there(lab: Lab) -> None:
    lab.build(strips=3, plan=2)
    with lab.service.open_strip("p", slice_id=1, channel_id=1, strip_id=0) as strip:
        strip.set_compressed()
    lab.compress(1, 3)
    assert lab.rounds() == []
    lab.compress(2)
    assert lab.rounds() == ["p/1/1"]
    with lab.strip(3) as strip:
        strip.reset_compressed()
        strip.set_compressed()
    assert lab.rounds() == ["p/1/1"]


def test_what_is_no_item_is_passed_over(lab: Lab, log: Ledger) -> None:
    lab.build(plan=2)
    names = ["lsm.strip", "lsm.strip/p/1/1", "lsm.strip/P/1/1/2", "lsm.strip/p/1/1/01", "x/p/1/1/2"]
    for name in [*names, "lsm.strip/q/one/1/2", "lsm.strip/q/1/1/1/1"]:
        log.append(name, Body("lsm.strip.compressed", 1, "{}"))
    log.append("lsm.strip/p/1/1/1", Body("lsm.strip.compressed", 99, '{"newer": true}'))
    lab.compress(1, 2)
    readiness(log).catch_up()
    assert [event.data for event in log.read(READY)] != []


def test_a_project_whose_name_leaves_no_room_does_not_stop_the_others(
    lab: Lab, log: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    long = "x" * 980
    lab.build(strips=1, plan=1, project=long)
    lab.build(strips=1, plan=1)
    lab.compress(1, project=long)
    lab.compress(1)
    assert readiness(log).catch_up() > 0
    assert [info.stream for info in log.streams("lsm.channel.ready/")] == [READY]
    assert "nothing can be recorded" in caplog.text
