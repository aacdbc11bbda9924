"""A pipeline of a user's own (survey.py) through the generic store: spec S0-02 and S0-04 to S0-06."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ledger import Ledger, LockTimeout, split_name
from ledger.pipelines import ProjectStore, enter_flow_stage, milestone
from tests.pipelines.recorded_facts import recorded, words
from tests.pipelines.survey import SURVEYS, FlightId, OpenPhoto, OpenSurvey, PhotoId, SurveyId, SurveyView
from tests.pipelines.survey_scopes import NAME, PHOTO, Scope, every_change, photo_of


@pytest.fixture
def store(log: Ledger) -> ProjectStore:
    return ProjectStore(SURVEYS, log)


def in_thread(work: Callable[[], Any]) -> Any:
    """What the work returns or raises in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=30)


# What was declared.


def test_flags_cascades_and_a_plan_are_as_declared(store: ProjectStore, log: Ledger) -> None:
    with store.locked("meadow") as survey:
        survey.plan(photos_per_flight=40)
        photo = photo_of(survey)
        for name in ("developed", "tagged", "sharpened", "printed"):
            getattr(photo, f"set_{name}")()
        assert (photo.printed, survey.flights[1].photos[2] is photo) == (True, True)
        photo.reset_developed()
    view = store.read("meadow", lambda survey: survey)
    seen = view.flights[1].photos[2]
    assert (seen.developed, seen.tagged, seen.sharpened, seen.printed) == (False,) * 4
    assert view.photos_per_flight == 40
    reset = log.read(NAME)[-1]
    assert reset.event == SURVEYS[2].FACTS.reset(cleared=("developed", "tagged", "sharpened", "printed"))


def test_a_fact_that_only_this_pipeline_knows(store: ProjectStore, log: Ledger) -> None:
    with store.open_item(PHOTO) as photo:
        photo.measure(0.25)
        assert photo.brightness == 0.25
    assert store.peek_item(PHOTO).brightness == 0.25
    assert store.peek_item(PHOTO).to_dict()["brightness"] == 0.25
    assert words(log, NAME) == ["created", "brightness_measured"]


def test_heads_are_the_fold_of_the_events_and_facts_can_be_pickled(store: ProjectStore, log: Ledger) -> None:
    with store.locked("meadow") as survey:
        survey.plan(photos_per_flight=2)
        photo_of(survey).measure(0.5)
        photo_of(survey).set_developed()
        survey.delete(FlightId("meadow", 1))
        photo_of(survey).set_sharpened()
    kinds = {kind.CATEGORY: kind for kind in SURVEYS}
    assert len(log.streams("survey.")) == 3
    for info in log.streams("survey."):
        category, key = split_name(info.stream)
        events = log.read(info.stream)
        folded = kinds[category](*key, past=[(each.event, each.recorded_at) for each in events])
        assert folded.state == log.load(kinds[category], *key).state
        assert [pickle.loads(pickle.dumps(each.event)) for each in events] == [e.event for e in events]


def test_guards_and_milestones_take_the_store(store: ProjectStore) -> None:
    @milestone(store, "developed", ident="photo_id")
    def develop(*, photo_id: PhotoId) -> str:
        return f"{photo_id.photo_id}.tiff"

    decisions = [enter_flow_stage(store, PHOTO).decision.value for _ in range(2)]
    assert decisions == ["started", "skipped"]
    assert [develop(photo_id=PHOTO), develop(photo_id=PHOTO)] == ["2.tiff", None]
    assert store.peek_item(PHOTO).developed


# Loading and looking (S0-02, S0-04).


@pytest.mark.parametrize("look", ["read", "peek"])
def test_an_unknown_project_is_an_empty_view_and_stays_unknown(
    store: ProjectStore, log: Ledger, look: str
) -> None:
    view = getattr(store, look)("No_Body", lambda survey: survey)
    assert view == SurveyView(project_name="No_Body")
    assert (view.exists, view.processing_state, dict(view.flights)) == (False, "pending", {})
    assert recorded(log) == []


