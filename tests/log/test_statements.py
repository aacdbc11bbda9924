"""Statements in SQL files beside their code, and the one way to run them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from ledger import Ledger, SchemaMismatch
from ledger.log.sql import Statement, Statements, run

CLOCK = Statement("clock", "SELECT %(word)s::text, (SELECT count(*) FROM {schema}.events WHERE false)")
BROKEN = Statement("broken", "SELECT * FROM {schema}.nothing")
SILENT = Statement("silent", "SET LOCAL statement_timeout = 0")
ROWS = Statement("rows", "SELECT FROM generate_series(1, 2)")


def test_statements_are_attributes_by_their_names() -> None:
    statements = Statements("ledger.log", "readers", "join")
    assert statements.keep_position is statements.keep_position is statements["keep_position"]
    assert (statements.keep_position.name, "{schema}" in statements.keep_position.template) == (
        "keep_position",
        True,
    )
    assert b'"ledger".' in statements.keep_position.text("ledger")
    with pytest.raises(AttributeError, match=r"no statement nothing in readers, join\.sql"):
        _ = statements.nothing


def test_a_statement_runs_on_the_pool_or_on_a_given_connection(log: Ledger) -> None:
    assert log.query(CLOCK, word="a") == [("a", 0)]
    with psycopg.connect(log.address.conninfo, row_factory=dict_row) as own:
        assert log.query(CLOCK, on=own, word="b") == run(own, log.schema, CLOCK, word="b") == [("b", 0)]
        assert log.query(SILENT, on=own) == []
    assert log.query(ROWS) == [(), ()], "rows without columns are rows"


def test_errors_are_the_ledgers_on_the_pool_and_the_drivers_on_a_given_connection(log: Ledger) -> None:
    with pytest.raises(SchemaMismatch):
        log.query(BROKEN)
    with psycopg.connect(log.address.conninfo) as own, pytest.raises(psycopg.errors.UndefinedTable):
        log.query(BROKEN, on=own)
