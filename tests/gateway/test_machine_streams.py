"""How `show`, `history`, `diff`, `blame`, `states` and `dwell` show the streams of machines."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli.output import brief
from ledger import Ledger
from ledger.domain.known import KNOWN
from tests.gateway.conftest import Ended
from tests.gateway.moved import move_payments

Pledger = Callable[..., Ended]


@pytest.fixture
def payments(log: Ledger) -> Ledger:
    return move_payments(log)


def test_a_machine_that_no_module_declares_is_folded_by_what_the_ledger_holds(
    payments: Ledger, pledger: Pledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(KNOWN.streams, "payment")
    shown = pledger("show", "payment/PM2", "--json")
    assert (shown.code, shown.err) == (0, "")
    (one,) = shown.objects
    assert (one["status"], one["version"], one["state"]["from_state"]) == ("paid", 2, "submitted")
    then = pledger("show", "payment/PM2", "--version", "1")
    assert (then.rows[2], then.err) == (["status", "submitted"], "")
    blamed = pledger("blame", "payment/PM2")
    assert [row[:3] for row in blamed.rows if row[0] in ("status", "from_state")] == [
        ["status", '"paid"', "2"],
        ["from_state", '"submitted"', "2"],
    ]
    assert "no domain" not in blamed.err
    changed = pledger("diff", "payment/PM2", "--from", "1", "--json").objects[0]
    assert changed["known"]
    assert ("submitted", "paid") in {(one.get("old"), one.get("new")) for one in changed["changes"]}


def test_the_stream_of_a_definition_is_shown(payments: Ledger, pledger: Pledger) -> None:
    shown = pledger("show", "machine/payment", "--json")
    assert (shown.code, shown.err) == (0, "")
    state = shown.objects[0]["state"]
    assert (state["number"], state["initial_state"]) == (1, "pending_submission")


def test_states_and_stays_of_a_machine(payments: Ledger, pledger: Pledger) -> None:
    assert [row[:2] for row in pledger("states", "--category", "payment").rows] == [
        ["payment/PM1", "submitted"], ["payment/PM2", "paid"], ["payment/PM3", "paid"],
        ["payment/PM4", "cancelled"],
    ]  # fmt: skip
    assert [row[1] for row in pledger("dwell", "payment/PM2").rows] == ["submitted", "paid"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            '{"metadata": {"by": "SB1"}, "to_state": "a", "definition": 1, "from_state": "b"}',
            'b -> a  {"by": "SB1"}',
        ),
        (
            '{"metadata": {}, "to_state": "a\\u001b", "definition": 1, "from_state": null}',
            "nothing -> a\\x1b",
        ),
        ('{"to_state": "a"}', '{"to_state": "a"}'),
        ('{"x": {"to_state": 1, "from_state": 2}}', '{"x": {"to_state": 1, "from_state": 2}}'),
        ('["to_state", "from_state"]', '["to_state", "from_state"]'),
        ("{}", ""),
    ],
)
def test_at_a_terminal_a_move_says_first_from_where_to_where(data: str, told: str) -> None:
    event: Any = SimpleNamespace(data=data, raw=None)
    assert brief(event) == told
