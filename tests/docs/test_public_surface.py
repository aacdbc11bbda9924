"""What a user imports is public, and what is public stands on a page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ledger
from gateway.cli.session import DOMAINS
from ledger import errors
from tests.docs.pages import ROOT
from tests.house.rules import WINGS, public_names

PAGES = [
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "reference" not in path.parts),
    ROOT / "README.md",
]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
PUBLIC, _ = public_names(ROOT)
PACKAGES = {name.rpartition(".")[0] for name in PUBLIC} | {*DOMAINS}
INSIDE = {"docs/how-to/split-a-job-in-batches.md": "consumers.jobs"}
"""Pages that show by hand what a program never does, with the package whose inside they show."""


def imported(page: Path) -> Iterator[str]:
    """What the blocks of a page import of ours, dotted."""
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names if name.name.split(".")[0] in WINGS)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in WINGS:
                yield from (f"{node.module}.{name.name}" for name in node.names)


def test_what_a_page_imports_is_public() -> None:
    wrong = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        inside = f"{INSIDE[name]}." if name in INSIDE else None
        strange = {*imported(page)} - {*PUBLIC, *PACKAGES}
        wrong += [f"{name}: {one}" for one in sorted(strange) if not (inside and one.startswith(inside))]
    assert not wrong, "these are not public:\n" + "\n".join(wrong)


def test_what_is_public_stands_on_a_page() -> None:
    code = " ".join(found for page in PAGES for found in CODE.findall(page.read_text(encoding="utf-8")))
    words = set(re.findall(r"\w+", code))
    wrong = [name for name in PUBLIC if name.rpartition(".")[2] not in words]
    assert not wrong, "these stand on no page: write how they are used, or make them private:\n" + "\n".join(
        wrong
    )


def test_every_error_is_imported_from_the_ledger() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LedgerError)
    }
    assert kinds <= set(ledger.__all__)
