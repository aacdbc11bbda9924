"""The generic store of survey.py where scopes meet, and where what is given cannot be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from ledger import (
    NO_LOCKS,
    AlreadyOpen,
    BadInput,
    BadName,
    Ledger,
    StreamConflict,
    WrongIdent,
    retry_conflicts,
)
from ledger.pipelines import LSMStripId, ProjectStore, Started
from tests.pipelines.recorded_facts import recorded, words
from tests.pipelines.survey import SURVEYS, OpenPhoto, OpenSurvey
from tests.pipelines.survey_scopes import NAME, PHOTO, Scope, entered, every_change, photo_of


@pytest.fixture
def store(log: Ledger) -> ProjectStore:
    return ProjectStore(SURVEYS, log)


# Conflicts and threads.


def test_update_decides_again_on_a_conflict(log: Ledger) -> None:
    store, seen = ProjectStore(SURVEYS, log, locks=NO_LOCKS), list[int]()
    store.update_item(PHOTO, lambda photo: None)

    def change(survey: OpenSurvey) -> None:
        photo = photo_of(survey)
        seen.append(photo.attempts)
        if len(seen) < 3:
            ProjectStore(SURVEYS, log, locks=NO_LOCKS).update_item(PHOTO, OpenPhoto.mark_started)
        photo.mark_started()

    store.update("meadow", change)
    assert seen == [0, 1, 2]
    assert store.peek_item(PHOTO).attempts == 3


@pytest.mark.parametrize("whole", [True, False], ids=["update", "update_item"])
@pytest.mark.parametrize("locks", [None, NO_LOCKS], ids=["locks", "no locks"])
def test_the_updates_of_eight_threads_are_all_counted(log: Ledger, whole: bool, locks: Any) -> None:
    store, barrier = ProjectStore(SURVEYS, log, locks=locks), threading.Barrier(8, timeout=30)

    def count() -> None:
        barrier.wait()
        for _ in range(5):
            if whole:
                retry_conflicts(
                    lambda: store.update("meadow", lambda survey: photo_of(survey).mark_started()),
                    attempts=100,
                )
            else:
                retry_conflicts(lambda: store.update_item(PHOTO, OpenPhoto.mark_started), attempts=100)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(count) for _ in range(8)]:
            done.result(timeout=60)
    assert store.peek_item(PHOTO).attempts == 40
    assert sum(isinstance(event.event, Started) for event in log.read(NAME)) == 40
    assert [words(log, name).count("created") for name in ("survey.project/meadow", NAME)] == [1, 1]


def conflict() -> None:
    raise StreamConflict(NAME, "exactly 1", 2)


def test_retry_conflicts_gives_up_with_the_last_conflict() -> None:
    tried = list[int]()

    def work() -> None:
        tried.append(len(tried))
        conflict()

    with pytest.raises(StreamConflict):
        retry_conflicts(work, attempts=3)
    assert tried == [0, 1, 2]
    assert retry_conflicts(lambda: len(tried)) == 3


def test_retry_conflicts_repeats_nothing_else() -> None:
    tried = list[int]()

    def work() -> None:
        tried.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        retry_conflicts(work)
    assert tried == [1]
    with pytest.raises(BadInput, match="attempts 0 must be an integer, 1 or more"):
        retry_conflicts(work, attempts=0)


# What cannot be.


@every_change
def test_a_scope_within_a_scope_is_refused(store: ProjectStore, log: Ledger, scope: Scope) -> None:
    with store.locked("meadow"), pytest.raises(AlreadyOpen, match=r"the scope of survey\.project/meadow"):
        scope(store, lambda photo: None)
    assert words(log, "survey.project/meadow") == ["created"]


def refused_everywhere(calls: list[Callable[[Any], Any]], given: list[Any], error: type[Exception]) -> None:
    for call, value in product(calls, given):
        with pytest.raises(error):
            call(value)


def test_what_cannot_be_is_refused_everywhere(store: ProjectStore, log: Ledger) -> None:
    by_name: list[Callable[[Any], Any]] = [
        lambda name: entered(store.locked(name), lambda survey: None),
        lambda name: entered(store.open(name, lambda survey: survey), lambda survey: None),
        lambda name: store.update(name, lambda survey: None),
        lambda name: store.read(name, lambda survey: survey),
        lambda name: store.peek(name, lambda survey: survey),
    ]
    refused_everywhere(by_name, ["", 7, None, "a\0b", "\ud800", "x" * 1001], BadName)
    by_ident: list[Callable[[Any], Any]] = [
        lambda ident: entered(store.open_item(ident), lambda photo: None),
        lambda ident: store.update_item(ident, lambda photo: None),
        lambda ident: store.read_item(ident),
        lambda ident: store.peek_item(ident),
    ]
    refused_everywhere(by_ident, [LSMStripId("meadow", 1, 1, 2), "meadow", None, PHOTO.key], WrongIdent)
    in_time: list[Callable[[Any], Any]] = [
        lambda seconds: store.update("meadow", lambda survey: None, timeout_seconds=seconds),
        lambda seconds: store.read("meadow", lambda survey: survey, timeout_seconds=seconds),
        lambda seconds: store.read_item(PHOTO, timeout_seconds=seconds),
        lambda seconds: entered(store.open_item(PHOTO, timeout_seconds=seconds), lambda photo: None),
    ]
    refused_everywhere(in_time, [-1, float("nan"), "1", True], BadInput)
    assert recorded(log) == []
