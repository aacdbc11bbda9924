"""Artifacts, and the latest of each key."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadRecord, Ledger, RecordExists, RecordNotFound
from ledger.runs.artifacts import Artifacts, collection_id
from ledger.runs.records import Record

_numbers = count(1)


@pytest.fixture
def artifacts(shared: Ledger) -> Artifacts:
    return Artifacts(shared)


@pytest.fixture
def key() -> str:
    return f"report-{next(_numbers)}"


def test_the_latest_of_a_key_has_the_fields_of_the_newest(artifacts: Artifacts, key: str) -> None:
    first = artifacts.create({"key": key, "data": "one", "type": "markdown"})
    second = artifacts.create({"key": key, "data": "two", "metadata_": {"a": "b"}})
    latest = artifacts.latest(key)
    assert (latest.id, latest["latest_id"]) == (collection_id(key), second.id)
    assert dict(latest.fields) == {**second.fields, "latest_id": second.id}
    assert artifacts.get(first.id) == first


def test_a_deletion_goes_back_to_the_newest_that_is_left(artifacts: Artifacts, key: str) -> None:
    first, second, third = (artifacts.create({"key": key, "data": n}) for n in range(3))
    artifacts.delete(second.id)
    assert artifacts.latest(key)["latest_id"] == third.id
    artifacts.delete(third.id)
    assert artifacts.latest(key)["data"] == 0
    artifacts.delete(first.id)
    with pytest.raises(RecordNotFound):
        artifacts.latest(key)
    with pytest.raises(RecordNotFound):
        artifacts.delete(first.id)
    again = artifacts.create({"key": key, "data": 7})
    assert artifacts.latest(key)["latest_id"] == again.id


def test_a_change_of_the_latest_changes_its_copy(artifacts: Artifacts, key: str) -> None:
    first, second = (artifacts.create({"key": key, "data": n}) for n in range(2))
    artifacts.change(second.id, {"description": "done"})
    artifacts.change(first.id, {"description": "old"})
    assert artifacts.latest(key)["description"] == "done"


def test_an_artifact_without_a_key_has_no_collection(artifacts: Artifacts) -> None:
    made = artifacts.create({"data": float("nan")})
    assert artifacts.change(made.id, {"data": [1]})["data"] == (1,)
    artifacts.delete(made.id)
    with pytest.raises(RecordExists):
        artifacts.create({}, id=artifacts.create({}).id)


def test_an_artifact_is_recorded_with_what_made_it(artifacts: Artifacts, shared: Ledger, key: str) -> None:
    shared.append_all(artifacts.appends_of_create({"key": key, "type": "result", "data": {"x": 1}}))
    assert artifacts.latest(key)["data"] == {"x": 1}
    assert len(artifacts.appends_of_create({"data": 1})) == 1


def test_an_artifact_that_does_not_fit_is_refused(artifacts: Artifacts, key: str) -> None:
    with pytest.raises(BadRecord):
        artifacts.create({"key": "Not a slug"})
    with pytest.raises(BadRecord):
        artifacts.create({"key": key, "metadata_": {"a": 1}})


def test_writers_at_the_same_time_lose_no_artifact_and_agree_on_the_latest(
    artifacts: Artifacts, key: str
) -> None:
    made: list[Record] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(artifacts.create({"key": key, "data": n})))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = artifacts.ledger.read(f"artifact_collection/{collection_id(key)}")
    assert len(events) == len(made) == 4
    assert f'"latest_id": "{artifacts.latest(key)["latest_id"]}"' in str(events[-1].data)


def test_two_deletions_at_the_same_time_never_choose_a_deleted_artifact(
    artifacts: Artifacts, key: str
) -> None:
    for _ in range(8):
        first, second, third = (artifacts.create({"key": key, "data": n}) for n in range(3))
        start = threading.Barrier(2)

        def delete(id: str, start: threading.Barrier = start) -> None:
            start.wait()
            artifacts.delete(id)

        threads = [threading.Thread(target=delete, args=[one.id]) for one in (second, third)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert artifacts.latest(key)["latest_id"] == first.id


@settings(max_examples=15, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=12))
def test_law_the_latest_is_the_newest_that_is_not_deleted(shared: Ledger, steps: list[int | None]) -> None:
    """None creates one; a number deletes one of those that are left."""
    artifacts, key = Artifacts(shared), f"law-{next(_numbers)}"
    left: list[Any] = []
    for step in steps:
        if step is None:
            left.append(artifacts.create({"key": key, "data": len(left)}).id)
        elif left:
            artifacts.delete(left.pop(step % len(left)))
        if left:
            assert artifacts.latest(key)["latest_id"] == left[-1]
        else:
            with pytest.raises(RecordNotFound):
                artifacts.latest(key)
