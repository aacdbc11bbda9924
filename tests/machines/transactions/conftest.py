"""One ledger for a module's tests, with a table of the user's own beside it; each takes things of its own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ledger import (
    Ledger,
)
from ledger.embedded import Embedded
from tests.contracts.machines import NUMBERS, ledger_of_its_own
from tests.machines.transactions.orders import Connect, Connection


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    with ledger_of_its_own(postgres, template) as (log, dsn):
        with psycopg.connect(postgres.admin_dsn(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])) as admin:
            admin.execute("CREATE TABLE public.shelf (item text PRIMARY KEY)")
            admin.execute("GRANT ALL ON public.shelf TO PUBLIC")
        yield log, dsn


@pytest.fixture
def log(shared: tuple[Ledger, str]) -> Ledger:
    return shared[0]


@pytest.fixture
def dsn(shared: tuple[Ledger, str]) -> str:
    return shared[1]


@pytest.fixture
def user(connect: Connect) -> Connection:
    """The user's connection, without autocommit."""
    return connect()


@pytest.fixture
def key() -> str:
    return f"PM{next(NUMBERS)}"
