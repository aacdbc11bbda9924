"""Machines with timeouts for the tests of `pledger machines timeouts`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.machines import From, Machine, State, Transition, before


class Loan(Machine, name="timed_loan"):
    """shelf → lent → overdue, by itself."""

    SHELF = State("shelf", initial=True)
    LENT = State("lent")
    OVERDUE = State("overdue")
    table = (
        From(SHELF).To(LENT),
        From(LENT).To(OVERDUE, after=timedelta(milliseconds=1)),
        From(OVERDUE).To(SHELF),
    )

    @before(to=OVERDUE)
    def write(loan: Any, transition: Transition) -> None:
        """Some have no address."""
        if loan == "nowhere":
            raise LookupError("no address")
