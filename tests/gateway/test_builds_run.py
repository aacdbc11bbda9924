"""`pledger builds run`, `gc`, `verify`, `rebuild` and `import`: what they say, and how they end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.builds.project import opened
from ledger import Ledger
from projections.builds import Fingerprint
from projections.builds.keys import GENERATION, key
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]
FILE = """
[project]
name = "p"
[params]
k = 2
[stages.double]
command = "echo doubled; cat in.txt in.txt > double.txt"
deps = ["in.txt"]
outs = ["double.txt"]
[stages.cut]
command = "head -c ${params.k} double.txt > cut.txt"
deps = ["double.txt"]
outs = ["cut.txt"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a build of two stages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pledger-build.toml").write_text(FILE)
    (tmp_path / "in.txt").write_text("abc")
    return tmp_path


def test_a_run_shows_each_stage_and_what_it_printed(pledger: Pledger, folder: Path) -> None:
    ended = pledger("builds", "run", "--jobs", "1")
    assert (ended.code, [[*row[:2], row[3]] for row in ended.rows]) == (
        0,
        [["double", "ran", "No previous run"], ["cut", "ran", "No previous run"]],
    )
    assert "double | doubled\n" in ended.err
    assert "cut: runs, No previous run\n" in ended.err
    assert "succeeded: 2 ran, " in ended.err
    (folder / "pledger-build.toml").write_text(FILE.replace("k = 2", "k = 1"))
    rows = pledger("builds", "run", "--dry-run", "--json").objects
    assert [(row["stage"], row["status"], row["tier"]) for row in rows] == [
        ("double", "skipped", "lock"),
        ("cut", "would run", None),
    ]
    assert pledger("builds", "run", str(folder), "double").rows == [["double", "skipped", "0.0", "unchanged"]]
    assert [row[1] for row in pledger("builds", "run", "pledger-build.toml", "--force").rows] == [
        "ran",
        "ran",
    ]
    assert pledger("builds", "why", "cut").out.splitlines()[1:] == ["parameter\tk\t2\t1\t"]


def test_a_run_that_fails_ends_with_its_own_code(pledger: Pledger, folder: Path) -> None:
    (folder / "pledger-build.toml").write_text(FILE.replace("echo doubled;", "echo no >&2; exit 3;"))
    ended = pledger("builds", "run")
    assert ended.code == 6
    assert [row[:2] for row in ended.rows] == [["double", "failed"], ["cut", "cancelled"]]
    assert "double | no\n" in ended.err
    assert "failed: 1 failed, 1 cancelled" in ended.err
    assert "it failed: " in pledger("builds", "why", "double").out
    assert [row[1:2] for row in pledger("builds", "history").rows] == [["failed"]]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["nowhere.toml"], "there is no build file "),
        (["nothing"], "nothing"),
    ],
)
def test_a_run_of_what_is_not_there_is_wrong_use(
    pledger: Pledger, folder: Path, words: list[str], wrong: str
) -> None:
    ended = pledger("builds", "run", *words)
    assert ended.code == 2
    assert wrong in ended.err


def test_gc_drops_old_runs_and_what_only_they_needed(pledger: Pledger, folder: Path) -> None:
    for text in ("abc", "xyz", "abc"):
        (folder / "in.txt").write_text(text)
        assert pledger("builds", "run").code == 0
    oldest = pledger("builds", "history", "--json").objects[-1]["run_id"]
    assert pledger("builds", "gc", "--keep", "2", "--dry-run", "--json").objects[0]["runs"] == [oldest]
    (done,) = pledger("builds", "gc", "--keep", "1", "--json").objects
    assert (len(done["runs"]), done["objects"], done["kept"]) == (2, 2, 2)
    assert len(pledger("builds", "history").rows) == 1
    (folder / "cut.txt").unlink()
    assert pledger("builds", "run").rows[1][:2] == ["cut", "skipped"], "restored from the content cache"
    assert pledger("builds", "why", "cut", "--run", oldest).out.startswith("cut ran in ")


