"""A check: its name, verdict, sentence and remedy; and what the checks examine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import psycopg

from .. import sql as statements
from ..dsn import Address
from ..server_errors import ledger_errors


class Verdict(StrEnum):
    """The verdict of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its permanent name, its verdict, a sentence, and the remedy."""

    name: str
    verdict: Verdict
    says: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Examined:
    """What the checks examine: one connection, one ledger, and its location."""

    connection: psycopg.Connection[Any]
    schema: str
    address: Address

    def rows(self, name: str, *given: Any, **named: Any) -> list[tuple[Any, ...]]:
        """The rows of a named statement. Raises LedgerError."""
        with ledger_errors():
            statement = statements.statement(name, self.schema)
            return self.connection.execute(statement, given or named or None).fetchall()


Checking = Callable[[Examined], Iterable[Check]]


def ok(name: str, says: str) -> Check:
    """Nothing to do."""
    return Check(name, Verdict.OK, says)


def warn(name: str, says: str, cure: str) -> Check:
    """It works, and something should be done."""
    return Check(name, Verdict.WARN, says, cure)


def fail(name: str, says: str, cure: str) -> Check:
    """It does not work, or a guarantee does not hold."""
    return Check(name, Verdict.FAIL, says, cure)
