"""`dev.py test` runs a few failed tests again, alone; a defect fails twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dev


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pytest notes what failed."""
    monkeypatch.setattr(dev, "LAST_FAILED", str(tmp_path / "lastfailed"))
    return tmp_path / "lastfailed"


def suite(folder: Path, passes_on_run: int) -> str:
    """A test that fails until it is run for the nth time; its name."""
    place = folder / f"test_run_{passes_on_run}.py"
    place.write_text(
        "from pathlib import Path\n"
        "def test_it():\n"
        f"    runs = Path({str(folder / 'runs')!r})\n"
        "    runs.write_text((runs.read_text() if runs.exists() else '') + 'x')\n"
        f"    assert len(runs.read_text()) >= {passes_on_run}\n"
    )
    return f"{place}::test_it"


@pytest.mark.parametrize(("passes_on_run", "code"), [(1, 0), (2, 1)])
def test_what_failed_is_run_once_more(failed: Path, tmp_path: Path, passes_on_run: int, code: int) -> None:
    failed.write_text(json.dumps({suite(tmp_path, passes_on_run): True}))
    assert dev.again_alone() == code
    assert (tmp_path / "runs").read_text() == "x"


def test_many_failures_are_no_accident(failed: Path, tmp_path: Path) -> None:
    name = suite(tmp_path, 1)
    failed.write_text(json.dumps({f"{name}[{nth}]": True for nth in range(dev.MOST_AGAIN + 1)}))
    assert dev.again_alone() == 1
    assert not (tmp_path / "runs").exists()


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
