"""A check: its name, how it came out, a sentence, a cure; and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import psycopg

from .. import sql as statements
from ..dsn import Target
from ..faults import ledger_errors


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its permanent name, how it came out, a sentence, and what to do about it."""

    name: str
    verdict: Verdict
    says: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What the checks look at: one connection, one ledger, the place where both lie."""

    connection: psycopg.Connection[Any]
    schema: str
    target: Target

    def rows(self, name: str, *given: Any, **named: Any) -> list[tuple[Any, ...]]:
        """The rows of a named statement. Raises LedgerError."""
        with ledger_errors():
            statement = statements.statement(name, self.schema)
            return self.connection.execute(statement, given or named or None).fetchall()


Checking = Callable[[Look], Iterable[Check]]


def ok(name: str, says: str) -> Check:
    """Nothing to do."""
    return Check(name, Verdict.OK, says)


def warn(name: str, says: str, cure: str) -> Check:
    """It works, and something should be done."""
    return Check(name, Verdict.WARN, says, cure)


def fail(name: str, says: str, cure: str) -> Check:
    """It does not work, or what was promised is not kept."""
    return Check(name, Verdict.FAIL, says, cure)
