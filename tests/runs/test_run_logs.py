"""Logs of runs: in bulk, by filter, with retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ledger import BadRecord, Ledger
from ledger.runs.run_logs import RunLogs

START = datetime(2026, 5, 1, 10, tzinfo=UTC)


@pytest.fixture
def logs(shared: Ledger) -> RunLogs:
    return RunLogs(shared)


def entry(nth: int, message: str = "said", **fields: Any) -> dict[str, Any]:
    at = (START + timedelta(seconds=nth)).isoformat()
    return {"name": "prefect.flow_runs", "level": 20, "message": message, "timestamp": at, **fields}


def messages(logs: RunLogs, run: str, /, **more: Any) -> list[str]:
    return [log["message"] for log in logs.read({"flow_run_id": {"any_": [run]}, **more})]


def test_a_batch_is_written_and_read_by_run_in_the_order_of_time(logs: RunLogs) -> None:
    run, other, task = (str(uuid4()) for _ in range(3))
    batch = [
        entry(2, "third", flow_run_id=run, task_run_id=task, unknown=1),
        entry(0, "first", flow_run_id=run),
        entry(1, "else", flow_run_id=other),
        entry(0, "second \x00", flow_run_id=run),
    ]
    assert logs.write(batch) == 4
    assert logs.write([]) == 0
    assert messages(logs, run) == ["first", "second ", "third"]
    assert messages(logs, run, task_run_id={"is_null_": True}) == ["first", "second "]
    (last,) = logs.read({"flow_run_id": {"any_": [run]}}, newest_first=True, limit=1)
    assert last == {
        "id": last["id"], "created": last["created"], "updated": last["created"], "name": "prefect.flow_runs",
        "level": 20, "message": "third", "timestamp": "2026-05-01T10:00:02Z", "flow_run_id": run,
        "task_run_id": task,
    }  # fmt: skip
    assert messages(logs, run, task_run_id={"any_": [task]}) == ["third"]
    (second,) = logs.read({"flow_run_id": {"any_": [run]}}, offset=1, limit=1)
    assert second["message"] == "second "
    logs.delete(run)
    assert (logs.count({"flow_run_id": {"any_": [run]}}), messages(logs, other)) == (0, ["else"])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"level": {"ge_": 30}}, ["disk full", "crash"]),
        ({"level": {"le_": 30, "ge_": 30}}, ["disk full"]),
        ({"timestamp": {"after_": "2026-05-01 10:00:01+00:00"}}, ["disk full", "crash"]),
        ({"timestamp": {"before_": "2026-05-01T10:00:01Z"}}, ["debug disk", "disk full"]),
        ({"text": {"query": "DISK"}}, ["debug disk", "disk full"]),
        ({"text": {"query": "disk -debug"}}, ["disk full"]),
        ({"text": {"query": '"disk full" crash'}}, ["disk full", "crash"]),
        ({"text": {"query": "+disk +full"}}, ["disk full"]),
        ({"text": {"query": " "}}, ["debug disk", "disk full", "crash"]),
        ({"name": {"any_": ["other"]}}, []),
        ({"name": {"any_": []}}, []),
        ({}, ["debug disk", "disk full", "crash"]),
    ],
)
def test_a_filter_selects(logs: RunLogs, filters: dict[str, Any], found: list[str]) -> None:
    run = str(uuid4())
    said = [("debug disk", 10), ("disk full", 30), ("crash", 50)]
    logs.write([entry(n, text, level=level, flow_run_id=run) for n, (text, level) in enumerate(said)])
    assert messages(logs, run, **filters) == found
    assert logs.count({"flow_run_id": {"any_": [run]}, **filters}) == len(found)


def test_with_or_one_condition_is_enough(logs: RunLogs) -> None:
    one, two = str(uuid4()), str(uuid4())
    logs.write([entry(0, "a", flow_run_id=one), entry(1, "b", task_run_id=two), entry(2, "c")])
    found = logs.read({"operator": "or_", "flow_run_id": {"any_": [one]}, "task_run_id": {"any_": [two]}})
    assert [log["message"] for log in found] == ["a", "b"]


@pytest.mark.parametrize(
    "wrong", [{"level": "loud"}, {"timestamp": "2026-05-01T10:00:00"}, {"flow_run_id": "7"}, {"level": 2**31}]
)
def test_a_batch_with_an_invalid_log_is_refused_whole(logs: RunLogs, wrong: dict[str, Any]) -> None:
    """Spec S3-02: a naive time is refused too."""
    run = str(uuid4())
    with pytest.raises(BadRecord):
        logs.write([entry(0, flow_run_id=run), entry(1, **wrong)])
    assert logs.count({"flow_run_id": {"any_": [run]}}) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"colour": {}}, {"level": {"ge_": "x"}}, {"text": {"query": "x" * 201}}, {"operator": "nor"},
     {"flow_run_id": {"any_": ["x"]}}],
)  # fmt: skip
def test_an_invalid_filter_is_refused(logs: RunLogs, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRecord):
        logs.read(wrong)


def test_old_logs_are_pruned_by_when_they_arrived(log: Ledger) -> None:
    """Not by the time that the client claims, which may be in the future."""
    logs = RunLogs(log)
    logs.write([entry(10**9, "old")])
    (old,) = logs.read()
    between = datetime.fromisoformat(old["created"]) + timedelta(microseconds=1)
    logs.write([entry(0, "new")])
    assert logs.prune(between) == 1
    assert [one["message"] for one in logs.read()] == ["new"]
