"""Counts of dead letters by operation and queue; importing them loads nothing of Prometheus."""

from __future__ import annotations

from typing import NamedTuple

from ledger import Ledger
from ledger.log.sql import Statements

SQL = Statements(__package__, "dead_letters")


class DeadGroup(NamedTuple):
    """Dead letters of one operation in one queue. kind: job or batch."""

    queue: str
    operation: str
    kind: str
    many: int


def dead_groups(ledger: Ledger) -> list[DeadGroup]:
    """How many dead letters there are, by queue, operation and kind, from the view `jobs`."""
    return [DeadGroup(*row) for row in ledger.query(SQL.dead_counts)]


def dead_letters(ledger: Ledger) -> int:
    """How many jobs and batches failed and were neither discarded nor redriven, from the view `jobs`."""
    return sum(group.many for group in dead_groups(ledger))
