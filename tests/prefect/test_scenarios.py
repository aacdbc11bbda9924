"""An unmodified client of Prefect does on the ledger what it does on Prefect's own server: A to I."""

from __future__ import annotations

import pytest

from tests.prefect.conftest import Results
from tests.prefect.differences import differences
from tests.prefect.normal import flat
from tests.prefect.playing import Played
from tests.prefect.record import expected
from tests.prefect.scenarios import SCENARIOS

LETTERS = [one.letter for one in SCENARIOS]


def listed(letter: str, played: Played, wanted: object) -> str:
    """What differs; empty where nothing does."""
    return "\n".join(differences(letter, flat(wanted), flat(played.models)))


@pytest.mark.parametrize("letter", LETTERS)
def test_the_read_models_are_those_of_prefect(version: str, letter: str, on_the_ledger: Results) -> None:
    """Compared with what Prefect's own server answered when `tests.prefect.record` was run."""
    played = on_the_ledger[letter]()
    assert played.ended.code == 0, played.ended.said[-6000:]
    wrong = listed(letter, played, expected(version, letter))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("letter", LETTERS)
def test_side_by_side(letter: str, on_the_ledger: Results, on_prefect: Results) -> None:
    """Compared with Prefect's own server, played at the same time."""
    here, there = on_the_ledger[letter](), on_prefect[letter]()
    assert (here.ended.code, there.ended.code) == (0, 0), here.ended.said[-3000:] + there.ended.said[-3000:]
    wrong = listed(letter, here, there.models)
    assert not wrong, wrong
