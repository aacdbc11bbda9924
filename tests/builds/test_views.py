"""The views of builds: rows are the states of stages and runs; that of a run counts its stages."""

from __future__ import annotations

from typing import Any

import pytest

import projections.shipped
from ledger import Ledger
from ledger.builds import Dep, How, OpenRun, OpenStage, Out, RunStatus
from ledger.builds.manifests import StageStatus
from ledger.builds.run import Decided, StageFinished
from ledger.builds.stage import StageCompleted
from ledger.domain.known import KNOWN
from projections import Projector, rebuild
from projections.engine.check import ViewCheck
from projections.fold import ALL

HASH = "1f" * 32
VIEWS = ("build_runs", "build_stages")


@pytest.fixture
def projector(log: Ledger) -> Projector:
    projections.shipped.load()
    return Projector(log, [KNOWN.views[name] for name in VIEWS])


def rows(log: Ledger, statement: str) -> list[dict[str, Any]]:
    with log.reader() as connection, connection.cursor() as cursor:
        cursor.execute(statement)  # type: ignore[call-overload]
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_a_row_is_the_state(log: Ledger, projector: Projector) -> None:
    with log.open(OpenStage, "p/q", "fit@a/b") as stage:
        token = stage.claim("host:1", "r1")
    projector.catch_up()
    (row,) = rows(log, "SELECT * FROM ledger_views.build_stages")
    assert (row["project"], row["stage"], row["status"], row["run"], row["runner"]) == (
        "p/q", "fit@a/b", "in_progress", "r1", "host:1",
    )  # fmt: skip
    with log.open(OpenStage, "p/q", "fit@a/b") as stage:
        stage.complete(
            StageCompleted(
                how=How.RAN, run="r1", token=token, input_hash=HASH, deps={"a": Dep(HASH, 1)},
                outs=(Out("b", HASH),), reason="Code changed", duration_ms=7,
            )
        )  # fmt: skip
    projector.catch_up()
    (row,) = rows(log, "SELECT * FROM ledger_views.build_stages")
    assert (row["status"], row["run"], row["since"], row["completed_in"]) == ("completed", None, None, "r1")
    assert (row["how"], row["input_hash"], row["reason"], row["duration_ms"]) == (
        "ran",
        HASH,
        "Code changed",
        7,
    )
    assert (row["state"]["generations"], row["version"]) == ({"a": 1}, 2)


def test_w4_12_a_run_shows_its_progress_after_each_event(log: Ledger, projector: Projector) -> None:
    def progress() -> tuple[Any, ...]:
        projector.catch_up()
        (row,) = rows(log, "SELECT * FROM ledger_views.build_progress")
        return tuple(row[name] for name in ("present", "running", "done", "failed", "total", "percent"))

    with log.open(OpenRun, "p", "r1") as run:
        run.start(order=["a", "b", "c", "d"])
        run.skip([Decided("a", "lock", "unchanged", HASH)])
        run.start_stage("b")
        run.start_stage("c")
    assert progress() == (3, 2, 1, 0, 4, 25)
    with log.open(OpenRun, "p", "r1") as run:
        run.finish_stage(StageFinished(stage="b", status=StageStatus.RAN, duration_ms=3))
        run.finish_stage(StageFinished(stage="c", status=StageStatus.FAILED, duration_ms=4))
    assert progress() == (3, 0, 2, 1, 4, 50)
    with log.open(OpenRun, "p", "r1") as run:
        run.end()
    projector.catch_up()
    (row,) = rows(log, "SELECT * FROM ledger_views.build_runs")
    assert (row["project"], row["run"], row["status"], row["duration_ms"]) == ("p", "r1", RunStatus.FAILED, 7)
    assert row["ended_at"] > row["started_at"]
    with log.open(OpenRun, "p", "r1") as run:
        run.drop("retention")
    projector.catch_up()
    assert rows(log, "SELECT * FROM ledger_views.build_progress") == []
    assert [row["status"] for row in rows(log, "SELECT * FROM ledger_views.build_runs")] == ["dropped"]


def test_the_views_are_what_a_rebuild_makes(log: Ledger, projector: Projector) -> None:
    for name in ("r1", "r2"):
        with log.open(OpenRun, "p", name) as run:
            run.start(order=["a"])
        with log.open(OpenStage, "p", name) as stage:
            stage.record_generations({"x": 1})
    projector.catch_up()
    for name in VIEWS:
        view = KNOWN.views[name]
        assert [*ViewCheck(view).differences(log, ALL, lambda _: None)] == []
        assert rebuild(log, view).differences == ()
