"""The paths and modules that pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.test_public_surface import PAGES

PATH = re.compile(r"`((?:ledger|projections|consumers|gateway|tests)/[\w./-]+)`")
MODULE = re.compile(r"`((?:ledger|projections|consumers|gateway)(?:\.\w+)+)(?:\(\))?`")


def is_module(name: str) -> bool:
    """Whether it is a package, a module, or a name in one."""
    parts = name.split(".")
    return any(
        (ROOT / Path(*parts[:many])).is_dir() or (ROOT / Path(*parts[:many])).with_suffix(".py").is_file()
        for many in range(max(1, len(parts) - 2), len(parts) + 1)
        if many > 1 or len(parts) == 2
    )


def test_what_pages_name_is_there() -> None:
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        wrong += [f"{page.name}: {path}" for path in PATH.findall(text) if not (ROOT / path).exists()]
        names = [name for name in MODULE.findall(text) if not name.endswith(".dlq")]  # a topic of Kafka
        wrong += [f"{page.name}: {name}" for name in names if not is_module(name)]
    assert not wrong, "these are not there (any more):\n" + "\n".join(wrong)


def test_where_things_are_is_answered_by_one_file_each() -> None:
    page = (ROOT / "docs/explanation/house.md").read_text(encoding="utf-8")
    section = page.partition("## Where things are")[2].partition("\n\nThe ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    answers = [row for row in rows if row[0].endswith("?")]
    assert len(answers) == 5
    for question, file, names in answers:
        text = (ROOT / PATH.findall(file)[0]).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^ *(def|class) {name}\b", text, re.M), f"{question} {name} is not in {file}"
