"""Each weakness of the original has a test of its name, which the page on builds names."""

from __future__ import annotations

import re
from pathlib import Path

from consumers.builds.state_db import StateDB

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "builds.md"
HERE = Path(__file__).parent


def test_each_weakness_is_on_the_page_with_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| (W4-\d\d) \|.*\| `(test_w4_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert [weakness for weakness, _ in rows] == [f"W4-{nth:02}" for nth in range(1, 16)]
    tests = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
    assert [name for _, name in rows if f"def {name}(" not in tests] == []


def test_the_page_maps_every_method_of_the_store() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Where the original's methods are")[2]
    table = re.findall(r"^\| (`.*`) \|", section.partition("\n## ")[0], re.M)
    named = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    public = {name for name, value in vars(StateDB).items() if callable(value) and not name.startswith("_")}
    assert named == public - {"close"}
