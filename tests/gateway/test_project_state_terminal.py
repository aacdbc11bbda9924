"""The commands of the pipelines as a person sees them, and what they declare."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from gateway.cli.main import main
from gateway.cli.pipelines.options import parts_of
from ledger import Ledger
from ledger.pipelines import LSM, OCT, Pipeline, enter_milestone_stage
from tests.gateway.projects import fill, options, path, pipelines

Terminal = Callable[..., str]
HOSTILE = "évil\x1b[31m\n_name\u202e"


@pytest.fixture
def terminal(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Run a command in this process as on a terminal of so many columns; what it shows there."""
    monkeypatch.setenv("LEDGER_DSN", dsn)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(columns: int, *arguments: str) -> str:
        capsys.readouterr()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert main(arguments) == 0
        return capsys.readouterr().out

    return run


def commands(pipeline: Pipeline, project: str) -> list[list[str]]:
    """Every command that shows something, on each of its levels."""
    top, _, leaf = pipeline.names
    part = parts_of(pipeline)[-1]
    expected = f"--{next(iter(pipeline.totals)).replace('_', '-')}"
    shown = [["show", project, *options(pipeline, *(1, 2, 3)[:depth])] for depth in range(4)]
    reports = [["report", project, expected, "4"], ["report", project, expected, "4", f"--{part}", "1"]]
    if part != top:
        reports[1] += [f"--{top}", "1"]
    mark = ["mark", project, leaf, "failed", "--reason", HOSTILE, *options(pipeline, 1, 2)]
    return [
        mark,
        ["reset", project, "--all", "--dry-run"],
        *shown,
        *reports,
        ["plan", project, expected, "4"],
        ["plan", project],
    ]


@pipelines
def test_every_line_fits_and_no_character_acts(terminal: Terminal, log: Ledger, pipeline: Pipeline) -> None:
    fill(log, pipeline, HOSTILE)
    for command in commands(pipeline, HOSTILE):
        for columns in (40, 120):
            shown = terminal(columns, pipeline.name, *command, "--no-color")
            assert shown.strip()
            assert max(map(len, shown.splitlines())) <= columns, command
            assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        for line in terminal(80, pipeline.name, *command, "--json").splitlines():
            assert "\x1b" not in line


def test_a_bar_is_read_with_and_without_colours(terminal: Terminal, log: Ledger) -> None:
    fill(log, LSM)
    strip = ("lsm", "mark", "brain_7", "strip", "--slice", "1", "--channel", "2", "--strip")
    terminal(80, *strip, "1-2", "completed")
    terminal(80, *strip, "3", "failed")
    terminal(80, "lsm", "plan", "brain_7", "--strips-per-slice", "4")
    plain = terminal(80, "lsm", "report", "brain_7", "--no-color")
    assert "Overall completed strip slots: 2/16 (12.5%)" in plain
    (row,) = [line.split() for line in plain.splitlines() if "50.0%" in line]
    assert row == ["1", "2", "4", "0", "0", "0", "2", "50.0%", "█████××░░"]
    assert "25% -  50% -  75% -  100% -" in plain
    coloured = terminal(120, "lsm", "report", "brain_7")
    assert "\x1b[32m" in coloured
    assert "\x1b[31m" in coloured
    matrix = terminal(80, "lsm", "report", "brain_7", "--slice", "1", "--no-color")
    assert [line.split()[:3] for line in matrix.splitlines() if line.split()[:2] == ["3", "2"]] == [
        ["3", "2", "failed"]
    ]


def test_what_an_item_does_not_have_is_not_shown(terminal: Terminal, log: Ledger) -> None:
    store = fill(log, LSM)
    strip = ("lsm", "show", "brain_7", "--slice", "1", "--channel", "1", "--strip", "1", "--no-color")
    assert "under_way" not in terminal(80, *strip)
    assert "attempts" in terminal(80, *strip)
    enter_milestone_stage(store, LSM.ident("brain_7", path(LSM, 1, 1, 1)), "archived")
    assert re.search(r"under_way +archived", terminal(80, *strip))


def test_an_oct_project_shows_its_slices_too(terminal: Terminal, log: Ledger) -> None:
    fill(log, OCT)
    mark = ("psoct", "mark", "brain_7", "--slice", "2")
    terminal(80, *mark, "slice", "registered", "y")
    terminal(80, *mark, "mosaic", "enface_stitched", "y", "--mosaic", "1")
    terminal(80, *mark, "batch", "enface_processed", "y", "--mosaic", "1", "--batch", "1")
    shown = terminal(160, "psoct", "show", "brain_7", "--no-color")
    (row,) = [line.split() for line in shown.splitlines() if line.split()[:2] == ["2", "1"]]
    assert (row[2], row[4], row[-2:]) == ("pending", "0/3", ["enface", "registered"])
    told = terminal(80, "psoct", "report", "brain_7", "--no-color")
    rows = [line.split() for line in told.splitlines() if line.split()[:2] == ["2", "1"]]
    assert rows == [["2", "1", "3", "0", "0", "0", "0", "1", "0", "░░░░░░░░░░", "enface"]]
    for batch, state in (("1", "completed"), ("2", "running"), ("3", "failed")):
        terminal(80, *mark, "batch", state, "--mosaic", "1", "--batch", batch)
    told = terminal(80, "psoct", "report", "brain_7", "--no-color")
    rows = [line.split() for line in told.splitlines() if line.split()[:2] == ["2", "1"]]
    assert rows == [["2", "1", "3", "3", "1", "1", "0", "1", "0", "███▓▓▓×××", "enface"]]
