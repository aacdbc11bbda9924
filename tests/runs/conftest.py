"""One ledger for the tests of runs that only look at records of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ledger
from ledger.embedded import Embedded
from tests.runs.given_reads import World, make
from tests.runs.given_services import Ran
from tests.shared_ledger import shared_ledger


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str) -> Iterator[ledger.Ledger]:
    """One ledger for all tests here that take names and ids of their own."""
    with shared_ledger(postgres, template, "runs") as opened:
        yield opened


@pytest.fixture(scope="session")
def world(postgres: Embedded, template: str) -> Iterator[World]:
    """Runs and records to look at, in a ledger of their own with views."""
    with shared_ledger(postgres, template, "reads") as opened:
        yield make(opened)


@pytest.fixture(scope="module")
def ran(postgres: Embedded, template: str) -> Iterator[Ran]:
    """The services of runs, on a ledger of their own with views."""
    with shared_ledger(postgres, template, "services") as opened:
        yield Ran(opened)
