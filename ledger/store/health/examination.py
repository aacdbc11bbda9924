"""The examination: every check in its order, on one connection, changing nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import LedgerError, ServerUnavailable
from .. import install
from ..admin import existing, straight
from ..dsn import Target
from ..faults import ledger_errors
from . import log, place, server
from .checks import Check, Checking, Look, Verdict, fail, warn


def examine(dsn: str | None = None, schema: str = "ledger") -> tuple[Target, Iterator[Check]]:
    """Find the database, then look at it, check by check, as the iterator is read.

    Raises BadName, and ServerUnavailable or SchemaMismatch where there is nothing to look at.
    """
    install.checked_schema(schema)
    target = existing(dsn)
    return target, _examine(target, schema)


def _examine(target: Target, schema: str) -> Iterator[Check]:
    try:
        with straight(target) as connection:
            look = Look(connection, schema, target)
            yield from _run(server.CHECKS, look)
            found = list(_run((log.schema,), look))
            yield from found
            if all(check.verdict is not Verdict.FAIL for check in found):
                yield from _run(log.CHECKS, look)
            yield from _run(place.CHECKS, look)
    except ServerUnavailable as error:
        yield fail("server", str(error), "start the server, or name another one with --dsn or LEDGER_DSN")


def _run(checks: tuple[Checking, ...], look: Look) -> Iterator[Check]:
    for check in checks:
        try:
            with ledger_errors():
                found = list(check(look))
        except LedgerError as error:
            if look.connection.closed:
                raise
            cure = "run `pledger doctor` as a role that may look"
            found = [warn(check.__name__, f"could not be looked at: {error}", cure)]
        yield from found
