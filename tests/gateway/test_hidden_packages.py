"""Somebody else's `consumers.py` or `gateway/` on Python's path: one sentence that names the file."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest

from gateway.cli.entry import OURS
from tests.gateway.conftest import ROOT, Ended, environment

Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def pledger(installed: Path) -> Run:
    """Run the command that the wheel installs, with folders before it on Python's path."""
    scripts = ConfigParser()
    (metadata,) = installed.glob("*.dist-info/entry_points.txt")
    scripts.read(metadata)
    module, _, function = scripts["console_scripts"]["pledger"].partition(":")
    script = f"import sys; from {module} import {function}; sys.exit({function}())"

    def run(*words: str, before: Path | None = None) -> Ended:
        path = ":".join(str(folder) for folder in (before, installed) if folder)
        command = [sys.executable, "-P", "-c", script, *words]
        done = subprocess.run(
            command, env=environment(PYTHONPATH=path), cwd="/", capture_output=True, text=True, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.parametrize("package", OURS)
@pytest.mark.parametrize("kind", ["module", "folder"])
def test_a_package_that_hides_ours_is_named(package: str, kind: str, pledger: Run, tmp_path: Path) -> None:
    theirs = tmp_path / (f"{package}.py" if kind == "module" else f"{package}/__init__.py")
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("raise SystemExit('this is not ours')\n", encoding="utf-8")
    for command in (["--version"], ["streams"]):
        ended = pledger(*command, before=tmp_path)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            f"pledger: {theirs} hides the package `{package}` of pipeline-ledger: rename it, or remove its "
            f"folder from PYTHONPATH\n"
        )
    told = pledger("streams", "--json", before=tmp_path).error
    assert (told["error"], told["exit"], told["parts"]["file"]) == ("HiddenPackage", 2, str(theirs))


def test_one_of_another_version_of_ours_is_named_too(pledger: Run, tmp_path: Path) -> None:
    """It has the file that ours has, but the other three are elsewhere."""
    (tmp_path / "consumers").mkdir()
    for name in ("__init__.py", "reactor.py"):
        (tmp_path / "consumers" / name).write_text("")
    assert f"{tmp_path}/consumers/__init__.py hides" in pledger("--version", before=tmp_path).err


def test_what_hides_nothing_does_no_harm(pledger: Run, tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()  # a folder without a module hides no package
    (tmp_path / "my_consumers.py").write_text("")
    ended = pledger("--version", before=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("pledger ")


def test_a_package_that_is_missing_is_named(installed: Path, tmp_path: Path) -> None:
    code = "import sys, pledger; pledger.OURS = {'not_there': 'x.py'}; sys.exit(pledger.main())"
    command = [sys.executable, "-P", "-c", code, "--json"]
    ways = {"env": environment(PYTHONPATH=str(installed)), "cwd": "/"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **ways)  # type: ignore[call-overload]
    assert "`not_there` of pipeline-ledger is missing" in json.loads(done.stderr)["message"]


def test_from_its_sources_it_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "consumers.py").write_text("")
    command = [sys.executable, "-m", "gateway.cli.main", "--version"]
    done = subprocess.run(
        command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "consumers.py hides" in done.stderr) == (2, True), done.stderr
