"""One ledger for the tests of runs that only look at records of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ledger
from ledger.embedded import Embedded
from tests.shared_ledger import shared_ledger


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str) -> Iterator[ledger.Ledger]:
    """One ledger for all tests here that take names and ids of their own."""
    with shared_ledger(postgres, template, "runs") as opened:
        yield opened
