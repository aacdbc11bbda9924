"""Machines with a past, for tests of `pledger machines`: payments; parcels whose definition changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger import Ledger
from ledger.machines import From, Machine, State, before
from tests.machines.payments import Payment


def move_payments(log: Ledger) -> Ledger:
    """Four payments: one submitted, two paid, one cancelled at once."""
    for key in ("PM1", "PM2", "PM3"):
        Payment(log, key).move("submitted", submission_id=f"SB{key}")
    for key in ("PM2", "PM3"):
        Payment(log, key).move("paid")
    Payment(log, "PM4").move("cancelled")
    return log


def parcel(*, second: bool) -> type[Machine]:
    """A parcel that could be lost and found, and by its second definition cannot."""

    class Parcel(Machine, name="parcel"):
        MADE = State("made", initial=True)
        SENT = State("sent")
        LOST = State("lost")
        table = (
            From(MADE).To(SENT, after=timedelta(days=1, minutes=30)),
            From(SENT).To(LOST),
            From(LOST).To(SENT),
        )

        @before(to=SENT)
        def weigh(about: Any, transition: Any) -> None:
            """Nothing."""

    if second:
        Parcel.remove_state("lost")
        Parcel.state("kept")
        Parcel.transition("sent", "kept")
    return Parcel


def move_parcels(log: Ledger) -> Ledger:
    """Of three parcels two were lost; then the definition knew no such state any more, and one was kept."""
    first = parcel(second=False)
    for key in ("a", "b", "c"):
        first(log, key).move("sent")
    for key in ("a", "b"):
        first(log, key).move("lost")
    first(log, "b").move("sent")
    parcel(second=True)(log, "c").move("kept")
    return log
