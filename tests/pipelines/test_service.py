"""open_*, read_* and peek_* of every level, by ident and by parts, on a real ledger."""

from __future__ import annotations

import pickle

import pytest

from ledger import BadInput, BadName, Ledger
from ledger.pipelines import (
    LSMChannelId,
    LSMProjectId,
    LSMProjectStateView,
    LSMSliceId,
    LSMStateService,
    LSMStripId,
    ProcessingState,
)
from tests.pipelines.recorded_facts import recorded, words

STRIP = LSMStripId("p", 1, 0, 2)
LEVELS: list[tuple[str, dict[str, int], LSMProjectId]] = [
    ("project", {}, LSMProjectId("p")),
    ("slice", {"slice_id": 1}, LSMSliceId("p", 1)),
    ("channel", {"slice_id": 1, "channel_id": 0}, LSMChannelId("p", 1, 0)),
    ("strip", {"slice_id": 1, "channel_id": 0, "strip_id": 2}, STRIP),
]
every_level = pytest.mark.parametrize(("level", "ids", "ident"), LEVELS, ids=[level for level, *_ in LEVELS])


# Opening.


def test_the_seeds_own_example(service: LSMStateService, log: Ledger) -> None:
    project = "p"
    with service.open_strip(project, slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
        strip.set_uploaded(True)
    found = service.read_strip(project, slice_id=1, strip_id=2, channel_id=0)
    assert found is not None
    assert (found.processing_state, found.uploaded, found.archived) == ("completed", True, False)
    assert [topic for _, topic in recorded(log)] == [
        "lsm.project.created",
        "lsm.slice.created",
        "lsm.channel.created",
        "lsm.strip.created",
        "lsm.strip.completed",
        "lsm.strip.uploaded",
    ]
    assert len({event.recorded_at for event in log.log(0, log.bound())}) == 1


@every_level
def test_every_level_opens_by_ident_and_by_parts(
    service: LSMStateService, log: Ledger, level: str, ids: dict[str, int], ident: LSMProjectId
) -> None:
    opens = [
        lambda: getattr(service, f"open_{level}")(ident),
        lambda: getattr(service, f"open_{level}")("p", **ids),
        lambda: getattr(service, f"open_{level}_by_parts")("p", **ids),
        lambda: getattr(service, f"open_{level}_by_parts")(project_name="P", **ids),
    ]
    for n, open_ in enumerate(opens, 1):
        with open_() as item:
            item.mark_started()
            assert (item.attempts, item.ident.key) == (n, ident.key)
    looks = [getattr(service, f"{verb}_{level}")(ident) for verb in ("read", "peek")]
    looks += [getattr(service, f"{verb}_{level}")("p", **ids) for verb in ("read", "peek")]
    looks += [getattr(service, f"{verb}_{level}_by_parts")("p", **ids) for verb in ("read", "peek")]
    assert looks == [looks[0]] * 6
    assert looks[0].attempts == 4
    assert words(log, item.name) == ["created", *["started"] * 4]


def test_what_is_missing_on_the_path_is_created_even_by_an_empty_body(service: LSMStateService) -> None:
    with service.open_channel("p", slice_id=3, channel_id=4):
        pass
    view = service.read_project("p")
    assert view.get_channel_by_parts(3, 4) is not None
    assert [*view.slices] == [3]


def test_a_strip_of_no_channel_is_of_channel_one(service: LSMStateService) -> None:
    with service.open_strip("p", slice_id=1, strip_id=2) as strip:
        assert strip.channel_id == 1
    with service.open_strip_by_parts("p", slice_id=1, strip_id=2) as again:
        assert again.version == 1
    assert service.read_strip("p", slice_id=1, strip_id=2) == service.peek_strip_by_parts(
        "p", slice_id=1, strip_id=2
    )


def test_an_exception_stores_nothing(service: LSMStateService, log: Ledger) -> None:
    def fail() -> None:
        with service.open_strip(STRIP) as strip:
            strip.mark_completed()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert recorded(log) == []


def test_several_mutations_land_together(service: LSMStateService, log: Ledger) -> None:
    with service.open_project("p") as project:
        for strip_id in (1, 2, 3):
            project.get_or_create_strip_by_parts(1, strip_id).mark_completed()
        assert recorded(log) == []
    assert service.read_project("p").slices[1].channels[1].all_completed(3)
    assert len({event.recorded_at for event in log.log(0, log.bound())}) == 1


def test_a_scope_that_changes_nothing_appends_nothing(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip(STRIP):
        pass
    before = recorded(log)
    with service.open_strip(STRIP):
        pass
    assert recorded(log) == before


def test_get_or_create_gives_the_identical_object(service: LSMStateService) -> None:
    for _ in range(2):
        with service.open_project("p") as project:
            strip = project.get_or_create_strip(STRIP)
            assert project.get_or_create_strip_by_parts(1, 2, 0) is strip
            assert project.get_or_create_channel(1, 0).get_or_create_strip(2) is strip
            assert project.get_or_create_slice(1).get_or_create_channel(0).get_strip(2) is strip
            assert project.get_strip(STRIP) is strip
            assert [*project.iter_strips()] == [strip]
            assert (strip.slice_id, strip.channel_id, strip.strip_id) == (1, 0, 2)


def test_lookups_and_aggregates_work_on_what_is_open(service: LSMStateService) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        assert channel.all_completed(0)
        assert not channel.all_completed(2)
        for strip_id in (1, 2):
            strip = channel.get_or_create_strip(strip_id)
            strip.mark_completed()
            strip.set_compressed()
        assert (channel.all_completed(2), channel.all_compressed(2), channel.all_succeeded(2)) == (True,) * 3
        assert channel.get_strip(3) is None
        assert [*channel.strips] == [1, 2]
    with service.open_channel("p", slice_id=1, channel_id=0) as again:
        assert again.all_compressed(2)
        again.set_mip_stitched()
    with service.open_slice("p", slice_id=1) as one:
        assert one.channels[0].mip_stitched
        assert not one.all_finished()


def test_a_view_of_what_is_open_is_detached(service: LSMStateService) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        channel.get_or_create_strip(1).mark_started()
        view = channel.to_view()
        channel.get_or_create_strip(1).mark_completed()
        channel.get_or_create_strip(2)
        channel.set_mip_stitched()
    assert view.strips[1].processing_state is ProcessingState.RUNNING
    assert ([*view.strips], view.mip_stitched) == ([1], False)
    assert pickle.loads(pickle.dumps(view)) == view


def test_after_its_scope_nothing_can_be_recorded(service: LSMStateService) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        strip = channel.get_or_create_strip(1)
    for change in (channel.mark_started, strip.set_uploaded, lambda: channel.get_or_create_strip(2)):
        with pytest.raises(BadInput, match="its scope has ended"):
            change()
    assert channel.to_view() == service.read_channel("p", slice_id=1, channel_id=0)


def test_a_strip_of_another_project_is_refused(service: LSMStateService) -> None:
    with service.open_project("A_b") as project:
        assert project.get_or_create_strip(LSMStripId("a-B", 1, 0, 2)).strip_id == 2
        with pytest.raises(BadInput, match="is not project_name='a-b', which is open here, nor below it"):
            project.get_or_create_strip(STRIP)


# Looking.


def test_looking_creates_nothing(service: LSMStateService, log: Ledger) -> None:
    for verb in ("read", "peek"):
        assert getattr(service, f"{verb}_project")("Nobody_1") == LSMProjectStateView(project_name="Nobody_1")
        for level, ids, ident in LEVELS[1:]:
            assert getattr(service, f"{verb}_{level}")(ident) is None
            assert getattr(service, f"{verb}_{level}_by_parts")("p", **ids) is None
    assert recorded(log) == []
    assert log.streams() == []


@every_level
def test_a_missing_part_is_none_though_its_parent_is_there(
    service: LSMStateService, level: str, ids: dict[str, int], ident: LSMProjectId
) -> None:
    with service.open_channel("p", slice_id=1, channel_id=5):
        pass
    found = getattr(service, f"read_{level}")(ident)
    assert (found is not None) is (level in ("project", "slice"))


def test_a_read_takes_in_only_its_own_subtree(service: LSMStateService) -> None:
    for name in ("p", "p2", "p-1"):
        for slice_id in (1, 10, 2):
            for strip_id in (2, 11, 1):
                with service.open_strip(name, slice_id=slice_id, strip_id=strip_id, channel_id=0) as strip:
                    strip.mark_failed(f"{name} {slice_id} {strip_id}")
    project = service.read_project("p")
    assert [*project.slices] == [1, 2, 10]
    assert [(each.slice_id, each.strip_id) for each in project.iter_strips()] == [
        (s, t) for s in (1, 2, 10) for t in (1, 2, 11)
    ]
    assert {(each.reason or "").split()[0] for each in project.iter_strips()} == {"p"}
    assert service.read_slice("p", slice_id=1) == project.slices[1]
    assert service.read_channel("p", slice_id=10, channel_id=0) == project.slices[10].channels[0]
    assert service.read_strip("p", slice_id=1, strip_id=11, channel_id=0) == project.get_strip_by_parts(
        1, 11, 0
    )


@pytest.mark.parametrize("name", ["a/b", "a%b", "ä 1", "p:q", "x" * 300, "\U0010ffff", "a\nb"])
def test_any_name_finds_its_own_tree(service: LSMStateService, name: str) -> None:
    with service.open_strip(name, slice_id=1, strip_id=2) as strip:
        strip.mark_started()
    with service.open_strip(name + "/1", slice_id=1, strip_id=3):
        pass
    view = service.read_project(name)
    assert (view.project_name, [each.strip_id for each in view.iter_strips()]) == (name, [2])


@pytest.mark.parametrize("verb", ["open", "read", "peek"])
def test_bad_ids_are_refused_before_anything_is_sent(
    service: LSMStateService, log: Ledger, verb: str
) -> None:
    call = getattr(service, f"{verb}_strip")
    for bad in (-1, True, "1", 1.5, 2**63):
        with pytest.raises(BadName, match="strip_id"):
            call("p", slice_id=1, strip_id=bad)
    for name in ("", None, 3):
        with pytest.raises(BadName, match="project_name"):
            call(name, slice_id=1, strip_id=1)
    with pytest.raises(BadInput, match="strip_id must be given"):
        call("p", slice_id=1)
    with pytest.raises(BadInput, match="a LSMStripId is needed"):
        call(LSMSliceId("p", 1))
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        for bad in (-1, True, "1", None):
            with pytest.raises(BadName, match="strip_id"):
                channel.get_or_create_strip(bad)  # type: ignore[arg-type]
    assert [stream for stream, _ in recorded(log)] == ["lsm.project/p", "lsm.slice/p/1", "lsm.channel/p/1/0"]
