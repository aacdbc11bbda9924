"""
The article's own way of moving an object through a machine: `dev.py bench machines` measures ours beside it.

A row a move in a transition table with the two unique indexes, and one statement after the other in one
transaction (spec S2-10): the last row is taken out of `most_recent`, which locks and reads it at once; the
move is looked up in the table of the machine; the new row is inserted; commit. Who was beaten finds no row to
take out, and the unique index refuses what it inserts (spec S2-12).

Written as its author would want it: one connection a worker, prepared statements, ids from the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import psycopg
from psycopg.errors import UniqueViolation

from ledger import TransitionConflict

SCHEMA = """
CREATE TABLE transitions (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id  text        NOT NULL,
    to_state    text        NOT NULL,
    most_recent boolean     NOT NULL,
    sort_key    integer     NOT NULL,
    metadata    jsonb       NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX transitions_most_recent ON transitions (payment_id, most_recent) WHERE most_recent;
CREATE UNIQUE INDEX transitions_sort_key ON transitions (payment_id, sort_key);
"""
INDEX_OF_STATES = """
CREATE INDEX transitions_state ON transitions (to_state, payment_id) WHERE most_recent;
CREATE STATISTICS transitions_states (mcv) ON to_state, most_recent FROM transitions;
"""
"""What makes the article's query for a state fast: the index is not among its own, and each move pays for it;
without the statistics all that ever were in the state are taken to be there, and every payment is read."""

TAKE = """
UPDATE transitions SET most_recent = false, updated_at = now() WHERE payment_id = %s AND most_recent
RETURNING to_state, sort_key
"""
PUT = "INSERT INTO transitions (payment_id, to_state, most_recent, sort_key) VALUES (%s, %s, true, %s)"
IN_STATE = """
SELECT p.* FROM payments p JOIN transitions t ON t.payment_id = p.id AND t.most_recent WHERE t.to_state = %s
"""


class Article:
    """Moves objects; one for each worker."""

    def __init__(self, dsn: str, initial: str, successors: Mapping[str, Set[str]]) -> None:
        self.connection = psycopg.connect(dsn)
        self.cursor = self.connection.cursor(binary=True)
        self._initial, self._successors = initial, successors

    def move(self, key: str, to_state: str) -> int:
        """Move an object; the sort key. Raises TransitionConflict, ValueError where that is not allowed."""
        try:
            row = self.cursor.execute(TAKE, (key,), prepare=True).fetchone()
            old, sort_key = row or (self._initial, 0)
            if to_state not in self._successors[old]:
                raise ValueError(f"not from {old} to {to_state}")
            self.cursor.execute(PUT, (key, to_state, sort_key + 10), prepare=True)
            self.connection.commit()
        except UniqueViolation as error:
            self.connection.rollback()
            raise TransitionConflict(key, "the last", 0, to_state) from error
        except ValueError:
            self.connection.rollback()
            raise
        return int(sort_key) + 10
