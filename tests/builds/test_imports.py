"""Lock files of DVC and pivot: what is read of them, what is refused, and what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from consumers.builds.build_file import read_build_file
from consumers.builds.hashing import identity_of
from consumers.builds.imports.declared import build_file
from consumers.builds.imports.dvc import read_dvc_lock
from consumers.builds.imports.locked import LockedPath
from consumers.builds.imports.pivot import find_pivot_locks, read_pivot_lock
from consumers.builds.imports.recorded import record_stages
from consumers.builds.imports.verified import check
from ledger import Ledger
from ledger.builds.output import OpenOutput
from ledger.builds.stage import OpenStage, Out
from ledger.errors import BadFile, BadName
from projections.builds.why import why

DVC_YAML = """\
stages:
  clean:
    cmd: mkdir -p made && sort data/raw.csv > made/clean.csv
    deps: [data/raw.csv, tool.sh]
    outs: [made/clean.csv]
  train:
    cmd:
      - mkdir -p made/model && cat made/clean.csv > made/model/w
      - ls data/images > made/model/names; echo 1 > made/score.json
    deps: [made/clean.csv, data/images]
    params: [lr, solver, train]
    outs: [made/model]
    metrics:
      - made/score.json: {cache: false}
  count:
    foreach: [lines]
    do:
      wdir: sub
      cmd: wc -l ../made/clean.csv > ${item}.txt
      deps: [../made/clean.csv]
      outs: ["${item}.txt"]
"""
PARAMS = "lr: 1e-05\nsolver: on\ntrain:\n  epochs: 3\n  layers: [1, 2]\n"
DVC_LOCK = """\
schema: '2.0'
stages:
  clean:
    cmd: mkdir -p made && sort data/raw.csv > made/clean.csv
    deps:
    - path: data/raw.csv
      hash: md5
      md5: c3c6bc2ae8ece4bd2510dca21225c041
      size: 12
    - path: tool.sh
      hash: md5
      md5: 3e2b31c72181b87149ff995e7202c0e3
      size: 10
      isexec: true
    outs:
    - path: made/clean.csv
      hash: md5
      md5: 1072c6092edfa4127572727073a0bd2d
      size: 12
  train:
    cmd:
    - mkdir -p made/model && cat made/clean.csv > made/model/w
    - ls data/images > made/model/names; echo 1 > made/score.json
    deps:
    - path: data/images
      hash: md5
      md5: 8425bcf63cf09c46a749cc079c4d6a4f.dir
      size: 6
      nfiles: 2
    - path: made/clean.csv
      hash: md5
      md5: 1072c6092edfa4127572727073a0bd2d
      size: 12
    params:
      params.yaml:
        lr: 1e-05
        solver: on
        train:
          epochs: 3
          layers:
          - 1
          - 2
    outs:
    - path: made/model
      hash: md5
      md5: 21461186dc921cd2a150fbb59e0c35ef.dir
      size: 27
      nfiles: 2
    - path: made/score.json
      hash: md5
      md5: b026324c6904b2a9cb4b88d6d61c81d1
      size: 2
  count@lines:
    cmd: wc -l ../made/clean.csv > lines.txt
    deps:
    - path: ../made/clean.csv
      hash: md5
      md5: 1072c6092edfa4127572727073a0bd2d
      size: 12
    outs:
    - path: lines.txt
      hash: md5
      md5: f1ee9779519a9eb33aaeaea66a0351fb
      size: 20
