"""One ledger for the tests of builds that only look at a project of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import ledger
from ledger.embedded import Embedded
from tests.shared_ledger import shared_ledger

_numbers = count(1)


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str) -> Iterator[ledger.Ledger]:
    """One ledger for all tests here that take a project of their own."""
    with shared_ledger(postgres, template, "builds") as opened:
        yield opened


@pytest.fixture
def project() -> str:
    """The name of a project that no other test uses."""
    return f"project{next(_numbers)}"
