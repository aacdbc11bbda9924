"""A build file becomes stages with their texts filled in, or a sentence that says what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.builds.build_file import Out, read_build_file
from ledger.errors import BadFile

HEAD = '[project]\nname = "p"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "pledger-build.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def test_a_stage_is_what_its_table_says(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [stages.train]
        command = "python train.py"
        deps = ["./train.py", "data/../data/set/", "ABSOLUTE/x"]
        outs = ["model.bin", {path = "log/", cache = false, incremental = true}]
        code = ["src/model.py:train"]
        """.replace("ABSOLUTE", str(tmp_path)),
    )
    build = read_build_file(tmp_path)
    stage = build.stages["train"]
    assert (build.path, build.root, build.project) == (path, tmp_path, "p")
    assert build.cache == tmp_path / ".pledger/builds/cache"
    assert stage.deps == ("train.py", "data/set/", "x")  # relative to the root, so that it may move (W4-08)
    assert stage.outs == (Out("model.bin"), Out("log/", cache=False, incremental=True))
    assert (stage.command, stage.code) == ("python train.py", ("src/model.py:train",))


def test_foreach_makes_a_stage_of_each_item(tmp_path: Path) -> None:
    written(
        tmp_path,
        """
        [stages.count]
        foreach = ["a", 7]
        command = "count ${item} ${HOME} $${item} $${params.k}"
        [stages.fit]
        foreach = {low = {rate = 0.5, name = "L"}, high = {rate = 2, name = "H"}}
        command = "fit ${item.rate}"
        outs = ["out/${key}-${item.name}.txt"]
        """,
    )
    stages = read_build_file(tmp_path).stages
    assert {name: stage.command for name, stage in stages.items()} == {
        "count@a": "count a ${HOME} ${item} ${params.k}",
        "count@7": "count 7 ${HOME} ${item} ${params.k}",
        "fit@low": "fit 0.5",
        "fit@high": "fit 2",
    }  # fmt: skip
    assert stages["fit@high"].outs == (Out("out/high-H.txt"),)


def test_parameters_come_from_the_file_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text('{"model": {"lr": 0.1}}')
    (tmp_path / "more.toml").write_text("seed = 3")
    (tmp_path / "params.yaml").write_text("on: {deep: [1, 2]}")
    written(
        tmp_path,
        """
        [params]
        k = 3
        names = {first = "ann"}
        unused = 1
        [stages.count]
        command = "count ${params.k} > ${params.names.first}.txt"
        outs = ["${params.names.first}.txt"]
        params = ["more.json:model.lr", "more.toml:seed", "params.yaml:on"]
        """,
    )
    stage = read_build_file(tmp_path).stages["count"]
    assert stage.params == {
        "k": 3, "names.first": "ann", "more.json:model.lr": 0.1, "more.toml:seed": 3,
        "params.yaml:on": {"deep": [1, 2]},
    }  # fmt: skip
    assert stage.command == "count 3 > ann.txt"
    assert stage.template == "count ${params.k} > ${params.names.first}.txt"
    assert stage.outs == (Out("ann.txt"),)


@pytest.mark.parametrize(
    "out",
    [".", "./", "a/..", "..", "/", "../", "ROOT", "ROOT/", "pledger-build.toml", ".pledger", ".pledger/x"],
)
def test_what_holds_the_project_itself_is_no_output(tmp_path: Path, out: str) -> None:
    """The runner deletes outputs before a command runs."""
    path = written(tmp_path, f"[stages.a]\ncommand = 'x'\nouts = ['{out.replace('ROOT', str(tmp_path))}']")
    with pytest.raises(BadFile, match="cannot be an output"):
        read_build_file(path)


@pytest.mark.parametrize(
    ("text", "place", "wrong"),
    [
        ("[stages.a]", "stages.a.command", "required"),
        ("[stages.a]\ncommand = 3", "stages.a.command", "string"),
        ("[stages.a]\ncommand = 'x'\ndep = ['y']", "stages.a.dep", "not permitted"),
        ("[stages.a]\ncommand = '${params.k}'", "stages.a", "no parameter 'k' in [params]"),
        ("[stages.a]\ncommand = 'x'\nparams = ['no.toml:k']", "stages.a", "'no.toml' cannot be read"),
        ("[stages.a]\ncommand = '${item.x}'\nforeach = [1]", "stages.a", "no such field"),
        ("[stages.a]\ncommand = '${item}'", "stages.a", "without foreach has no item"),
        ("[stages.a]\ncommand = 'x'\nforeach = ['b c']", "stages.a", "stage 'a@b c' must be"),
        ("[stages.'a/../b']\ncommand = 'x'", "stages.a/../b", "must not contain the part '..'"),
        ("[stages.a]\ncommand = 'x'\ndeps = ['']", "stages.a", "a path is empty"),
        ("[stages", "", "at end of document"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, place: str, wrong: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadFile) as caught:
        read_build_file(path)
    assert caught.value.place == place
    assert wrong in str(caught.value)
    assert str(path) in str(caught.value)
