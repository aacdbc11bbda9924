"""`pledger machines list`, `show` and `check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.cli.errors import Code
from gateway.cli.machines.picture import called, span
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.machines.definition_stream import DefinitionState
from projections.machines.info import Activity, activity
from projections.shipped import load
from tests.gateway.conftest import Ended
from tests.gateway.moved import move_parcels, move_payments
from tests.machines.payments import Payment

Pledger = Callable[..., Ended]


@pytest.fixture(autouse=True)
def machines() -> Iterator[None]:
    """What a test defines is not known to the next."""
    load()  # what is imported meanwhile would be forgotten, and is imported once only
    before_ = dict(KNOWN.machines)
    yield
    KNOWN.machines.clear()
    KNOWN.machines.update(before_)


@pytest.fixture
def payments(log: Ledger) -> Ledger:
    return move_payments(log)


@pytest.fixture
def parcels(log: Ledger) -> Ledger:
    return move_parcels(log)


def test_no_module_of_the_user_is_imported(payments: Ledger, process: Callable[..., Ended]) -> None:
    shown = process("machines", "show", "payment", "--json")
    assert shown.code == 0
    assert [one["objects"] for one in shown.objects[0]["states"]] == [0, 1, 2, 1]


def test_they_are_listed_by_name(payments: Ledger, parcels: Ledger, pledger: Pledger) -> None:
    assert [row[:5] for row in pledger("machines", "list").rows] == [
        ["parcel", "2", "3", "3", "7"],
        ["payment", "1", "4", "4", "6"],
    ]
    one = pledger("machines", "list", "--json").objects[1]
    last = payments.read("payment/PM4")[0].recorded_at
    assert one["last_move"] == last.isoformat(timespec="microseconds")
    assert (one["machine"], one["definition"], one["initial_state"]) == ("payment", 1, "pending_submission")
    assert (one["states"], one["objects"], one["moves"]) == (4, 4, 6)


def test_without_any_there_is_a_sentence(log: Ledger, pledger: Pledger) -> None:
    for arguments in (("list",), ("check", "--all")):
        ended = pledger("machines", *arguments)
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "the ledger has no machine: the first move of an object records its machine\n"


def test_activity_is_that_of_the_view_or_of_the_events(payments: Ledger, pledger: Pledger) -> None:
    by_events = activity(payments, ["payment", "parcel"])
    assert by_events["parcel"] == Activity()
    assert pledger("views", "follow", "in_state", "--once").code == 0
    assert activity(payments, ["payment", "parcel"]) == by_events
    Payment(payments, "PM1").move("paid")
    assert activity(payments, ["payment"])["payment"].moves == 6, "of what the view has come to"
    assert pledger("machines", "list").rows[0][4] == "6"


def test_one_is_shown_as_its_table(payments: Ledger, pledger: Pledger) -> None:
    ended = pledger("machines", "show", "payment")
    asks = "guard is_not_refused"
    assert ended.rows == [
        ["pending_submission", "initial", "0", "submitted", "", "Submission", asks],
        ["pending_submission", "initial", "0", "cancelled", "", "", ""],
        ["submitted", "", "1", "cancelled", "", "", ""],
        ["submitted", "", "1", "paid", "", "", ""],
        ["paid", "terminal", "2", "", "", "", ""],
        ["cancelled", "terminal", "1", "", "", "", ""],
    ]
    assert "counted from the events" in ended.err
    assert "payment, definition 1, recorded 20" in ended.err
    assert ended.err.endswith("; 4 objects\n")
    quiet = pledger("machines", "show", "payment", "--quiet")
    assert (quiet.out, quiet.err) == (ended.out, "")


def test_json_has_all_of_it(payments: Ledger, pledger: Pledger) -> None:
    (one,) = pledger("machines", "show", "payment", "--json").objects
    assert {name: one[name] for name in ("machine", "definition", "latest", "initial_state", "objects")} == {
        "machine": "payment", "definition": 1, "latest": 1, "initial_state": "pending_submission",
        "objects": 4,
    }  # fmt: skip
    assert one["states"][0] == {
        "state": "pending_submission", "initial": True, "terminal": False, "declared": True, "objects": 0,
        "successors": [
            {"to": "submitted", "after": None, "metadata": "Submission", "guards": ["is_not_refused"],
             "callbacks": []},
            {"to": "cancelled", "after": None, "metadata": None, "guards": [], "callbacks": []},
        ],
    }  # fmt: skip
    assert (one["actor"], "+ submitted → paid" in one["changed"]) == ("tester", True)


def test_counts_are_those_of_the_view_and_say_where_it_stands(payments: Ledger, pledger: Pledger) -> None:
    assert pledger("views", "follow", "in_state", "--once").code == 0
    fresh = pledger("machines", "show", "payment")
    assert "counted" not in fresh.err
    Payment(payments, "PM1").move("paid")
    late = pledger("machines", "show", "payment")
    assert late.out == fresh.out
    assert "the counts are from the view in_state, at position 7 of 8\n" in late.err
    assert pledger("views", "follow", "in_state", "--once").code == 0
    assert [row[2] for row in pledger("machines", "show", "payment").rows] == ["0", "0", "0", "0", "3", "1"]


def test_a_definition_by_its_number(parcels: Ledger, pledger: Pledger) -> None:
    now, then = (
        pledger("machines", "show", "parcel", *more).rows for more in ((), ("--number", "1"))
    )  # fmt: skip
    assert then == [
        ["made", "initial", "0", "sent", "1 d 30 min", "", "before weigh"],
        ["sent", "", "1", "lost", "", "", ""],
        ["lost", "", "1", "sent", "", "", "before weigh"],
        ["kept", "not declared", "1", "", "", "", ""],
    ]
    assert [row[:4] for row in now] == [
        ["made", "initial", "0", "sent"],
        ["sent", "", "1", "kept"],
        ["kept", "terminal", "1", ""],
        ["lost", "not declared", "1", ""],
    ]
    assert (
        "1 object in a state that is not declared: declare it again with a transition out, such as "
        "From('lost').To(…)\n"
    ) in pledger("machines", "show", "parcel").err
    assert "changed by" not in pledger("machines", "show", "parcel", "--number", "1").err
    assert (
        "\nchanged by definition 2: + state kept; - state lost; + sent → kept; - sent → lost; - lost → sent"
    ) in pledger("machines", "show", "parcel").err
    assert "parcel, definition 1 of 2, recorded" in pledger("machines", "show", "parcel", "--number", "1").err
    (one,) = pledger("machines", "show", "parcel", "--json", "--number", "2").objects
    assert one["changed"][:2] == ["+ state kept", "- state lost"]
    assert one["states"][0]["successors"][0]["after"] == 88200.0
    assert one["states"][0]["successors"][0]["callbacks"] == [{"kind": "before", "name": "weigh"}]


@pytest.mark.parametrize("command", ["show", "diagram", "check"])
def test_names_and_numbers_that_are_wrong(payments: Ledger, pledger: Pledger, command: str) -> None:
    ended = pledger("machines", command, "paymnt", "--json")
    assert (ended.code, ended.out, ended.error["error"]) == (Code.MISUSE, "", "UnknownMachine")
    assert "no machine is named 'paymnt'; known machines: " in ended.error["message"]
    assert "payment" in ended.error["message"]
    assert "did you mean payment?" in ended.error["message"]
    ended = pledger("machines", command, "payment", "--number", "2")
    assert (ended.code, ended.out) == (Code.NOT_FOUND, "")
    assert ended.err == "pledger: payment has 1 definition, and none of number 2\n"
    assert pledger("machines", command, "payment", "--number", "0").code == Code.MISUSE


def test_one_that_only_this_process_knows_is_unknown_to_the_ledger(log: Ledger, pledger: Pledger) -> None:
    assert "payment" in KNOWN.machines
    ended = pledger("machines", "show", "payment")
    assert (ended.code, "no machine is named 'payment'; known machines: none" in ended.err) == (
        Code.MISUSE,
        True,
    )


def test_every_move_is_allowed(payments: Ledger, pledger: Pledger) -> None:
    for arguments in (["payment"], ["--all"]):
        ended = pledger("machines", "check", *arguments)
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "payment, definition 1: every move is allowed\n"
    assert pledger("machines", "check", "payment", "--json").objects == [
        {"summary": {"machine": "payment", "definition": 1, "moves": 0, "pairs": []}}
    ]


def test_moves_that_a_later_definition_does_not_allow(parcels: Ledger, pledger: Pledger) -> None:
    ended = pledger("machines", "check", "parcel")
    assert ended.code == Code.REFUSED
    assert [[row[0], row[1], *row[4:]] for row in ended.rows] == [
        ["parcel/a", "2", "sent", "lost", "1", "sent", "not allowed"],
        ["parcel/b", "2", "sent", "lost", "1", "sent", "not allowed"],
        ["parcel/b", "3", "lost", "sent", "1", "lost", "not allowed"],
    ]
    assert ended.err.splitlines() == [
        "parcel, definition 2: 3 moves not allowed",
        "  2 moves sent -> lost of 2 objects: not allowed",
        "  1 move lost -> sent of 1 object: not allowed",
    ]
    then = pledger("machines", "check", "parcel", "--number", "1")
    assert [row[0] for row in then.rows] == ["parcel/c"]
    assert then.code == Code.REFUSED


def test_a_check_for_programs(payments: Ledger, parcels: Ledger, pledger: Pledger) -> None:
    ended = pledger("machines", "check", "--all", "--json", "--limit", "1")
    assert ended.code == Code.REFUSED
    move, parcel_, payment = ended.objects
    assert {name: move[name] for name in ("machine", "stream", "key", "version", "definition", "why")} == {
        "machine": "parcel", "stream": "parcel/a", "key": ["a"], "version": 2, "definition": 1,
        "why": ["not allowed"],
    }  # fmt: skip
    assert (move["from_state"], move["to_state"], move["stood"]) == ("sent", "lost", "sent")
    found = parcel_["summary"]
    assert (found["machine"], found["definition"], found["moves"]) == ("parcel", 2, 3)
    pairs = [(one["from_state"], one["to_state"], one["moves"], one["objects"]) for one in found["pairs"]]
    assert pairs == [("sent", "lost", 2, 2), ("lost", "sent", 1, 1)]
    assert payment["summary"]["moves"] == 0
    assert "2 more moves: --limit 0 lists all\n" in ended.err
    assert len(pledger("machines", "check", "--all", "--json", "--limit", "0").objects) == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a machine or --all"),
        (["payment", "--all"], "give a machine or --all"),
        (["--all", "--number", "1"], "--number is the definition of one machine"),
    ],
)
def test_a_check_of_nothing_or_of_too_much(
    payments: Ledger, pledger: Pledger, arguments: list[str], says: str
) -> None:
    ended = pledger("machines", "check", *arguments)
    assert (ended.code, says in ended.err) == (Code.MISUSE, True)


def test_what_is_called_on_a_move() -> None:
    conditions: list[dict[str, Any]] = [{}, {"from": "a"}, {"to": ["b", "c"]}, {"from": "a", "to": ["b"]}]
    calls = tuple({"kind": "guard", "name": str(nth), **one} for nth, one in enumerate(conditions))
    defined = DefinitionState(callbacks=calls)
    names = [[one["name"] for one in called(defined, *move)] for move in ("ab", "ac", "xb", "xy")]
    assert names == [["0", "1", "2", "3"], ["0", "1", "2"], ["0", "2"], ["0"]]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.25, "0.25 s"), (1, "1 s"), (60, "1 min"), (90061, "1 d 1 h 1 min 1 s"), (259200, "3 d")],
)
def test_spans_are_said_whole(seconds: float, told: str) -> None:
    assert span(seconds) == told
