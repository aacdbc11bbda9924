"""The machine, flags and cascades of every level, without a database: given facts, when a method, then."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import BadInput, MoveNotAllowed
from ledger.domain.event import Event
from ledger.domain.known import KNOWN
from ledger.pipelines import (
    LSM,
    MOVES,
    LSMChannelState,
    LSMProjectState,
    LSMSliceState,
    LSMStripState,
    OpenItem,
    ProcessingState,
    ProjectCreated,
    Reset,
    Status,
)
from ledger.pipelines.facts import LIVE, facts_of

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: dict[type[OpenItem[Any]], tuple[str | int, ...]] = {
    LSMProjectState: ("p",),
    LSMSliceState: ("p", 1),
    LSMChannelState: ("p", 1, 0),
    LSMStripState: ("p", 1, 0, 2),
}
FLAGS = {
    LSMProjectState: (),
    LSMSliceState: (),
    LSMChannelState: ("mip_stitched", "volume_stitched", "volume_uploaded"),
    LSMStripState: ("archived", "compressed", "uploaded"),
}
CASCADES = {
    "mip_stitched": ("mip_stitched", "volume_stitched", "volume_uploaded"),
    "volume_stitched": ("volume_stitched", "volume_uploaded"),
    "volume_uploaded": ("volume_uploaded",),
    "archived": ("archived",),
    "compressed": ("compressed", "uploaded"),
    "uploaded": ("uploaded",),
}
EVERY_FLAG = [(kind, flag) for kind, flags in FLAGS.items() for flag in flags]
MARKS: dict[str, Callable[[OpenItem[Any]], None]] = {
    "running": lambda item: item.mark_started(),
    "completed": lambda item: item.mark_completed(),
    "failed": lambda item: item.mark_failed(),
    "pending": lambda item: item.mark_pending(),
}


def fact(kind: type[OpenItem[Any]], name: str, **fields: Any) -> Event:
    return KNOWN.events[f"{kind.CATEGORY}.{name}"](**fields)


def created(kind: type[OpenItem[Any]]) -> Event:
    named = {"project_name": "P"} if kind is LSMProjectState else {}
    return fact(kind, "created", under=0 if kind is LSMProjectState else 1, **named)


def given(kind: type[OpenItem[Any]], *names: str, **fields: Any) -> Any:
    """An item that was created, and then these facts, a minute each."""
    facts = [created(kind), *(fact(kind, name) for name in names)]
    return kind(*KEYS[kind], past=[(each, START + timedelta(minutes=i)) for i, each in enumerate(facts)])


def minute(n: int) -> datetime:
    return START + timedelta(minutes=n)


every_level = pytest.mark.parametrize("kind", LSM, ids=lambda kind: kind.CATEGORY)


# Names that may never change.


def test_the_topics_are_these_for_ever() -> None:
    common = {"created", "touched", "started", "completed", "failed", "pending", "deleted", "reset"}
    common |= {"entered", "left"}
    wanted = {f"{kind.CATEGORY}.{word}" for kind in LSM for word in common | {*FLAGS[kind]}}
    wanted |= {"lsm.project.planned", "lsm.channel.ready"}
    assert {topic for topic in KNOWN.events if topic.startswith("lsm.")} == wanted
    assert [kind.CATEGORY for kind in LSM] == ["lsm.project", "lsm.slice", "lsm.channel", "lsm.strip"]


def test_the_facts_are_named_classes_that_can_be_pickled() -> None:
    for topic, kind in KNOWN.events.items():
        if topic.startswith("lsm."):
            assert kind.__name__.lower() == topic.replace("_", "").replace(".", "")
            assert pickle.loads(pickle.dumps(kind)) is kind


def test_processing_state_has_exactly_four_values() -> None:
    assert [str(state) for state in ProcessingState] == ["pending", "running", "completed", "failed"]


def test_a_level_cannot_be_declared_wrongly() -> None:
    with pytest.raises(TypeError, match="a flag cannot be named reset"):
        facts_of("other.level", ["reset"], project=False, module=__name__)
    with pytest.raises(TypeError, match="already names"):
        facts_of("lsm.strip", [], project=False, module=__name__)


# The machine.


@every_level
def test_a_new_item_is_pending_and_carries_its_ids(kind: type[OpenItem[Any]]) -> None:
    item = given(kind)
    view = item.state
    assert (item.processing_state, view.finished, view.succeeded, view.exists) == (
        "pending",
        False,
        False,
        True,
    )
    assert (view.created_at, view.updated_at) == (START, START)
    assert (view.processing_started_at, view.processing_finished_at, view.attempts) == (None, None, 0)
    ids = {"slice_id": 1, "channel_id": 0, "strip_id": 2, "project_name": "P"}
    assert {name: getattr(view, name) for name in ids if hasattr(view, name)} == {
        name: value for name, value in ids.items() if hasattr(item, name)
    }
    assert not any(getattr(view, flag) for flag in FLAGS[kind])


@every_level
@pytest.mark.parametrize("after", ["started", "completed", "failed", "pending"])
@pytest.mark.parametrize("to", list(MARKS))
def test_each_state_may_follow_each(kind: type[OpenItem[Any]], after: str, to: str) -> None:
    item = given(kind, after)
    MARKS[to](item)
    assert [event.to for event in item.news] == [to]
    assert (item.state.status, item.processing_state) == (to, to)


def test_started_counts_and_is_not_finished_any_more() -> None:
    strip = given(LSMStripState, "started", "failed")
    assert (strip.finished, strip.succeeded, strip.attempts) == (True, False, 1)
    strip.mark_started()
    assert (strip.finished, strip.processing_finished_at, strip.attempts) == (False, None, 2)
    assert strip.processing_started_at == strip.updated_at > minute(2)
    assert strip.created_at == START


def test_completed_is_finished_and_succeeded() -> None:
    strip = given(LSMStripState, "started", "completed")
    assert (strip.finished, strip.succeeded) == (True, True)
    assert (strip.processing_started_at, strip.processing_finished_at) == (minute(1), minute(2))
    assert strip.updated_at == minute(2)


def test_failed_keeps_the_reason_until_the_next_attempt() -> None:
    strip = given(LSMStripState, "started")
    strip.mark_failed("disk full")
    assert [event.model_dump() for event in strip.news] == [{"reason": "disk full"}]
    assert (strip.reason, strip.finished, strip.succeeded) == ("disk full", True, False)
    strip.mark_started()
    assert strip.reason is None


def test_completed_may_become_failed() -> None:
    strip = given(LSMStripState, "completed")
    strip.mark_failed()
    assert strip.processing_state is ProcessingState.FAILED


def test_pending_clears_both_times_and_keeps_the_count() -> None:
    strip = given(LSMStripState, "started", "completed")
    strip.mark_pending()
    assert (strip.processing_started_at, strip.processing_finished_at, strip.attempts) == (None, None, 1)
    assert not strip.finished


@every_level
def test_touch_changes_the_time_alone(kind: type[OpenItem[Any]]) -> None:
    item = given(kind, "completed")
    before = item.state
    item.touch()
    assert item.state.updated_at > before.updated_at
    assert {**item.state.to_dict(), "updated_at": 0} == {**before.to_dict(), "updated_at": 0}


@every_level
@pytest.mark.parametrize("names", [(), ("deleted",)], ids=["never created", "deleted"])
def test_nothing_is_done_to_what_is_not_there(kind: type[OpenItem[Any]], names: tuple[str, ...]) -> None:
    item = given(kind, *names) if names else kind(*KEYS[kind])
    before = item.state
    for change in [
        *MARKS.values(),
        kind.touch,
        *([lambda i: i.set_flag(FLAGS[kind][0])] if FLAGS[kind] else []),
    ]:
        with pytest.raises(MoveNotAllowed, match="from there: pending"):
            change(item)
    assert (item.news, item.state) == ([], before)


@every_level
def test_a_new_life_keeps_only_the_ids(kind: type[OpenItem[Any]]) -> None:
    item = given(kind, "started", *FLAGS[kind], "failed", "deleted")
    assert not item.state.exists
    item.create(under=1 if len(item.key) > 1 else 0, name="P")
    fresh = given(kind).state
    assert item.state.incarnation == 2
    for name in (
        "status",
        "attempts",
        "reason",
        "processing_started_at",
        "processing_finished_at",
        *FLAGS[kind],
    ):
        assert getattr(item.state, name) == getattr(fresh, name)


def test_the_table_knows_every_status() -> None:
    assert set(MOVES.table) == {None, *Status}
    assert set(LIVE) == {Status(state.value) for state in ProcessingState}
    assert all(MOVES.table[status] == set(Status) for status in LIVE)


# Flags.


@pytest.mark.parametrize(("kind", "flag"), EVERY_FLAG)
def test_a_setter_sets_its_flag_and_touches(kind: type[OpenItem[Any]], flag: str) -> None:
    item = given(kind)
    getattr(item, f"set_{flag}")()
    assert [event.topic for event in item.news] == [f"{kind.CATEGORY}.{flag}"]
    assert [name for name in FLAGS[kind] if getattr(item, name)] == [flag]
    assert item.updated_at > START
    assert item.processing_state is ProcessingState.PENDING


@pytest.mark.parametrize("way", ["reset", "set False"])
@pytest.mark.parametrize(("kind", "flag"), EVERY_FLAG)
def test_a_cleared_flag_takes_what_was_made_from_it_along(
    kind: type[OpenItem[Any]], flag: str, way: str
) -> None:
    item = given(kind, *FLAGS[kind])
    getattr(item, f"reset_{flag}")() if way == "reset" else getattr(item, f"set_{flag}")(False)
    (event,) = item.news
    assert isinstance(event, Reset)
    assert (event.topic, event.cleared) == (f"{kind.CATEGORY}.reset", CASCADES[flag])
    assert {name for name in FLAGS[kind] if getattr(item, name)} == {*FLAGS[kind]} - {*CASCADES[flag]}
    assert item.updated_at > minute(len(FLAGS[kind]))


def test_a_cascade_is_replayed_as_it_was_decided() -> None:
    past = [created(LSMStripState), fact(LSMStripState, "compressed"), fact(LSMStripState, "uploaded")]
    old = fact(LSMStripState, "reset", cleared=("compressed", "a flag of other code"))
    strip = LSMStripState(*KEYS[LSMStripState], past=[(event, START) for event in [*past, old]])
    assert (strip.compressed, strip.uploaded) == (False, True)


def test_a_flag_is_only_set_to_true_or_false() -> None:
    strip = given(LSMStripState)
    for value in (1, None, "yes"):
        with pytest.raises(BadInput, match="True or False"):
            strip.set_uploaded(value)
    with pytest.raises(BadInput, match="its flags: compressed, archived, uploaded"):
        strip.set_flag("stitched")
    with pytest.raises(BadInput, match="its flags: none"):
        given(LSMSliceState).reset_flag("uploaded")
    assert strip.news == []


def test_a_field_cannot_be_set_past_the_methods() -> None:
    strip = given(LSMStripState)
    for name in ("archived", "processing_state", "strip_id", "finished"):
        with pytest.raises(AttributeError, match="changed by methods"):
            setattr(strip, name, True)


def test_the_name_of_a_project_is_kept_as_given() -> None:
    project = LSMProjectState("Brain_7")
    project.create(name="Brain_7")
    assert (project.name, project.project_name) == ("lsm.project/brain-7", "Brain_7")
    assert isinstance(project.news[0], ProjectCreated)


def test_an_item_that_was_opened_alone_has_no_tree() -> None:
    with pytest.raises(BadInput, match="open it with the service"):
        given(LSMChannelState).get_strip(1)
