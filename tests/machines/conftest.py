"""Places to keep moves in, for tests that share one database: each takes keys of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
import pytest

import ledger
from ledger.embedded import Embedded
from tests.shared_ledger import shared_ledger

_numbers = count(1)


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str) -> Iterator[ledger.Ledger]:
    """One ledger for all tests here that only look at objects of their own."""
    with shared_ledger(postgres, template, "machines") as opened:
        yield opened


@pytest.fixture
def user(shared: ledger.Ledger) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the user's own to the shared ledger's database, outside autocommit."""
    with psycopg.connect(shared.address.conninfo) as opened:
        yield opened


@pytest.fixture
def key() -> str:
    """The key of an object that no other test moves."""
    return f"PM{next(_numbers)}"


@pytest.fixture(params=["ledger", "memory", "transaction"])
def place(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Where the moves are kept: in a ledger, in memory, in a transaction of the user's own."""
    if request.param == "memory":
        yield None
        return
    log: ledger.Ledger = request.getfixturevalue("shared")
    if request.param == "ledger":
        yield log
        return
    with log.transaction(request.getfixturevalue("user")) as joined:
        yield joined
