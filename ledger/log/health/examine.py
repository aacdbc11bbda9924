"""Runs every check in order, on one connection, without changing anything."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import LedgerError, ServerUnavailable
from .. import install
from ..admin import existing, single_connection
from ..dsn import Address
from ..server_errors import ledger_errors
from . import location, log, server
from .checks import Check, Checking, Examined, Verdict, fail, warn


def examine(dsn: str | None = None, schema: str = "ledger") -> tuple[Address, Iterator[Check]]:
    """Find the database, then run one check after the other as the iterator is read.

    Raises BadName, and ServerUnavailable or SchemaMismatch where there is nothing to examine.
    """
    install.checked_schema(schema)
    address = existing(dsn)
    return address, _examine(address, schema)


def _examine(address: Address, schema: str) -> Iterator[Check]:
    try:
        with single_connection(address) as connection:
            look = Examined(connection, schema, address)
            yield from _run(server.CHECKS, look)
            found = list(_run((log.schema,), look))
            yield from found
            if all(check.verdict is not Verdict.FAIL for check in found):
                yield from _run(log.CHECKS, look)
            yield from _run(location.CHECKS, look)
    except ServerUnavailable as error:
        yield fail("server", str(error), "start the server, or name another one with --dsn or LEDGER_DSN")


def _run(checks: tuple[Checking, ...], look: Examined) -> Iterator[Check]:
    for check in checks:
        try:
            with ledger_errors():
                found = list(check(look))
        except LedgerError as error:
            if look.connection.closed:
                raise
            cure = "run `pledger doctor` with the roles reader and writer"
            found = [warn(check.__name__, f"could not be checked: {error}", cure)]
        yield from found
