"""For tests: the table of transitions of another system, and the ledger that adopts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from ledger import Ledger
from ledger.machines import Adopted, From, Machine, State, Transition, adopt
from tests.machines.payments import Payment

Connection = psycopg.Connection[Any]
NOON = datetime(2015, 3, 1, 12, tzinfo=UTC)
TABLE = """
CREATE TABLE payment_transitions (
    id            bigserial PRIMARY KEY,
    payment_id    text NOT NULL,
    to_state      text,
    most_recent   boolean,
    sort_key      integer,
    created_at    timestamptz,
    updated_at    timestamptz DEFAULT now(),
    submission_id text
)"""
INSERT = "INSERT INTO payment_transitions (payment_id, to_state, sort_key, most_recent, created_at) VALUES "


class Parcel(Machine, name="adopted_parcel"):
    """packed → sent → lost."""

    PACKED = State("packed", initial=True)
    SENT = State("sent")
    LOST = State("lost")
    table = (From(PACKED).To(SENT), From(SENT).To(LOST))


class Desk:
    """The table of the other system, and the ledger."""

    def __init__(self, log: Ledger, connection: Connection) -> None:
        self.log, self.connection = log, connection
        connection.execute(TABLE)

    def write(self, payment: str, *rows: tuple[str | None, int | None], recent: int = -1) -> None:
        """Rows of a payment: state and sort_key; the last is most_recent, or that which is told."""
        values = [
            (payment, state, key, nth == recent % len(rows), NOON + timedelta(minutes=key or 0))
            for nth, (state, key) in enumerate(rows)
        ]
        with self.connection.cursor() as cursor:
            cursor.executemany(INSERT + "(%s, %s, %s, %s, %s)", values)

    def adopt(self, name: Any = "payment", **ways: Any) -> Adopted:
        given: dict[str, Any] = {"parent": "payment_id", **ways}
        return adopt(self.log, name, given.pop("table", "payment_transitions"), **given)

    def history(self, payment: str, name: str = "payment") -> list[Transition]:
        kind = Payment if name == "payment" else Parcel
        return kind(self.log, payment).history()

    def states(self, payment: str) -> list[str]:
        return [move.to_state for move in self.history(payment)]