@pytest.mark.parametrize("look", ["read", "peek"])
def test_looking_never_writes_and_gives_what_the_reader_returns(
    store: ProjectStore, log: Ledger, look: str
) -> None:
    store.update("meadow", photo_of)
    before = recorded(log)
    assert getattr(store, look)("meadow", lambda survey: [*survey.flights[1].photos]) == [2]
    assert getattr(store, f"{look}_item")(PHOTO).photo_id == 2
    assert getattr(store, f"{look}_item")(PhotoId("meadow", 1, 3)) is None
    with pytest.raises(ZeroDivisionError):
        getattr(store, look)("meadow", lambda survey: 1 / 0)
    with pytest.raises(AttributeError):
        getattr(store, look)("meadow", lambda survey: survey.flights[1].set_stitched())
    with pytest.raises(AttributeError):
        getattr(store, look)("meadow", lambda survey: survey.flights.pop(1))
    assert recorded(log) == before


def test_read_waits_for_an_open_scope_and_peek_does_not(store: ProjectStore) -> None:
    opened, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked("meadow") as survey:
            photo_of(survey).set_developed()
            opened.set()
            assert done.wait(20)

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(hold)
        assert opened.wait(20)
        assert store.peek("meadow", lambda survey: survey.exists) is False
        with pytest.raises(LockTimeout, match=r"survey\.project/meadow is still open elsewhere by tester"):
            store.read("meadow", lambda survey: survey, timeout_seconds=0.05)
        reading = pool.submit(store.read, "meadow", lambda survey: survey.flights[1].photos[2].developed)
        done.set()
        holding.result(timeout=20)
        assert reading.result(timeout=20) is True


# Changing, all or nothing (S0-05, S0-06).


@every_change
def test_what_is_changed_lands_together(store: ProjectStore, log: Ledger, scope: Scope) -> None:
    def change(photo: OpenPhoto) -> None:
        photo.set_developed()
        photo.mark_completed()
        assert recorded(log) == []

    scope(store, change)
    assert words(log, NAME) == ["created", "developed", "completed"]
    assert len({event.recorded_at for event in log.log(0, log.bound())}) == 1


@every_change
def test_an_exception_stores_nothing_and_frees_the_lock(
    store: ProjectStore, log: Ledger, scope: Scope
) -> None:
    def fail(photo: OpenPhoto) -> None:
        photo.set_developed()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scope(store, fail)
    assert recorded(log) == []
    in_thread(lambda: store.update_item(SurveyId("meadow"), lambda survey: None, timeout_seconds=0))


@every_change
def test_a_created_child_is_stored_even_when_nothing_else_is_done(
    store: ProjectStore, log: Ledger, scope: Scope
) -> None:
    for _ in range(2):
        scope(store, lambda photo: None)
    assert [topic for _, topic in recorded(log)] == [f"{kind.CATEGORY}.created" for kind in SURVEYS]


def test_the_getter_runs_under_the_lock(store: ProjectStore) -> None:
    def getter(survey: OpenSurvey) -> OpenPhoto:
        with pytest.raises(LockTimeout):
            in_thread(lambda: store.update("meadow", lambda other: None, timeout_seconds=0))
        return photo_of(survey)

    with store.open("meadow", getter) as photo:
        photo.mark_started()
    assert store.peek_item(PHOTO).attempts == 1


def test_a_getter_that_raises_or_finds_nothing(store: ProjectStore, log: Ledger) -> None:
    with pytest.raises(KeyError), store.open("meadow", lambda survey: survey.flights[7]):
        pytest.fail("the body must not run")
    assert recorded(log) == []
    with store.open("meadow", lambda survey: survey.find(PHOTO)) as nothing:
        assert nothing is None
    assert words(log, "survey.project/meadow") == ["created"]


def test_what_update_and_update_item_return(store: ProjectStore) -> None:
    update: Any = store.update
    assert update("meadow", lambda survey: "not this") is None
    assert store.update_item(PHOTO, lambda photo: photo.photo_id) == 2
