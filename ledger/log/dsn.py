"""
Which PostgreSQL holds the ledger: `--dsn` > LEDGER_DSN > libpq's own variables > the embedded server.

A DSN is any DSN of libpq, or `embedded:PATH`: the server in that folder, started if it does not run
(`embedded:` alone is the default home). Only the `printable` of an `Address` is ever shown.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger.embedded import Embedded
from ledger.embedded.home import default_home
from ledger.errors import ServerUnavailable

LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGDATABASE")
SECRETS = ("password", "sslpassword", "oauth_client_secret")
EMBEDDED = "embedded:"
FROM_LIBPQ = "postgresql://"  # names nothing, so that libpq reads its variables

# The servers that this process keeps running: their locks live in these objects, and as long as it.
_kept: dict[Path, Embedded] = {}
_reached: dict[str, Embedded] = {}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the ledger's database: the secret conninfo, and the form that may be shown."""

    conninfo: str = field(repr=False)
    printable: str
    source: str  # `--dsn`, `LEDGER_DSN`, libpq's first variable that is set, or `embedded`


def resolve(explicit: str | None = None) -> Address:
    """Find the database; if it is the embedded server, start it.

    An embedded server then runs until this process and every fork of it have ended. A fork may go
    on using the `conninfo` of its parent; a process started anew resolves the `printable` again.
    """
    return _address(*chosen(explicit))


def chosen(explicit: str | None = None) -> tuple[str, str]:
    """The DSN and its source (`Address.source`); nothing is started or connected."""
    if explicit:
        return explicit, "--dsn"
    if named := os.environ.get("LEDGER_DSN"):
        return named, "LEDGER_DSN"
    for variable in LIBPQ_VARIABLES:
        if os.environ.get(variable):
            return FROM_LIBPQ, variable
    return EMBEDDED, "embedded"


def printable(dsn: str) -> str:
    """The form of a DSN that may be shown: without passwords, and still a DSN."""
    if dsn.startswith(EMBEDDED):
        return _embedded(dsn).printable
    try:
        parts = conninfo_to_dict(dsn)
        if "@" in str(parts.get("host") or "")[1:]:  # the rest of a password with an `@` in it
            raise psycopg.ProgrammingError
    except psycopg.Error:
        # libpq's own message quotes parts of what it could not read, perhaps the password.
        raise ServerUnavailable(
            "the DSN cannot be read: write postgresql://USER@HOST:PORT/DATABASE with special characters "
            "percent-encoded, or host=HOST dbname=DATABASE, or embedded:PATH"
        ) from None
    shown = {name: value for name, value in parts.items() if name not in SECRETS}
    return make_conninfo("", **shown) or FROM_LIBPQ


def _address(dsn: str, source: str) -> Address:
    if not dsn.startswith(EMBEDDED):
        return Address(dsn, printable(dsn), source)
    server = _embedded(dsn)
    server = _kept.setdefault(server.home, server)
    conninfo = server.acquire()
    _reached[conninfo] = server
    return Address(conninfo, server.printable, source)


def awake(conninfo: str) -> str:
    """The same conninfo; restarts the embedded server that it leads to, if that was killed."""
    if (server := _reached.get(conninfo)) is not None:
        with suppress(ServerUnavailable):  # connecting raises the error then
            server.start_again()
    return conninfo


def _embedded(dsn: str) -> Embedded:
    path = dsn.removeprefix(EMBEDDED)
    return Embedded(Path(path) if path else default_home())
