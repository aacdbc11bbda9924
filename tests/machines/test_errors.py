"""Errors of machines outlive the process that they were raised in."""

from __future__ import annotations

import pickle

import pytest

from ledger import (
    BadMetadata,
    GuardRefused,
    InvalidState,
    LedgerError,
    StateConstantConflict,
    StreamConflict,
    TransitionConflict,
    TransitionFailed,
    UnknownFlag,
    UnknownMachine,
)

ERRORS = [
    BadMetadata("a", "b", "Model", ["x: wrong"]),
    GuardRefused("door", "a", "b", "has_key", "door.py:5"),
    InvalidState("Invalid state 'x'"),
    StateConstantConflict("A_B", "a-b", "a_b"),
    StreamConflict("door/1", "version 1", 2),
    TransitionConflict("door/1", "version 1", 2, "b", in_transaction=True),
    TransitionFailed("door", "a", "b", ["c"]),
    TransitionFailed("door", None, "b"),
    UnknownFlag("f", "strip", ["g"]),
    UnknownMachine("dor", ["door"]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_handed_back_by_a_worker_process_as_it_was(error: LedgerError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.args, vars(back)) == (
        (type(error), str(error), error.args, vars(error))
    )
    with pytest.raises(type(error)):
        raise back


def test_a_move_from_nothing_says_so() -> None:
    assert str(TransitionFailed("door", None, "b")) == "door: Cannot transition from nothing to 'b'"
