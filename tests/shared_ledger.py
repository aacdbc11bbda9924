"""One ledger for many tests, each of which looks only at objects of its own: that saves each a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

import ledger
from ledger.embedded import Embedded


@contextmanager
def shared_ledger(postgres: Embedded, template: str, kind: str) -> Iterator[ledger.Ledger]:
    """A ledger in a database of this process, made from the template and dropped at the end."""
    name = sql.Identifier(f"{kind}_{os.getpid()}")
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))
    with ledger.connect(postgres.dsn(f"{kind}_{os.getpid()}"), actor="tester") as opened:
        yield opened
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
