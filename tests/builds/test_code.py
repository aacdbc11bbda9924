"""Fingerprints of code: they change with what a function does, and with nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from consumers.builds.build_file import Stage
from consumers.builds.code import code_manifests, fingerprint
from ledger.errors import BadInput
from projections.builds.caches import Fingerprint

SOURCE = '''
"""A module."""
import math
from math import floor as down

RATE = 3
if RATE:
    LIMIT = RATE * 2

def train(data):
    """Train."""
    return clean(data) * math.pi  # a comment

def clean(data):
    return data[:LIMIT]

class Model:
    """A model."""
    def fit(self):
        return down(RATE)
    def show(self):
        return 1

def other():
    return 7
'''


@pytest.mark.parametrize(
    ("old", "new", "train", "fit"),
    [
        ("# a comment", "", False, False),
        ('"""Train."""', '"""Learn."""', False, False),
        ("clean(data) * math.pi", "( clean(data)*math.pi )", False, False),
        ("return 7", "return 8", False, False),
        ("return 1", "return 2", False, False),
        ("data[:LIMIT]", "data[1:LIMIT]", True, False),  # called by train
        ("RATE * 2", "RATE * 4", True, False),
        ("RATE = 3", "RATE = 4", True, True),
        ("import math\n", "import cmath as math\n", True, False),
        ("floor as down", "ceil as down", False, True),
    ],
)
def test_a_fingerprint_changes_with_what_it_uses(old: str, new: str, train: bool, fit: bool) -> None:
    changed = SOURCE.replace(old, new, 1)
    assert changed != SOURCE
    assert (fingerprint(SOURCE, "train") != fingerprint(changed, "train")) is train
    assert (fingerprint(SOURCE, "Model.fit") != fingerprint(changed, "Model.fit")) is fit


@pytest.mark.parametrize(
    ("source", "name"), [("x = 1", "y"), (SOURCE, "Model.no"), (SOURCE, "train.x"), ("(", "x")]
)
def test_what_is_not_there_is_refused(source: str, name: str) -> None:
    with pytest.raises(BadInput):
        fingerprint(source, name)


class Kept:
    """A cache that counts what it did not know."""

    def __init__(self) -> None:
        self.kept: dict[Fingerprint, str] = {}
        self.missed = 0

    def fingerprints(self, wanted: Sequence[Fingerprint]) -> list[str | None]:
        found = [self.kept.get(key) for key in wanted]
        self.missed += found.count(None)
        return found

    def save_fingerprints(self, made: Sequence[tuple[Fingerprint, str]], seen_at: int) -> None:
        self.kept.update(made)


def test_fingerprints_are_made_once_for_a_file_that_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    stages = [
        Stage("a", "run 3", "run ${params.k}", code=("m.py:train", "m.py:other")),
        Stage("b", "x", "x", code=("m.py:train",)),
        Stage("c", "x", "x", code=("no.py:train",)),
        Stage("d", "x", "x", code=("m.py:no",)),
        Stage("e", "x", "x"),
    ]
    cache = Kept()
    found = code_manifests(tmp_path, stages, cache)
    assert found["a"] == {
        "command": "run ${params.k}",
        "m.py:train": fingerprint(SOURCE, "train"),
        "m.py:other": fingerprint(SOURCE, "other"),
    }
    assert found["e"] == {"command": "x"}
    assert str(found["c"]) == "the code no.py:train cannot be read: No such file or directory"
    assert str(found["d"]) == "the code m.py:no: defines no no"
    assert cache.missed == 3
    assert code_manifests(tmp_path, stages[:2], cache) == {name: found[name] for name in ("a", "b")}
    assert cache.missed == 3
