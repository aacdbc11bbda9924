"""The example of a pipeline in another field: run on a ledger, and all that `pledger` has for it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fork_server import python

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "proteome"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(dsn: str) -> Run:
    """Runs Python in the folder of the example."""

    def run_one(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": f"{ROOT}", "NO_COLOR": "1"}
        ended = subprocess.run(
            [*python(), *arguments], cwd=EXAMPLE, env=env, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == code, ended.stderr
        return ended

    return run_one


@pytest.fixture
def pledger(run: Run) -> Run:
    """Runs `pledger`, which finds the pipeline by the pledger.toml of the folder."""
    return lambda *arguments, code=0: run("-P", "-m", "gateway.cli.main", *arguments, code=code)


def test_the_example_runs_once_and_pledger_has_all_commands_for_it(run: Run, pledger: Run) -> None:
    first = run("digest.py", "--proteins", "3").stdout
    assert "NP_051037.1 by trypsin: 6 peptides can be found" in first
    assert "proteome.protein.ready/chloroplast/3: all its digests are weighed" in first
    assert "- Digests completed: 9/9 (100.0%)" in first
    again = run("digest.py", "--proteins", "4").stdout
    assert "NP_051037.1" not in again, "a second run does only what is still to do"
    assert "proteome.protein.ready/chloroplast/4" in again

    assert "Proteomes: proteins, and their digests by enzymes." in pledger("--help").stdout
    rows = [line.split("\t") for line in pledger("proteome", "show", "chloroplast").stdout.splitlines()]
    assert rows[0] == ["1", "pending", "3", "3", "0", "0", "0", "3", "3", "0", "no"]
    pledger(
        "proteome", "mark", "chloroplast", "digest", "exported", "yes", "--protein", "1", "--digest", "1-2"
    )
    pledger("proteome", "mark", "chloroplast", "protein", "covered", "yes", "--protein", "1")
    report = json.loads(pledger("proteome", "report", "chloroplast", "--json").stdout)
    assert (report["done"], report["total"], report["rows"][0]["exported"]) == (12, 12, 2)
    listing = pledger("proteome", "report", "chloroplast", "--protein", "1").stdout.splitlines()
    assert listing[0].split("\t") == ["1", "completed", "yes", "yes", "yes"]
    assert pledger("proteome", "plan", "chloroplast").stdout == "digests_per_protein\t3\n"

    pledger("proteome", "reset", "chloroplast", "--protein", "2", "--yes")
    missing = pledger("proteome", "show", "chloroplast", "--protein", "2", code=3)
    assert "Protein not found: protein=2" in missing.stderr
    run("digest.py", "--proteins", "4")
    history = pledger("history", "proteome.protein.ready/chloroplast/2").stdout.splitlines()
    assert len(history) == 2, "it was ready twice: before the reset and after it"
    reacted = json.loads(pledger("react", "proteome", "--once", "--json").stdout)
    assert (reacted["reactor"], reacted["facts"]) == ("readiness.proteome", 0)


def test_what_is_known_outside_and_the_stub_of_the_example(run: Run) -> None:
    run("-c", (
        "import proteome\n"
        "from ledger.pipelines import external_names\n"
        "from ledger.pipelines.stub import stub_of\n"
        "assert external_names('proteome.digest.completed') == ('org.example.proteome.digest.processed',)\n"
        "assert stub_of(proteome) == open('proteome.pyi', encoding='utf-8').read(), 'make it anew'\n"
    ))  # fmt: skip