"""
"""Written by DVC 3.67.1."""


@pytest.fixture
def dvc(tmp_path: Path) -> Path:
    """A folder as `dvc repro` has left it: its dvc.lock."""
    for name, text in {
        "dvc.yaml": DVC_YAML, "dvc.lock": DVC_LOCK, "params.yaml": PARAMS, "tool.sh": "#!/bin/sh\n",
        "data/raw.csv": "a,b\n1,2\n3,4\n", "data/images/1.txt": "one", "data/images/z ü.txt": "two",
        "made/clean.csv": "1,2\n3,4\na,b\n", "made/model/w": "1,2\n3,4\na,b\n",
        "made/model/names": "1.txt\nz ü.txt\n", "made/score.json": "1\n",
        "sub/lines.txt": "3 ../made/clean.csv\n",
    }.items():  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "tool.sh").chmod(0o755)
    return tmp_path / "dvc.lock"


def test_the_stages_of_a_dvc_lock_are_read(dvc: Path) -> None:
    clean, train, count = read_dvc_lock(dvc)
    assert (clean.name, train.name, count.name) == ("clean", "train", "count@lines")
    assert clean.deps[1] == LockedPath("tool.sh", "md5:3e2b31c72181b87149ff995e7202c0e3", executable=True)
    assert train.params == {
        "params.yaml:lr": 1e-05, "params.yaml:solver": "on",
        "params.yaml:train": {"epochs": 3, "layers": [1, 2]},
    }  # fmt: skip
    assert train.command == " && ".join(read for read in yaml.safe_load(DVC_YAML)["stages"]["train"]["cmd"])
    assert [out.cached for out in train.outs] == [True, False]
    assert count.folder == dvc.parent / "sub"
    assert [count.identity(dvc.parent, path) for path in (*count.deps, *count.outs)] == [
        "made/clean.csv",
        "sub/lines.txt",
    ]


def test_what_has_not_changed_since_dvc_ran_gets_a_hash_of_ours(dvc: Path) -> None:
    stages = read_dvc_lock(dvc)
    assert all(checked.agrees and ":" not in checked.hash for checked in check(stages).values())
    (dvc.parent / "data" / "images" / "1.txt").write_text("other")
    (dvc.parent / "tool.sh").chmod(0o644)
    (dvc.parent / "made" / "score.json").unlink()
    changed = {
        spot.locked.path: checked.hash for spot, checked in check(stages).items() if not checked.agrees
    }
    assert changed == {
        "tool.sh": "md5:3e2b31c72181b87149ff995e7202c0e3",
        "data/images": "md5:8425bcf63cf09c46a749cc079c4d6a4f.dir",
        "made/score.json": "md5:b026324c6904b2a9cb4b88d6d61c81d1",
    }


def test_a_build_file_of_a_dvc_lock_declares_the_same_stages(dvc: Path) -> None:
    stages = read_dvc_lock(dvc)
    file = dvc.with_name("pledger-build.toml")
    file.write_text(build_file("dvc", dvc.parent, stages), encoding="utf-8")
    read = read_build_file(file).stages
    assert [*read] == [stage.name for stage in stages]
    assert read["count@lines"].command == "cd sub && wc -l ../made/clean.csv > lines.txt"
    assert read["count@lines"].deps == ("made/clean.csv",)
    assert dict(read["train"].params) == stages[1].params
    assert [(out.path, out.cache) for out in read["train"].outs] == [
        ("made/model", True),
        ("made/score.json", False),
    ]


def test_without_dvc_yaml_the_lock_is_enough(dvc: Path) -> None:
    dvc.with_name("dvc.yaml").unlink()
    *_, count = read_dvc_lock(dvc)
    assert count.identity(dvc.parent, count.outs[0]) == "lines.txt"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is no dvc.lock: it must be a mapping"),
        ("stages: []", "is no dvc.lock: it must be a mapping"),
        ("train: {cmd: x}", "schema: must be '2.0'"),
        ("schema: '3.0'\nstages: {}", "schema: must be '2.0'"),
        ("schema: '2.0'\nstages: {a: {deps: []}}", "stages.a.cmd: Field required"),
        ("schema: '2.0'\nstages: {a: {cmd: x, outs: [{md5: y}]}}", "stages.a.outs.0.path: Field required"),
        ("schema: '2.0'\nstages: {a: 1}", "stages.a: Input should be"),
    ],
)
def test_a_bad_dvc_lock_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "dvc.lock"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile) as caught:
        read_dvc_lock(file)
    assert wrong in str(caught.value)


def test_a_stage_whose_name_no_stream_can_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dvc.lock"
    file.write_text("schema: '2.0'\nstages: {'a b': {cmd: x}}", encoding="utf-8")
    with pytest.raises(BadName, match="stage 'a b' must be 1 to 200 letters"):
        read_dvc_lock(file)


def test_a_working_folder_of_a_variable_is_refused(dvc: Path) -> None:
    dvc.with_name("dvc.yaml").write_text(DVC_YAML.replace("wdir: sub", "wdir: ${item}"))
    with pytest.raises(BadFile, match=r"stages\.count@lines\.wdir: depends on a variable"):
        read_dvc_lock(dvc)


def test_a_hash_of_a_remote_store_is_kept_as_it_is(tmp_path: Path) -> None:
    entry = "[{path: 's3://store/a', etag: aBc}, {path: b}, {path: c, md5: 12345678901234567890123456789012}]"
    file = tmp_path / "dvc.lock"
    file.write_text(f"schema: '2.0'\nstages: {{a: {{cmd: x, deps: {entry}}}}}", encoding="utf-8")
    (stage,) = read_dvc_lock(file)
    assert [dep.hash for dep in stage.deps] == [
        "etag:aBc",
        "md5:unknown",
        "md5:12345678901234567890123456789012",
    ]
    assert stage.identity(tmp_path, stage.deps[0]) == "s3://store/a"
    assert "s3://" not in build_file("p", tmp_path, [stage])


# pivot

PIVOT = {
    "schema_version": 1,
    "code_manifest": {"func:helper": "9e107d9d372bb682", "self:train": "e4d909c290d0fb1c"},
    "params": {"learning_rate": 1e-05, "solver": "on"},
    "deps": [
        {"path": "data/images", "hash": "0123456789012345",
         "manifest": [{"relpath": "a.png", "hash": "1e90000000000000", "size": 3, "isexec": False}]},
        {"path": "data/raw.csv", "hash": "aaf4c61ddcc5e8a2"},
    ],
    "outs": [{"path": "models/", "hash": "d3486ae9136e7856", "manifest": []}],
    "dep_generations": {"data/raw.csv": 3},
}  # fmt: skip


def pivot_lock(project: Path, name: str, text: bytes) -> Path:
    file = project / ".pivot" / "stages" / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)
    return file


def test_the_stage_locks_of_pivot_are_read(tmp_path: Path) -> None:
    text = yaml.dump(PIVOT, sort_keys=False).encode()
    files = [pivot_lock(tmp_path, name, text) for name in ("alpha/train@a.b", "train")]
    pivot_lock(tmp_path, "x", b"").with_suffix(".running").write_text("12")
    pivot_lock(tmp_path, "x", b"").unlink()
    assert [*find_pivot_locks(tmp_path)] == files
    first, second = map(read_pivot_lock, files)
    assert (first.name, second.name, first.folder) == ("alpha/train@a.b", "train", tmp_path)
    assert first.code == PIVOT["code_manifest"]
    assert first.params == PIVOT["params"]
    assert [dep.hash for dep in first.deps] == ["xxh64:0123456789012345", "xxh64:aaf4c61ddcc5e8a2"]
    assert first.identity(tmp_path, first.outs[0]) == "models"
    assert first.command is None
    assert all(checked.hash.startswith("xxh64:") for checked in check([first]).values())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"", "it must be a mapping, and not be empty"),
        (b"- a\n", "it must be a mapping, and not be empty"),
        (b"\x80\x81", "byte 0: is no text in UTF-8"),
        (b"a: [", "is no YAML that can be used"),
        *[
            (yaml.dump({**PIVOT, key: None}).encode(), f"{key}: Input should be a valid")
            for key in ("code_manifest", "params", "deps", "outs", "dep_generations")
        ],
        (
            yaml.dump({key: value for key, value in PIVOT.items() if key != "outs"}).encode(),
            "outs: Field required",
        ),
        (yaml.dump({**PIVOT, "schema_version": 2}).encode(), "schema_version: Input should be 1"),
    ],
)
def test_a_bad_stage_lock_of_pivot_is_refused(tmp_path: Path, text: bytes, wrong: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_pivot_lock(pivot_lock(tmp_path, "train", text))
    assert wrong in str(caught.value)


def test_more_keys_of_a_stage_lock_are_ignored(tmp_path: Path) -> None:
    file = pivot_lock(tmp_path, "train", yaml.dump({**PIVOT, "later": [1]}).encode())
    assert read_pivot_lock(file).name == "train"


def test_a_stage_lock_outside_of_its_folder_has_no_name(tmp_path: Path) -> None:
    file = tmp_path / "train.lock"
    file.write_text(yaml.dump(PIVOT), encoding="utf-8")
    with pytest.raises(BadFile, match=r"is not below a folder \.pivot/stages"):
        read_pivot_lock(file)


# Recording


def test_imported_stages_are_recorded_once(log: Ledger, dvc: Path) -> None:
    stages, root = read_dvc_lock(dvc), dvc.parent
    (root / "data" / "raw.csv").write_text("a,b\n")
    run, told = record_stages(log, "dvc", root, stages, check(stages), "dvc.lock")
    assert told == [
        ("clean", True, ("data/raw.csv",)),
        ("train", True, ()),
        ("count@lines", True, ()),
    ]
    assert run is not None
    state = log.load(OpenStage, "dvc", "count@lines").state
    clean = identity_of(root / "made" / "clean.csv").hash
    assert (state.status, state.how, state.completed_in) == ("completed", "imported", run)
    assert dict(state.deps) == {"made/clean.csv": clean}
    assert state.outs == (Out("sub/lines.txt", identity_of(root / "sub" / "lines.txt").hash, False),)
    assert log.load(OpenStage, "dvc", "clean").state.deps["data/raw.csv"].startswith("md5:")
    assert log.load(OpenOutput, "dvc", "made/clean.csv").state.hash == clean
    before = log.bound()
    assert record_stages(log, "dvc", root, stages, check(stages), "dvc.lock") == (
        None,
        [(stage.name, False, differ) for stage, (*_, differ) in zip(stages, told, strict=True)],
    )
    assert log.bound() == before


def test_an_unchanged_stage_is_skipped_by_its_build_file(log: Ledger, dvc: Path) -> None:
    """The completion that is recorded is what the build file of the import declares."""
    stages, root = read_dvc_lock(dvc), dvc.parent
    record_stages(log, "dvc", root, stages, check(stages), "dvc.lock")
    assert why(log, "dvc", "train").reason == "imported from dvc.lock"
