"""The tutorial pastes into the prompt of Python 3.11, and its domain satisfies a type checker."""

from __future__ import annotations

import codeop
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages

PAGES = {page.name: page.read_text(encoding="utf-8") for page in pages()}
PASTED = [
    pytest.param(block, id=f"{name}-{nth}")
    for name in ("tutorial.md", "README.md")
    for nth, block in enumerate(blocks(PAGES[name]))
    if block.kind == "python" and block.mark != "file"
]


def paste(code: str) -> None:
    """Give the lines to the prompt one by one, as a terminal does; a block ends with an empty line."""
    compiler, open_lines = codeop.CommandCompiler(), list[str]()
    for line in [*code.splitlines(), ""]:
        open_lines.append(line)
        if compiler("\n".join(open_lines), symbol="single") is not None:
            open_lines.clear()
    assert not any(open_lines), f"the prompt waits for more after {open_lines}"


@pytest.mark.parametrize("block", PASTED)
def test_a_block_can_be_pasted(block: Block) -> None:
    paste(block.text)


def test_the_prompt_refuses_what_follows_a_block_at_once() -> None:
    """Negative control."""
    with pytest.raises(SyntaxError):
        paste("with open('x') as file:\n    file.read()\nprint('after')\n")


def test_the_domain_of_the_tutorial_satisfies_mypy(tmp_path: Path) -> None:
    (domain,) = (b for b in blocks(PAGES["tutorial.md"]) if b.value == "freezer.py")
    (tmp_path / "freezer.py").write_text(domain.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"),
         str(tmp_path / "freezer.py")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