def test_verify_finds_what_was_changed_in_the_copy_and_rebuild_mends_it(
    pledger: Pledger, folder: Path, log: Ledger
) -> None:
    pledger("builds", "run")
    ended = pledger("builds", "verify")
    assert (ended.code, ended.out, ended.err) == (0, "", "no differences\n")
    spoil(log, folder)
    ended = pledger("builds", "verify")
    assert (ended.code, len(ended.rows), ended.err) == (1, 1, "1 difference\n")
    assert "build_output/p/cut.txt" in ended.out
    (event,) = pledger("builds", "rebuild", "--json").objects
    assert event["events"] > 4
    assert pledger("builds", "verify").code == 0
    spoil(log, folder)
    assert pledger("builds", "verify", "--repair").rows[0][-1] == "repaired"
    assert pledger("builds", "verify").code == 0


def spoil(log: Ledger, folder: Path) -> None:
    """Delete an entry of the copy."""
    with opened(log, folder) as project:
        project.copy._write("spoil", lambda writer: writer.delete(key(GENERATION, "cut.txt")))


LOCK = """
schema: '2.0'
stages:
  double:
    cmd: cat in.txt in.txt > double.txt
    deps:
    - {path: in.txt, hash: md5, md5: 900150983cd24fb0d6963f7d28e17f72, size: 3}
    outs:
    - {path: double.txt, hash: md5, md5: 440ac85892ca43ad26d44c7ad9d47d3e, size: 6}
"""


def test_an_import_of_dvc_runs_nothing_again(pledger: Pledger, folder: Path) -> None:
    (folder / "pledger-build.toml").unlink()
    (folder / "dvc.lock").write_text(LOCK)
    (folder / "double.txt").write_text("abcabc")
    ended = pledger("builds", "import", "dvc.lock", "--write", "--project", "q")
    assert (ended.code, ended.rows) == (0, [["double", "yes", ""]])
    assert "1 of 1 stages were recorded in project q" in ended.err
    assert pledger("builds", "run").rows == [["double", "skipped", "0.0", "unchanged"]]
    assert pledger("builds", "import", ".").rows == [["double", "known already", ""]]
    assert pledger("builds", "import", "dvc.lock", "--write").code == 2, "the build file is there"


def test_an_import_of_pivot_leaves_out_what_it_cannot_read(pledger: Pledger, folder: Path) -> None:
    stages = folder / ".pivot" / "stages"
    stages.mkdir(parents=True)
    good = "{schema_version: 1, code_manifest: {f: x}, params: {}, deps: [], outs: [], dep_generations: {}}"
    for name, text in {"good": good, "empty": "", "half": "{code_manifest: {f: x}}"}.items():
        (stages / f"{name}.lock").write_text(text)
    ended = pledger("builds", "import", ".")
    assert (ended.code, ended.rows) == (1, [["good", "yes", ""]])
    assert "empty.lock: is no stage lock of pivot: it must be a mapping, and not be empty" in ended.err
    assert "half.lock, params: Field required" in ended.err
    (why,) = pledger("builds", "why", "good", "--json").objects
    assert (why["status"], why["reason"]) == ("completed", "imported from .pivot/stages")
    (folder / "bare").mkdir()
    assert pledger("builds", "import", "nowhere").err == "pledger: nowhere does not exist\n"
    assert "has neither a dvc.lock nor stage locks" in pledger("builds", "import", "bare").err


def test_a_missing_extra_is_named(pledger: Pledger, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "consumers.builds.imports.declared", raising=False)
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    (folder / "dvc.lock").write_text(LOCK)
    ended = pledger("builds", "import", "dvc.lock", "--write")
    assert (ended.code, ended.err) == (
        2,
        "pledger: this needs the extra `builds`: install it as the page on installation says\n",
    )


def test_fingerprints_are_reset(pledger: Pledger, folder: Path, log: Ledger) -> None:
    with opened(log, folder) as project:
        project.copy.save_fingerprints([(Fingerprint("m.py", 1, 2, 3, "f", "3.11", "1"), "a" * 64)], 2**62)
    assert pledger("builds", "reset-fingerprints", "--json").objects == [{"deleted": 1}]
    assert pledger("builds", "reset-fingerprints", "--json").objects == [{"deleted": 0}]
