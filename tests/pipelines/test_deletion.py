"""delete_*: the whole subtree or nothing, hidden with all below it, and beginning anew (spec S0-33)."""

from __future__ import annotations

import pytest

from ledger import Ledger, MoveNotAllowed
from ledger.domain.known import KNOWN
from ledger.pipelines import LSM, LSMChannelId, LSMSliceId, LSMStateService, LSMStripId
from tests.pipelines.recorded_facts import recorded, words

STRIP = LSMStripId("p", 1, 0, 2)
BELOW = [("slice", LSMSliceId("p", 1)), ("channel", LSMChannelId("p", 1, 0)), ("strip", STRIP)]


def test_delete_takes_the_whole_subtree_and_touches_the_project_alone(
    grown: LSMStateService, log: Ledger
) -> None:
    before = grown.read_project("p")
    with grown.open_project("p") as project:
        assert project.delete_slice(1) is True
        assert project.get_slice(1) is None
        assert [*project.slices] == [2]
    after = grown.read_project("p")
    assert after.slices == {2: before.slices[2]}
    assert after.updated_at is not None
    assert before.updated_at is not None
    assert after.updated_at > before.updated_at
    for depth, (level, ident) in enumerate(BELOW, 1):
        assert getattr(grown, f"read_{level}")(ident) is None
        assert words(log, LSM[depth].name_of(*ident.key))[-1] == "deleted"
    assert words(log, "lsm.project/p") == ["created", "touched"]
    assert words(log, "lsm.slice/p/2") == ["created"]


def test_delete_of_a_channel_and_of_a_strip(grown: LSMStateService, log: Ledger) -> None:
    with grown.open_project("p") as project:
        assert project.delete_channel(1, 0)
        assert project.delete_strip(2, 1, 1)
    view = grown.read_project("p")
    assert ([*view.slices[1].channels], [*view.slices[2].channels[1].strips]) == ([1], [2])
    assert words(log, "lsm.slice/p/1") == words(log, "lsm.channel/p/2/1") == ["created"]


def test_delete_of_what_is_missing_changes_nothing(grown: LSMStateService, log: Ledger) -> None:
    before = recorded(log)
    with grown.open_project("p") as project:
        assert project.delete_slice(9) is False
        assert project.delete_channel(1, 9) is False
        assert project.delete_channel(9, 0) is False
        assert project.delete_strip(1, 0, 9) is False
        assert project.delete_strip(9, 0, 1) is False
    assert recorded(log) == before


def test_what_was_deleted_begins_anew(grown: LSMStateService) -> None:
    with grown.open_project("p") as project:
        project.delete_slice(1)
        assert project.delete_slice(1) is False
    with grown.open_strip("p", slice_id=1, strip_id=1, channel_id=0) as strip:
        assert not strip.uploaded
    one = grown.read_slice("p", slice_id=1)
    assert one is not None
    assert ([*one.channels], [*one.channels[0].strips]) == ([0], [1])


def test_delete_and_create_in_one_scope(grown: LSMStateService, log: Ledger) -> None:
    with grown.open_project("p") as project:
        old = project.get_or_create_strip_by_parts(1, 1, 0)
        kept = project.slices[1]
        project.delete_slice(1)
        with pytest.raises(MoveNotAllowed):
            old.mark_started()
        with pytest.raises(MoveNotAllowed):
            kept.get_or_create_channel(5)
        project.get_or_create_strip_by_parts(1, 2, 0).mark_started()
        assert [each.strip_id for each in project.slices[1].channels[0].strips.values()] == [2]
    one = grown.read_slice("p", slice_id=1)
    assert one is not None
    assert [(each.strip_id, each.uploaded) for each in one.channels[0].strips.values()] == [(2, False)]
    assert words(log, "lsm.strip/p/1/0/2") == ["created", "uploaded", "deleted", "created", "started"]


def test_a_deleted_ancestor_hides_what_is_below(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip(STRIP) as strip:
        strip.set_uploaded()
    log.append("lsm.slice/p/1", KNOWN.events["lsm.slice.deleted"]())
    for level, ident in BELOW:
        assert getattr(service, f"read_{level}")(ident) is None
    with service.open_strip(STRIP) as again:
        assert not again.uploaded
