"""One ledger for the tests of builds that only look at a project of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger.embedded import Embedded

_numbers = count(1)


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str) -> Iterator[ledger.Ledger]:
    """One ledger for all tests here that take a project of their own."""
    name = f"builds_{os.getpid()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    with ledger.connect(postgres.dsn(name), actor="tester") as opened:
        yield opened
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def project() -> str:
    """The name of a project that no other test uses."""
    return f"project{next(_numbers)}"
