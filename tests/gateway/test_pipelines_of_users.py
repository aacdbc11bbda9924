"""`pledger NAME …` for pipelines of users, with one level and with many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import Ledger
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]
SEQUENCING = """
from ledger.pipelines import Flag, Level, Pipeline, Ready, Total

SEQUENCING = Pipeline("sequencing", levels=[
    Level("project"),
    Level("run", flags=[Flag("paid")]),
    Level("lane"),
    Level("sample", ready=Ready(), flags=[Flag("aligned", clears=("called",)), Flag("called")]),
    Level("library", "libraries", total=Total("libraries_per_sample"), flags=[Flag("trimmed")]),
])
BOOK = Level("book", flags=[Flag("read_through", short="read")])
SHELVES = Pipeline("shelves", levels=[Level("room"), BOOK])
LAMPS = Pipeline("bare", levels=[Level("thing")])
"""


@pytest.fixture
def own(pledger: Pledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pledger:
    """`pledger` in a folder whose configuration names three pipelines."""
    (tmp_path / "my_pipelines.py").write_text(SEQUENCING)
    (tmp_path / "pledger.toml").write_text('domains = ["my_pipelines"]\npath = ["."]\n')
    monkeypatch.setenv("LEDGER_CONFIG", str(tmp_path / "pledger.toml"))
    return pledger


MAKE = """
import ledger
from ledger.pipelines import PIPELINES, ProjectStore
import my_pipelines
log = ledger.connect()
store = ProjectStore(my_pipelines.SEQUENCING, log)
with store.locked("Run_7") as project:
    for run in (1, 2):
        for library in (1, 2):
            item = project.get_or_create_library(run, 1, 3, library)
    project.runs[1].set_paid()
books = ProjectStore(my_pipelines.SHELVES, log)
with books.locked("attic") as room:
    for book in (1, 2, 3):
        room.get_or_create_book(book)
things = ProjectStore(my_pipelines.LAMPS, log)
things.update("lamp", lambda thing: thing.mark_completed())
log.close()
"""


@pytest.fixture
def made(own: Pledger, dsn: str, log: Ledger, tmp_path: Path) -> Pledger:
    env = os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    subprocess.run([sys.executable, "-c", MAKE], env=env, check=True, timeout=60)
    return own


def test_five_levels_have_all_commands(made: Pledger) -> None:
    shown = made("sequencing", "show", "run-7")
    assert shown.rows == [
        [run, "1", "3", "pending", "2", "0", "0", "0", "2", "0", "no", "no", paid]
        for run, paid in (("1", "yes"), ("2", "no"))
    ]
    path = ["--run", "1", "--lane", "1", "--sample", "3"]
    assert made("sequencing", "mark", "run-7", "library", "trimmed", "y", *path).rows == [["updated", "2"]]
    assert made("sequencing", "mark", "run-7", "library", "completed", *path, "--library", "1-2").code == 0
    rows = made("sequencing", "show", "run-7", *path).rows
    assert [row[:3] for row in rows] == [["1", "completed", "yes"], ["2", "completed", "yes"]]
    assert made("sequencing", "plan", "run-7", "--libraries-per-sample", "2").code == 0
    reacted = json.loads(made("react", "sequencing", "--once", "--json").out)
    assert (reacted["reactor"], reacted["facts"]) == ("readiness.sequencing", 1)
    report = json.loads(made("sequencing", "report", "run-7", "--json").out)
    assert [(row["run_id"], row["sample_id"], row["completed"]) for row in report["rows"]] == [
        (1, 3, 2),
        (2, 3, 0),
    ]
    listing = made("sequencing", "report", "run-7", *path)
    assert [row[:2] for row in listing.rows] == [["1", "completed"], ["2", "completed"]]
    assert (
        "`--lane` is required when"
        in made("sequencing", "report", "run-7", "--run", "1", "--sample", "3").err
    )
    assert (
        "`--lane` is required when `--sample`"
        in made("sequencing", "show", "run-7", "--run", "1", "--sample", "3").err
    )
    gone = json.loads(made("sequencing", "reset", "run-7", "--run", "2", "--yes", "--json").out)
    assert (gone["deleted"], gone["run"], gone["library"]) == (5, 1, 2)


def test_two_levels_and_one(made: Pledger) -> None:
    assert [row[:2] for row in made("shelves", "show", "attic").rows] == [
        ["1", "pending"],
        ["2", "pending"],
        ["3", "pending"],
    ]
    assert made("shelves", "mark", "attic", "book", "read_through", "yes", "--book", "1,3").rows == [
        ["updated", "2"]
    ]
    assert [row[2] for row in made("shelves", "report", "attic").rows] == ["yes", "no", "yes"]
    assert made("shelves", "reset", "attic", "--all", "--yes").rows[0] == ["deleted", "3"]
    assert dict(made("bare", "show", "lamp").rows)["processing_state"] == "completed"
    assert "No such command" in made("bare", "mark", "lamp").err


def test_help_has_them_and_survives_a_module_that_fails(own: Pledger, tmp_path: Path) -> None:
    assert "Projects of sequencing: runs of lanes of samples of libraries." in own("--help").out
    assert (
        "Set the state or a flag of existing runs, lanes, samples and libraries"
        in own("sequencing", "mark", "--help").out
    )
    (tmp_path / "broken_pipelines.py").write_text("1 / 0\n")
    failed = own("--domain", "broken_pipelines", "broken", "show", "run-7")
    assert failed.code == 2
    assert "the domain 'broken_pipelines' cannot be imported: ZeroDivisionError" in failed.err
