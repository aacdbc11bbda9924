"""Statements of small batches are planned once; those of large ones for what they hold."""

from __future__ import annotations

import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine.apply import SMALL, Applier
from projections.engine.copies import Copies, projecting
from tests.views.lamps import lamps

PREPARED = """
SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO "ledger_views"."in_state_%'
"""


@pytest.mark.parametrize(("many", "planned_once"), [(2, 1), (SMALL + 1, 0)])
def test_only_small_batches_share_a_plan(log: Ledger, many: int, planned_once: int) -> None:
    lamps(log, 20)
    with projecting(log) as connection:
        copies = Copies(connection, log.schema)
        copy = copies.followed(KNOWN.views["in_state"])
        applier = Applier(copies, KNOWN.views["in_state"], copy)
        for after in range(0, 20, 2):
            applier.apply(after, after + 2, many)
        assert connection.execute(PREPARED).fetchone() == (planned_once,)
