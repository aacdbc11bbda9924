"""Records: created, changed and deleted with versions, under names that only one of them can have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadRecord, Ledger, RecordExists, RecordNotFound, StreamConflict
from ledger.log.append import append_of, append_to
from ledger.runs.json_values import kept, time_text
from ledger.runs.kinds import KINDS
from ledger.runs.records import OpenRecord, Record, Records, open_class
from tests.lamp import LampMade

_numbers = count(1)


@pytest.fixture
def records(shared: Ledger) -> Records:
    return Records(shared)


def fresh(word: str = "name") -> str:
    """A name that no other test uses."""
    return f"{word}-{next(_numbers)}"


# A sample of the fields that a client sends, for each kind.

ID = "0f9a7f0e-3f5b-4a44-8f2e-3a1d6a0c0001"
SAMPLES: dict[str, dict[str, Any]] = {
    "flow": {"name": "etl", "tags": ["a"]},
    "deployment": {"name": "prod", "flow_id": ID, "parameters": {"x": 1}},
    "work_pool": {"name": "pool", "type": "process"},
    "work_queue": {"name": "default", "work_pool_id": ID},
    "worker": {"name": "w 1", "work_pool_id": ID, "status": "ONLINE"},
    "block_type": {"name": "Secret", "slug": "secret"},
    "block_schema": {"checksum": "sha256:00", "fields": {"title": "Secret"}, "block_type_id": ID},
    "block_document": {"name": "token", "block_schema_id": ID, "block_type_id": ID},
    "variable": {"name": "answer", "value": {"deep": [42]}},
    "artifact": {"key": "report", "data": "# Done"},
    "artifact_collection": {"key": "report", "latest_id": ID},
    "concurrency_limit": {"name": "database", "limit": 3},
    "automation": {"name": "alarm", "trigger": {"type": "event"}},
    "saved_search": {
        "name": "late",
        "filters": [{"object": "run", "property": "state", "type": "s", "operation": "=", "value": "Late"}],
    },
    "setting": {"key": "storage", "value": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_created_with_its_defaults_and_read_again(kind: str, records: Records) -> None:
    made = records.create(kind, _own(kind))
    assert records.get(kind, made.id) == made
    assert made.version == 1
    assert set(made.fields) == set(KINDS[kind].fields)
    shown = made.shown()
    assert shown["created"] == shown["updated"] == time_text(made.created)
    assert shown["id"] == made.id
    folded = records.ledger.load(open_class(kind), made.id, version=1)
    assert folded.shown() == made  # the head is the fold of the events
    records.delete(kind, made.id)
    with pytest.raises(RecordNotFound):
        records.get(kind, made.id)


def _own(kind: str) -> dict[str, Any]:
    """The sample of a kind under a unique name of its own."""
    named = {KINDS[kind].unique[-1]: fresh()} if KINDS[kind].unique else {}
    return SAMPLES[kind] | named


def test_what_does_not_fit_the_kind_is_refused_without_a_trace(records: Records) -> None:
    wrong = {"name": "a/b", "value": 1, "color": "red"}
    with pytest.raises(BadRecord) as refused:
        records.create("variable", wrong)
    assert sorted(text.split(":")[0] for text in refused.value.wrong) == ["color", "name"]
    assert "red" not in str(refused.value)
    with pytest.raises(BadRecord, match="tags"):
        records.create("flow", {"name": fresh(), "tags": 3})
    with pytest.raises(BadRecord, match="at most 5000"):
        records.create("variable", {"name": fresh(), "value": "x" * 5001})


def test_numbers_that_json_lacks_become_null_and_naive_times_are_refused(records: Records) -> None:
    """Spec S3-02, S3-03."""
    values = [float("nan"), float("inf"), -float("inf"), -0.0, 1.5]
    made = records.create("variable", {"name": fresh(), "value": values})
    assert records.get("variable", made.id)["value"] == (None, None, None, 0.0, 1.5)
    pool = {"name": fresh(), "last_transitioned_status_at": "2026-05-01T10:00:00+02:00"}
    assert records.create("work_pool", pool)["last_transitioned_status_at"] == "2026-05-01T08:00:00Z"
    with pytest.raises(BadRecord, match="offset"):
        records.create("work_pool", {"name": fresh(), "last_transitioned_status_at": "2026-05-01T10:00:00"})


def test_what_is_nested_too_deep_is_refused(records: Records) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadRecord, match="deeper than 200"):
        records.create("variable", {"name": fresh(), "value": deep})


def test_a_change_records_only_what_differs(records: Records, shared: Ledger) -> None:
    made = records.create("flow", {"name": fresh(), "tags": ["a"]})
    changed = records.change("flow", made.id, {"tags": ["b"], "labels": {}})
    assert (changed.version, changed["tags"]) == (2, ("b",))
    assert changed.updated > made.updated
    assert records.change("flow", made.id, {"tags": ["b"]}).version == 2
    (_, event) = shared.read(f"flow/{made.id}")
    assert event.data == '{"fields": {"tags": ["b"]}}'


def test_a_change_under_an_expected_version_is_refused_when_another_came_first(records: Records) -> None:
    made = records.create("flow", {"name": fresh()})
    records.change("flow", made.id, {"tags": ["b"]}, expected=1)
    with pytest.raises(StreamConflict):
        records.change("flow", made.id, {"tags": ["c"]}, expected=1)
    with pytest.raises(StreamConflict):
        records.delete("flow", made.id, expected=1)


def test_a_name_belongs_to_one_record_and_is_free_again_after_its_deletion(records: Records) -> None:
    name = fresh()
    first = records.create("variable", {"name": name, "value": 1})
    with pytest.raises(RecordExists) as refused:
        records.create("variable", {"name": name, "value": 2})
    assert (refused.value.id, refused.value.name) == (first.id, (name,))
    assert records.named("variable", name).id == first.id
    records.delete("variable", first.id)
    with pytest.raises(RecordNotFound):
        records.named("variable", name)
    assert records.create("variable", {"name": name, "value": 3}).id != first.id


def test_a_renamed_record_frees_its_old_name(records: Records) -> None:
    old, new, other = fresh(), fresh(), fresh()
    made = records.create("variable", {"name": old, "value": 1})
    records.create("variable", {"name": other, "value": 1})
    records.change("variable", made.id, {"name": new})
    assert records.names.holder("variable", old) is None
    assert records.names.holder("variable", new) == made.id
    with pytest.raises(RecordExists):
        records.change("variable", made.id, {"name": other})
    assert records.get("variable", made.id)["name"] == new


def test_a_client_may_bring_the_id_but_not_one_that_is_taken(records: Records) -> None:
    id = str(uuid4())
    assert records.create("artifact", {"data": 1}, id=id.upper()).id == id
    with pytest.raises(RecordExists):
        records.create("artifact", {"data": 2}, id=id)
    records.delete("artifact", id)
    again = records.create("artifact", {"data": 3}, id=id)
    assert (again.version, again["data"]) == (3, 3)


def test_an_upsert_creates_changes_or_keeps(records: Records) -> None:
    name = fresh()
    made, new = records.upsert("flow", {"name": name, "tags": ["a"]})
    same, again = records.upsert("flow", {"name": name, "tags": ["b"]}, keep=True)
    assert (new, again, same) == (True, False, made)
    other, _ = records.upsert("flow", {"name": name, "tags": ["b"]})
    assert (other.id, other["tags"]) == (made.id, ("b",))


def test_what_is_appended_with_a_record_is_recorded_with_it_or_not_at_all(
    records: Records, shared: Ledger
) -> None:
    lamp, name = f"lamp/{fresh()}", fresh()
    also = [append_to(lamp, [LampMade()], 0)]
    made = records.create("variable", {"name": name, "value": 1}, also=also)
    with pytest.raises(RecordExists):
        records.create("variable", {"name": name, "value": 1}, also=[append_to(lamp, [LampMade()])])
    with pytest.raises(StreamConflict):
        records.change("variable", made.id, {"value": 2}, also=also)
    assert len(shared.read(lamp)) == 1
    assert records.get("variable", made.id)["value"] == 1


def test_a_change_is_one_append_among_others(records: Records, shared: Ledger) -> None:
    one, two = (records.create("flow", {"name": fresh()}) for _ in range(2))
    appends = [records.append_of_change("flow", made.id, {"tags": ["x"]}) for made in (one, two)]
    shared.append_all([append for append in appends if append is not None])
    assert {records.get("flow", made.id)["tags"] for made in (one, two)} == {("x",)}
    assert records.append_of_change("flow", one.id, {"tags": ["x"]}) is None


def test_the_records_of_a_parent_are_listed_by_name(records: Records) -> None:
    pool = str(uuid4())
    for name in ("b", "a", "c"):
        records.create("work_queue", {"name": name, "work_pool_id": pool})
    records.delete("work_queue", records.named("work_queue", pool, "c").id)
    assert [queue["name"] for queue in records.below("work_queue", pool)] == ["a", "b"]


def test_the_events_of_a_create_are_one_append_and_no_read(records: Records, shared: Ledger) -> None:
    made = records.create("variable", {"name": fresh(), "value": 1})
    (event,) = shared.read(f"run_variable/{made.id}")
    assert [one.stream.split("/")[0] for one in shared.recorded_with(event)] == ["run_variable", "run_name"]


@pytest.mark.parametrize("upsert", [False, True])
def test_of_two_creators_of_one_name_only_one_succeeds(records: Records, upsert: bool) -> None:
    name, start, found = fresh(), threading.Barrier(4), []

    def make() -> None:
        start.wait()
        try:
            if upsert:
                found.append(records.upsert("flow", {"name": name}))
            else:
                found.append((records.create("flow", {"name": name}), True))
        except RecordExists as refused:
            found.append((records.get("flow", refused.id), False))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new for _, new in found) == [False, False, False, True]
    assert len({made.id for made, _ in found}) == 1


steps = st.lists(
    st.tuples(st.sampled_from("cdro"), st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=14
)


@settings(max_examples=25, deadline=None)
@given(steps)
def test_law_a_name_is_held_by_exactly_the_record_that_bears_it(
    shared: Ledger, steps: list[tuple[str, int, int, bool]]
) -> None:
    """Under any interleaving of two writers, the second of which decided before the first one appended."""
    names = [fresh() for _ in range(3)]
    records, ids = Records(shared), [str(uuid4()) for _ in range(3)]
    for what, which, name, late in steps:
        opened = _decided(records, what, ids[which], names[name])
        if late:  # the other writer comes first
            _tried(partial(records.upsert, "variable", {"name": names[name], "value": 0}))
        if opened is not None:
            _tried(partial(shared.append_all, [append_of(one) for one in opened]))
    for name in names:
        holder = records.names.holder("variable", name)
        if holder is not None:
            assert records.get("variable", holder)["name"] == name
    for id in ids:
        opened_now = records.open("variable", id)
        if opened_now.is_present:
            assert records.names.holder("variable", opened_now.state.fields["name"]) == id


def _decided(records: Records, what: str, id: str, name: str) -> list[Any] | None:
    """The opened streams of a decision that is not appended yet; None where it was refused."""
    opened: OpenRecord = records.open("variable", id)
    before = opened.unique_name
    try:
        match what:
            case "c":
                opened.create({"name": name, "value": 1})
            case "d":
                opened.delete()
            case _:
                opened.change({"name": name})
        changed = [one for one in (opened, *records._renamed(opened, before)) if one.news]
        return changed or None
    except (RecordExists, RecordNotFound):
        return None


def _tried(action: Callable[[], object]) -> None:
    with suppress(RecordExists, StreamConflict):
        action()


def test_a_deleted_record_keeps_its_fields_in_the_log(records: Records, shared: Ledger) -> None:
    made = records.create("flow", {"name": fresh()})
    deleted = records.delete("flow", made.id)
    assert deleted == Record("flow", made.id, 2, made.created, deleted.updated, made.fields, deleted=True)
    before = shared.load(open_class("flow"), made.id, version=1)
    assert before.shown() == made


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text("ab", max_size=2), st.lists, max_leaves=5)
)
def test_law_what_is_kept_is_kept_again_unchanged(value: Any) -> None:
    assert kept(kept(value)) == kept(value)
