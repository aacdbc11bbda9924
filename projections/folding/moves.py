"""The status that each topic leads to: as this process knows it, else as it was declared to the ledger."""

from __future__ import annotations

from typing import Any

import psycopg

from ledger.store import reading
from ledger.store.declaring import Move, known_moves


def moves_of(connection: psycopg.Connection[Any], schema: str) -> dict[str, Move]:
    """All moves, by topic."""
    declared = reading.query(connection, schema, "moves")
    return {topic: Move(status, field) for topic, status, field in declared} | known_moves()
