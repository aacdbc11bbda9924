"""The stubs of the pipelines, which are made from their declarations and checked in."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from ledger.pipelines import LSM, OCT, Level, Pipeline, StateService, ident
from ledger.pipelines.stub import main, stub_of
from tests.pipelines import survey, survey_scopes

PIPELINES = pytest.mark.parametrize("pipeline", [LSM, OCT], ids=["lsm", "psoct"])


@PIPELINES
def test_a_stub_is_fresh(pipeline: Pipeline) -> None:
    module = import_module(pipeline.module)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    assert stub.read_text(encoding="utf-8") == stub_of(module), (
        f"make it anew: python -m ledger.pipelines.stub {pipeline.module}"
    )


@PIPELINES
def test_a_stub_has_every_class_and_method_with_its_parameters(pipeline: Pipeline) -> None:
    text = stub_of(import_module(pipeline.module))
    service = next(kind for kind in StateService.__subclasses__() if kind.LEVELS is pipeline)
    for kind in (*pipeline, service):
        assert f"class {kind.__name__}(" in text
        for name, method in vars(kind).items():
            if (
                not name.startswith("_")
                and inspect.isfunction(method)
                and not name.startswith(("set_", "reset_"))
            ):
                assert f"def {name}(" in text
                for each in [*inspect.signature(method).parameters][1:]:
                    assert each in text


def test_every_topic_stands_in_a_stub() -> None:
    text = stub_of(import_module("ledger.pipelines.lsm"))
    for topic in (
        "lsm.strip.completed",
        "lsm.channel.mip_stitched",
        "lsm.channel.ready",
        "lsm.project.planned",
    ):
        assert f'"""{topic}"""' in text


def test_a_stub_is_written_beside_a_module_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stubbed.py").write_text(
        "from ledger.pipelines import Level, Pipeline\n"
        'LEVELS = [Level("run"), Level("lane"), Level("sample"), Level("read"), Level("base")]\n'
        'STUBBED = Pipeline("stubbed", LEVELS)\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    main(["stubbed"])
    assert capsys.readouterr().out.endswith("stubbed.pyi\n")
    text = (tmp_path / "stubbed.pyi").read_text(encoding="utf-8")
    compile(text, "stubbed.pyi", "exec")
    assert "def open_base_by_parts(" in text
    assert "class StubbedReadState(" in text


@pytest.mark.parametrize("module", [ident, inspect], ids=["ours", "another"])
def test_a_module_without_a_pipeline_has_none(module: ModuleType) -> None:
    with pytest.raises(TypeError, match="declares no pipeline"):
        stub_of(module)


def test_a_stub_of_a_pipeline_with_classes_of_the_users() -> None:
    text = stub_of(survey)
    assert "class SurveyPhotoStateView(Item):" in text, "the stub hides what else is in the module"
    vars(survey_scopes)["OTHERS"] = Pipeline(
        "stubby", [Level("project"), survey.SURVEYS.levels[2]], module=survey_scopes.__name__
    )
    text = stub_of(survey_scopes)
    assert "from tests.pipelines.survey import Measured, Photo\n" in text
    assert "class StubbyPhotoStateView(Photo):" in text
    assert "class StubbyPhotoState(Measured):" in text
