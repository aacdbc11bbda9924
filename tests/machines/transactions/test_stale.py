"""Machines that remember what is no longer so: what they show is remembered, what they do is decided anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ledger import GuardRefused, Ledger, TransitionFailed
from ledger.machines import From, Machine, State, Transition, guard


class Approved(Machine, name="races.approved"):
    """draft → checked → released, if the one who checked is not the one who releases."""

    DRAFT = State("draft", initial=True)
    CHECKED = State("checked")
    RELEASED = State("released")
    table = (From(DRAFT).To(CHECKED), From(CHECKED).To(RELEASED, DRAFT))

    @guard(to=RELEASED)
    def is_somebody_else(document: str, last: Transition | None, metadata: Mapping[str, Any]) -> bool:
        return last is not None and last.metadata.get("by") != metadata.get("by")


def test_a_stale_machine_moves_from_where_the_object_is(log: Ledger, key: str) -> None:
    """Spec W2-01, S2-45: what it shows is remembered, what it does is decided on what is recorded."""
    stale = Approved(log, key)
    assert stale.current_state() == "draft"
    Approved(log, key).move("checked", by="Ann")
    assert (stale.current_state(), stale.can_transition_to("released", {"by": "Bob"})) == ("draft", False)
    assert stale.move("released", by="Bob").number == 2
    assert stale.current_state() == "released"


def test_a_stale_machine_asks_its_guards_about_the_last_move(log: Ledger, key: str) -> None:
    """Spec W2-01: Bob checked at first, and might have released had Ann not checked anew."""
    Approved(log, key).move("checked", by="Ann")
    stale = Approved(log, key)
    assert stale.can_transition_to("released", {"by": "Bob"})
    Approved(log, key).move("draft")
    Approved(log, key).move("checked", by="Bob")
    with pytest.raises(GuardRefused):
        stale.move("released", by="Bob")
    assert stale.move("released", by="Ann").number == 4


def test_a_stale_machine_is_refused_from_where_the_object_is(log: Ledger, key: str) -> None:
    stale = Approved(log, key)
    assert stale.can_transition_to("checked")
    Approved(log, key).move("checked", by="Ann")
    with pytest.raises(TransitionFailed, match="Cannot transition from 'checked' to 'checked'"):
        stale.move("checked", by="Bob")
