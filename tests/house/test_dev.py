"""`dev.py test` runs a few failed tests again, alone; a defect fails twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dev


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pytest notes what failed of the tests in this folder, which `dev.py` runs here."""
    noted, run = tmp_path / ".pytest_cache/v/cache/lastfailed", dev.run
    noted.parent.mkdir(parents=True)
    monkeypatch.setattr(dev, "LAST_FAILED", str(noted))
    monkeypatch.setattr(dev, "VENV", sys.prefix)
    monkeypatch.setattr(dev, "PYTHON", sys.executable)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it begins in half of the time
    monkeypatch.setattr(dev, "run", lambda command: run(command, cwd=tmp_path))
    return noted


def suite(folder: Path, passes_on_run: int) -> str:
    """A test that fails until it is run for the nth time; its name."""
    name = f"test_run_{passes_on_run}"
    (folder / f"{name}.py").write_text(
        "from pathlib import Path\n"
        "def test_it():\n"
        f"    runs = Path({str(folder / name)!r})\n"
        "    runs.write_text((runs.read_text() if runs.exists() else '') + 'x')\n"
        f"    assert len(runs.read_text()) >= {passes_on_run}\n"
    )
    return f"{name}.py::test_it"


def test_what_failed_is_run_once_more(
    failed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What failed twice is named last, because a long log is often shown without its beginning."""
    accident, defect = suite(tmp_path, 1), suite(tmp_path, 2)
    failed.write_text(json.dumps({accident: True, defect: True}))
    assert dev.again_alone() == 1
    assert [(tmp_path / f"test_run_{nth}").read_text() for nth in (1, 2)] == ["x", "x"]
    assert capfd.readouterr().err.splitlines()[-2:] == [
        f"dev.py: passed alone, and failed beside the others: {accident}",
        f"dev.py: failed twice: {defect}",
    ]


def test_what_passes_alone_is_named(
    failed: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "run", lambda command: 0)
    failed.write_text(json.dumps({"test_a.py::test_it": True}))
    assert dev.again_alone() == 0
    assert capfd.readouterr().err.splitlines()[1:] == [
        "dev.py: passed alone, and failed beside the others: test_a.py::test_it"
    ]


@pytest.mark.slow  # another process for a rare case
def test_a_second_run_that_a_signal_ends_is_a_failure_of_all(
    failed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_ends.py").write_text("import os\ndef test_it():\n    os.kill(os.getpid(), 11)\n")
    names = ["test_ends.py::test_it", suite(tmp_path, 1)]
    failed.write_text(json.dumps(dict.fromkeys(names, True)))
    assert dev.again_alone() == 128 + 11
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "dev.py: pytest itself was ended by SIGSEGV",
        f"dev.py: failed twice: {' '.join(names)}",
    ]


def test_many_failures_are_no_accident(failed: Path, tmp_path: Path) -> None:
    name = suite(tmp_path, 1)
    failed.write_text(json.dumps({f"{name}[{nth}]": True for nth in range(dev.MOST_AGAIN + 1)}))
    assert dev.again_alone() == 1
    assert not (tmp_path / "test_run_1").exists()


def test_what_uv_made_is_made_anew_where_uv_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an environment has no pip, so the project alone cannot be put in it anew."""
    monkeypatch.setattr(dev, "STAMP", str(tmp_path / "stamp"))
    monkeypatch.setattr(dev, "VENV", str(tmp_path / "venv"))
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    (tmp_path / "stamp").write_text("\n".join([*dev.wanted()[:3], "project of before"]))
    monkeypatch.setattr(dev, "found", lambda: (tmp_path / "stamp").read_text().splitlines())
    made = list[bool]()

    def install(command: list[str], gate: int) -> bool:
        """pip is there once an environment was made with it."""
        made.append(command[1:3] == ["-m", "venv"])
        return any(made)

    monkeypatch.setattr(dev, "install", install)
    dev.make(0)
    assert (tmp_path / "stamp").read_text().splitlines() == dev.wanted()


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ([], ["tests/prefect"]),
        (["-k", "3.8-a"], ["-k", "3.8-a", "tests/prefect"]),
        (["--slow"], ["-m", "", "tests/prefect"]),
        (["tests/prefect/test_scenarios.py"], ["tests/prefect/test_scenarios.py"]),
    ],
)
def test_what_needs_clients_of_prefect_gets_them(
    args: list[str], given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each version has a process of its own, because it has a server of its own."""
    ran = list[list[str]]()
    monkeypatch.setattr(dev, "clients_ready", lambda: ran.append(["clients"]))
    monkeypatch.setattr(dev, "run", lambda command: ran.append(command) or 0)
    assert dev.with_clients(args) == 0
    ready, command = ran
    assert ready == ["clients"]
    assert command[command.index("pytest") :] == [
        "pytest", "--prefect", "-p", "no:randomly", "-n", "2", "--dist", "loadgroup", *given
    ]  # fmt: skip


def test_the_environment_of_a_client_is_made_from_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; and again when its lock has changed. It never touches .venv."""
    monkeypatch.setattr(dev, "PREFECT", str(tmp_path / "clients"))
    monkeypatch.setattr(dev, "PREFECT_VERSIONS", {"3.8": "3.8.8"})
    monkeypatch.setattr(dev, "prefect_lock", lambda version: str(tmp_path / "its.lock"))
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    made = list[list[str]]()

    def install(command: list[str], gate: int) -> bool:
        """What makes an environment makes its folder."""
        if command[1:3] == ["-m", "venv"]:
            Path(command[3]).mkdir(parents=True)
        made.append(command)
        return True

    monkeypatch.setattr(dev, "install", install)
    for text in ("one", "one", "two"):
        (tmp_path / "its.lock").write_text(text)
        dev.clients_ready()
    assert len(made) == 4
    assert all(str(tmp_path / "clients" / "3.8") in " ".join(command) for command in made)
    assert made[1][-2:] == ["-r", str(tmp_path / "its.lock")]
    assert "--require-hashes" in made[1]
