"""A real PostgreSQL for every test: one throw-away server a session, one database a test, from a template."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql

import ledger
from ledger.embedded import Embedded, throwaway
from ledger.log.install import init
from tests.temporary import IN_MEMORY, use_memory

_numbers = count(1)

use_memory()
# While all tests are collected next to nothing becomes garbage, and to look for it takes half of that time.
gc.disable()
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # how long an example takes says more about the machine than about the law
STRATEGY = "FILE_COPY" if IN_MEMORY else "WAL_LOG"
"""How a database is made: to copy files needs two checkpoints, which cost nothing in memory."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=1.0, help="how long each slow campaign runs")
    parser.addoption("--prefect", action="store_true", help="run what needs the environments of Prefect too")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests: one that begins last keeps a single process busy while the others wait."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what was collected, which stays."""
    gc.freeze()
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    return f"postgresql: {os.environ.get('LEDGER_PG_BIN', 'as the embedded server finds it')}"


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Name the signal that ended a process which should have ended well."""
    if op == "==" and type(left) is int and left < 0 and right == 0 and -left in set(signal.Signals):
        return [f"{left} == 0", f"where {left} of a process is the end by {signal.Signals(-left).name}"]
    return None


@pytest.fixture(scope="session")
def minutes(pytestconfig: pytest.Config) -> float:
    """How long a slow campaign runs."""
    return float(pytestconfig.getoption("--minutes"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Embedded]:
    """One server for the whole session; not durable, because its data is thrown away."""
    with throwaway() as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres: Embedded) -> str:
    """A database with an installed ledger, to clone from."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE ledger_template")
    with psycopg.connect(postgres.dsn("ledger_template"), autocommit=True) as connection:
        init(connection)
    return "ledger_template"


class _Maker:
    """Makes and drops databases on connections that it keeps: to open one costs a fifth of a database."""

    def __init__(self, postgres: Embedded) -> None:
        self._ways = {"user": postgres.dsn, "admin": postgres.admin_dsn}
        self._kept: dict[str, psycopg.Connection[Any]] = {}

    def run(self, who: str, statement: str, *names: str) -> None:
        """A statement with names in it, as the everyday role or the superuser; once more after a crash."""
        text = sql.SQL(statement).format(*map(sql.Identifier, names))  # type: ignore[arg-type]
        for fresh in (False, True):
            try:
                self._connection(who, fresh).execute(text)
                return
            except psycopg.OperationalError:
                if fresh:
                    raise

    def _connection(self, who: str, fresh: bool) -> psycopg.Connection[Any]:
        known = self._kept.get(who)
        if known is None or fresh:
            known = self._kept[who] = psycopg.connect(self._ways[who](), autocommit=True)
        return known

    def close(self) -> None:
        for connection in self._kept.values():
            connection.close()


@pytest.fixture(scope="session")
def _maker(postgres: Embedded) -> Iterator[_Maker]:
    maker = _Maker(postgres)
    yield maker
    maker.close()


@pytest.fixture
def database(_maker: _Maker, template: str) -> Iterator[str]:
    """A database of this test's own, with an empty ledger in schema `ledger`: its name."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _maker.run("user", f"CREATE DATABASE {{}} TEMPLATE {{}} STRATEGY {STRATEGY}", name, template)
    yield name
    _maker.run("admin", "DROP DATABASE {} WITH (FORCE)", name)


@pytest.fixture
def dsn(postgres: Embedded, database: str) -> str:
    """The way into this test's database as the everyday role, which may append, read and become owner."""
    return postgres.dsn(database)


@pytest.fixture
def admin_dsn(postgres: Embedded, database: str) -> str:
    """The way into this test's database as the superuser."""
    return postgres.admin_dsn(database)


@pytest.fixture
def log(dsn: str) -> Iterator[ledger.Ledger]:
    """The ledger of this test's database."""
    with ledger.connect(dsn, actor="tester") as opened:
        yield opened


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the user's own, in autocommit."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Opens further connections of the user's own; they are closed at the end."""
    opened: list[psycopg.Connection[Any]] = []

    def open_one(**settings: Any) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(dsn, **settings))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
