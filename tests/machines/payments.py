"""The machine of the article, for tests: a payment on its way to the bank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ledger.machines import From, Machine, State, Transition, guard


class Submission(BaseModel):
    """What is said when a payment is submitted."""

    submission_id: str


class Payment(Machine, name="payment"):
    """pending_submission → submitted → paid | cancelled."""

    PENDING = State("pending_submission", initial=True)
    SUBMITTED = State("submitted")
    PAID = State("paid")
    CANCELLED = State("cancelled")

    table = (
        From(PENDING).To(SUBMITTED, metadata=Submission),
        From(PENDING, SUBMITTED).To(CANCELLED),
        From(SUBMITTED).To(PAID),
    )

    @guard(to=SUBMITTED)
    def is_not_refused(payment: Any, last: Transition | None, metadata: Mapping[str, Any]) -> bool:
        """The bank takes no submission named `refused`."""
        return metadata.get("submission_id") != "refused"
