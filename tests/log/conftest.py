"""Fixtures of the store's tests: databases, logins and ledgers of special kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import ledger
from ledger import AdvisoryLocks, Ledger
from ledger.embedded import Embedded
from tests.lamp import LampRead
from tests.log import proxies, scopes

Connection = psycopg.Connection[Any]
_numbers = count(1)
LOGIN: Final = "CREATE ROLE {} LOGIN PASSWORD 'x' "
DROP_ROLE: Final = ("DROP OWNED BY {}", "DROP ROLE {}")


@pytest.fixture
def empty(postgres: Embedded) -> Iterator[Callable[..., str]]:
    """Makes databases without a ledger; gives their names."""
    drop = ["DROP DATABASE {} WITH (FORCE)"]
    yield from _maker("empty", postgres.dsn(), "CREATE DATABASE {} ", postgres.admin_dsn(), drop)


@pytest.fixture
def login(postgres: Embedded) -> Iterator[Callable[..., str]]:
    """Makes roles that may log in; gives their names. The password is `x`."""
    yield from _maker("user", postgres.admin_dsn(), LOGIN, postgres.admin_dsn(), DROP_ROLE)


@pytest.fixture
def only(postgres: Embedded, database: str) -> Iterator[Callable[[str], str]]:
    """Makes a login that is in one role of the ledger and nothing else; gives its DSN."""
    makers = _maker("only", postgres.admin_dsn(), LOGIN, postgres.admin_dsn(database), DROP_ROLE)
    make = next(makers)

    def only_in(role: str) -> str:
        return make_conninfo(postgres.dsn(database), user=make(f"IN ROLE {role}"), password="x")

    yield only_in
    next(makers, None)


def _maker(
    prefix: str, where: str, create: str, where_dropped: str, drop: Sequence[str]
) -> Iterator[Callable[..., str]]:
    """A function that makes a thing and returns its name; at the end all are dropped."""
    made: list[str] = []

    def make(options: str = "") -> str:
        made.append(f"{prefix}_{next(_numbers)}")
        _execute(where, [create + options], made[-1])
        return made[-1]

    yield make
    for name in made:
        _execute(where_dropped, drop, name)


def _execute(dsn: str, statements: Sequence[str], name: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))  # type: ignore[arg-type]


@pytest.fixture
def user(connect: Callable[..., Connection], admin_dsn: str) -> Connection:
    """The user's connection, without autocommit, in a database with a table of the user's own."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE public.shelf (item text PRIMARY KEY); GRANT ALL ON public.shelf TO PUBLIC"
        )
    return connect()


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[Ledger]:
    """One ledger for all examples of a module; each takes streams of its own."""
    name = f"shared_{next(_numbers)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")  # type: ignore[arg-type]
    with ledger.connect(postgres.dsn(name), actor="tester") as log:
        yield log
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@pytest.fixture
def nothing_stored(log: Ledger) -> Iterator[None]:
    """Whatever the test does, the ledger is as before afterwards and takes an append."""
    before = _held(log)
    yield
    assert _held(log) == before
    assert log.append(f"lamp/after-{next(_numbers)}", LampRead(), expected=0).version == 1


@pytest.fixture
def locks(log: Ledger) -> AdvisoryLocks:
    return log.locks


@pytest.fixture
def relay(dsn: str) -> Iterator[proxies.Relay]:
    """Stands between as a proxy does, and makes up the process ids."""
    relay = proxies.Relay(dsn)
    yield relay
    relay.close()


@pytest.fixture
def bouncer(dsn: str) -> Iterator[Callable[[str], str]]:
    """Starts a real PgBouncer with a way of pooling; gives its DSN."""
    with proxies.bouncers(dsn) as start:
        yield start


@pytest.fixture
def no_locks_left(connection: Connection) -> Iterator[None]:
    """No lock of a scope is held, and none is waited for, after the test."""
    yield
    scopes.all_ended(connection)


def _held(log: Ledger) -> object:
    with log.reader() as connection:
        return connection.execute(
            "SELECT (SELECT count(*) FROM ledger.events), (SELECT count(*) FROM ledger.heads), "
            "(SELECT count(*) FROM ledger.commands)"
        ).fetchone()
