"""The reference is what the code says: generated pages are fresh, hand-written lists are complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from ledger.store.recorders import LedgerApplicationRecorder
from tests.docs.markdown import COMMAND
from tests.docs.pages import ROOT
from tests.docs.reference import FOLDER, PACKAGES, error_classes
from tests.house.rules import public_names

VARIABLE = re.compile(r"\bLEDGER_[A-Z][A-Z_]*[A-Z]\b")
OUTSIDE = {"LEDGER_TEST_EXAMPLES"}
"""Variables of the tests themselves, which no user sets."""


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


MAKE = """
import json, sys, psycopg
from tests.docs.reference import all_pages
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    print(json.dumps({page.name: text for page, text in all_pages(connection).items()}))
"""


@pytest.fixture
def made(dsn: str) -> dict[str, str]:
    """The pages as they would be made now, by name; by a process that has seen no other test.

    `int | str` and `str | int` are one type to Python, which keeps whichever it met first.
    """
    ways = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", MAKE, dsn], **ways)  # type: ignore[call-overload]
    pages: dict[str, str] = json.loads(done.stdout)
    return pages


def test_generated_pages_are_fresh_and_no_other_is_unknown(made: dict[str, str]) -> None:
    stale = [name for name, text in made.items() if text_of(f"reference/{name}") != text]
    assert not stale, f"{stale} are not what the code says: write them anew with `{COMMAND}`"
    assert {page.name for page in FOLDER.iterdir()} == {*made, "configuration.md", "prefect-differences.md"}
    assert all(
        COMMAND in text or "gateway.cli.reference" in text
        for name, text in made.items()
        if name.endswith(".md")
    )


def test_every_public_name_is_in_the_reference() -> None:
    packages = {name.rpartition(".")[0] for name in public_names(ROOT)[0]}
    assert packages == set(PACKAGES), (
        "PACKAGES of tests/docs/reference.py names every package with public names"
    )


def test_every_variable_of_the_code_is_documented() -> None:
    folders = ("ledger", "projections", "consumers", "gateway", "docs/examples")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    used = {
        name
        for path in [*code, ROOT / "dev.py"]
        for name in VARIABLE.findall(path.read_text(encoding="utf-8"))
    }
    cells = re.findall(r"^\| ([^|]+) \|", text_of("reference/configuration.md"), re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(LEDGER_[A-Z_]+)`", cell)}
    assert {"LEDGER_DSN", "LEDGER_HOME"} <= used
    assert used - OUTSIDE == listed


def test_every_error_says_what_to_do() -> None:
    text = text_of("how-to/troubleshoot.md")
    told = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert told == list(error_classes()), (
        "docs/how-to/troubleshoot.md has a heading for each error, in their order"
    )


def test_the_recorder_that_the_library_finds_is_ours() -> None:
    """The how-to names it; the test fails where the class moves."""
    assert LedgerApplicationRecorder.__module__ in text_of("how-to/use-the-eventsourcing-library.md")
