"""
W0-19: the origin's tests were partly dead: one imported a removed module, others patched a lost path.

This weakness is of tests and not of state, so the check is not run on two stores, but on two sets of tests: a
planted one like the origin's, in which each dead test is found, and ours, in which there is none. Looked at
is what does not fail by itself when the tests are collected: imports inside functions, paths that are patched
by name, and tests that cannot fail.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import Ledger
from tests.house.rules import ROOT, WINGS, python_files, read
from tests.pipelines.sides import Side, Weak, both, holds

OURS = (*WINGS, "tests")
PATCHING = {"setattr", "delattr", "patch"}


def dead(path: Path) -> Iterator[str]:
    """What in one file of tests leads nowhere, or cannot fail."""
    for node in ast.walk(read(path)):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0) if module.split(".")[0] in OURS:
                missing = [each.name for each in names if not there(f"{module}.{each.name}")]
                yield from (f"{path.name}:{node.lineno} imports {module}.{name}" for name in missing)
            case ast.Import(names=names):
                missing = [e.name for e in names if e.name.split(".")[0] in OURS and not there(e.name)]
                yield from (f"{path.name}:{node.lineno} imports {name}" for name in missing)
            case ast.Call(
                func=ast.Attribute(attr=attr) | ast.Name(id=attr), args=[ast.Constant(str(target)), *_]
            ):
                if attr in PATCHING and target.split(".")[0] in OURS and not there(target):
                    yield f"{path.name}:{node.lineno} patches {target}"
            case ast.FunctionDef(name=name) if name.startswith("test_") and not can_fail(node):
                yield f"{path.name}:{node.lineno} {name} cannot fail"


def there(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    module, *rest = name.split(".")
    found = importlib.import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        try:
            found = importlib.import_module(module)  # first: a package may have a function of a module's name
        except ModuleNotFoundError as error:
            if not hasattr(found, part):
                return not (error.name or "").startswith(OURS)  # a library of an extra is not our matter
            found = getattr(found, part)
    return True


def can_fail(test: ast.FunctionDef) -> bool:
    """Whether a test does anything: it calls something, or asserts what is not a constant."""
    return any(
        isinstance(node, ast.Call)
        or (isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant))
        for statement in test.body
        for node in ast.walk(statement)
    )


PLANTED = {
    "a removed module": "from gateway.lsm_delete import delete",
    "a removed name": "def test_a():\n    from ledger.pipelines import Delete\n    Delete()",
    "a removed module, plainly": "import gateway.lsm_delete",
    "a patched path that is gone": "def test_a(mocker):\n    mocker.patch('ledger.flows.state_guards.peek')",
    "another": "def test_a(monkeypatch):\n    monkeypatch.setattr('gateway.cli.main.peek_strip', None)",
    "nothing in it": "def test_a():\n    '''Some day.'''",
    "a constant": "def test_a():\n    assert True",
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_w0_19_a_dead_test_is_found(tmp_path: Path, text: str) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text(text, encoding="utf-8")
    assert len([*dead(planted)]) == 1


@pytest.mark.long
def test_w0_19_no_test_of_ours_is_dead() -> None:
    found = [wrong for path in python_files(ROOT, "tests") for wrong in dead(path)]
    assert found == []


def test_w0_19_a_check_that_does_not_fail_on_the_origin_is_found(
    log: Ledger, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    def wrong(side: Side) -> None:
        assert type(side).__name__ == "Ours", "the check is wrong, and shows no weakness"

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        both(lambda side: None)("origin", log, dsn, connection)
    with pytest.raises(AssertionError, match="the check is wrong"):
        both(wrong)("origin", log, dsn, connection)
    with pytest.raises(Weak, match="weak here too"):
        both(lambda side: holds(False, "weak here too"))("ours", log, dsn, connection)


def test_w0_19_every_weakness_has_a_test() -> None:
    """Each of W0-01 to W0-20 is in the name of a test; where its check runs on both sides, `both` says so."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/pipelines").glob("test_weak*.py")
    )
    assert [n for n in range(1, 21) if f"def test_w0_{n:02}_" not in text] == []
    on_both = {n for n in range(1, 21) if f"@both\ndef test_w0_{n:02}_" in text}
    assert {*range(1, 21)} - on_both == {19}, "a test of W0-19 itself is in this file"
