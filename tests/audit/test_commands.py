"""`pledger diff`, `blame`, `why`, `states`, `dwell`, and the moments of `show`, `history` and `tail`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from ledger import Appended, Body, Ledger
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from tests.gateway.conftest import Ended
from tests.lamp import LampRead, LampSwitchedOn, OpenLamp

Pledger = Callable[..., Ended]


@pytest.fixture
def switched(log: Ledger) -> list[Appended]:
    """A lamp that is made (1), switched on by mina (2) and read twice (3, 4), and a desk's between (5)."""
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make(40, {"a b": [1]})
    first = log.append("lamp/hall", LampSwitchedOn(), actor="mina", correlation="r-1", command="switch")
    last = log.append("lamp/hall", LampRead(value="é"), LampRead(value=None), causation="switch")
    other = log.append("desk/1", Body("desk.seen", 1, '{"state":"dusty"}'), causation=3, correlation="r-1")
    return [first, last, other]


def test_diff_names_each_field_and_who_changed_it(pledger: Pledger, switched: list[Appended]) -> None:
    ended = pledger("diff", "lamp/hall", "--from", "1")
    assert [row[:7] for row in ended.rows] == [
        ["status", '"made"', '"on"', "2", "2", "lamp.switched_on", "mina"],
        ["read", "0", "2", "4", "4", "lamp.read", "tester"],
        ["values[0]", "", '"é"', "3", "3", "lamp.read", "tester"],
        ["values[1]", "", "null", "4", "4", "lamp.read", "tester"],
    ]
    assert ended.err == "from version 1, as of position 1\nto version 4, as of position 5\n"
    steps = pledger("diff", "lamp/hall", "--from", "@2", "--to", "@3", "--all", "-q")
    assert [row[:4] for row in steps.rows] == [["read", "0", "1", "3"], ["values[0]", "", '"é"', "3"]]
    assert steps.err == ""


def test_diff_as_json(pledger: Pledger, switched: list[Appended]) -> None:
    found = pledger("diff", "lamp/hall", "--from", "2", "--to", "@3", "--json").objects[0]
    assert list(found) == ["stream", "known", "from", "to", "changes"]
    assert found["to"] == {"position": 3, "time": None, "beyond": False, "version": 3}
    added = found["changes"][1]
    assert (added["field"], added["path"], added["new"], "old" in added) == (
        "values[0]", ["values", 0], "é", False,
    )  # fmt: skip
    assert datetime.fromisoformat(added["recorded_at"]).utcoffset() == timedelta(0)


def test_diff_between_two_times(pledger: Pledger, switched: list[Appended]) -> None:
    first, last = (appended.recorded_at.isoformat() for appended in switched[:2])
    found = pledger("diff", "lamp/hall", "--from", first, "--to", last, "--json").objects[0]
    assert [change["field"] for change in found["changes"]] == ["read", "values[0]", "values[1]"]
    assert (found["from"]["position"], found["to"]["position"]) == (2, 4)
    again = pledger("diff", "lamp/hall", "--from", last, "--to", "now")
    assert (again.code, again.out) == (0, "")


def test_diff_of_a_stream_that_no_domain_folds(pledger: Pledger, switched: list[Appended]) -> None:
    ended = pledger("diff", "desk/1", "--from", "0")
    assert [row[:3] for row in ended.rows] == [["state", "", '"dusty"']]
    assert "no imported domain folds this stream" in ended.err


def test_blame_names_who_set_each_field(pledger: Pledger, switched: list[Appended]) -> None:
    rows = {row[0]: row[1:6] for row in pledger("blame", "lamp/hall").rows}
    assert rows["status"] == ['"on"', "2", "2", "lamp.switched_on", "mina"]
    assert rows["watts"] == ["40.0", "1", "1", "lamp.made", "tester"]
    assert rows["values[1]"] == ["null", "4", "4", "lamp.read", "tester"]
    (found,) = pledger("blame", "lamp/hall", "--json", "--version", "1").objects
    assert list(found) == ["stream", "known", "as_of", "fields"]
    fields = {field["field"]: field for field in found["fields"]}
    assert (fields["status"]["version"], fields["values"]["version"]) == (1, None)
    assert pledger("blame", "lamp/hall", "--position", "1").rows == pledger(
        "blame", "lamp/hall", "--version", "1"
    ).rows  # fmt: skip


def test_why_is_a_tree(pledger: Pledger, switched: list[Appended]) -> None:
    ended = pledger("why", "lamp/hall")
    assert [[*row[:2], *row[3:6], row[7]] for row in ended.rows] == [
        ["0", "2", "lamp/hall", "2", "lamp.switched_on", ""],
        ["1", "4", "lamp/hall", "4", "lamp.read", "*"],
    ]
    assert "searched positions" in ended.err
    found = pledger("why", "lamp/hall", "--version", "2", "--json", "--within", "all").objects
    assert [(o["depth"], o["position"], o["cause"], o["asked"]) for o in found] == [
        *[(0, 2, None, True), (1, 3, 2, False), (2, 5, 3, False), (1, 4, 2, False)]
    ]
    assert found[2]["correlation"] == "r-1"
    assert (
        "more than 2 events: see --limit" in pledger("why", "lamp/hall", "--version", "2", "--limit", "2").err
    )


def test_states_and_counts(pledger: Pledger, switched: list[Appended], log: Ledger) -> None:
    with log.open(OpenLamp, "desk") as lamp:
        lamp.make()
    assert [row[:2] for row in pledger("states").rows] == [["lamp/desk", "made"], ["lamp/hall", "on"]]
    at = switched[0].recorded_at.isoformat()
    then = pledger("states", "--status", "on", "--at", at, "--category", "lamp")
    assert [row[:2] + row[3:] for row in then.rows] == [["lamp/hall", "on", "2", "2"]]
    assert then.err.startswith("as of position 2, ")
    assert pledger("states", "--position", "1", "--count").rows == [["lamp", "made", "1"]]
    (one,) = pledger("states", "--limit", "1", "--json").objects
    assert list(one) == ["stream", "status", "since", "version", "position", "as_of"]
    assert one["as_of"] == {"position": 6, "time": None, "beyond": False}
    assert "beyond the end of the log" in pledger("states", "--at", "2999-01-01").err


def test_dwell_by_category_and_of_a_stream(pledger: Pledger, switched: list[Appended]) -> None:
    rows = pledger("dwell").rows
    assert [row[:4] for row in rows] == [["lamp", "made", "1", "0"], ["lamp", "on", "1", "1"]]
    assert [row[0] for row in pledger("dwell", "--each", "--category", "lamp").rows] == ["lamp/hall"] * 2
    made, on = pledger("dwell", "lamp/hall", "--json").objects
    assert made["until"] == on["since"]
    assert (on["until"], on["version"]) == (None, 2)
    assert pledger("dwell", "lamp/none").code == 3


def test_claimed_times_are_asked_for_by_name(pledger: Pledger, log: Ledger) -> None:
    claimed = datetime.fromisoformat("2013-05-01T10:00:00+00:00")
    log.append("lamp/a", LampSwitchedOn(), claimed_at=claimed)
    asked = ("states", "--axis", "claimed", "--at")
    assert pledger(*asked, "2013-05-01T09:59Z").out == ""
    assert pledger(*asked, "2013-05-01T10:00Z").rows[0][:2] == ["lamp/a", "on"]
    assert pledger(*asked, "2013-05-01T10:00Z", "--position", "0").out == ""
    assert pledger("states", "--at", "2013-05-01T10:00Z").out == ""


def test_show_as_of_a_moment(pledger: Pledger, switched: list[Appended]) -> None:
    at = switched[0].recorded_at.isoformat()
    shown = [
        pledger("show", "lamp/hall", "--json", *way).objects[0]
        for way in (("--version", "2"), ("--position", "2"), ("--at", at))
    ]
    assert [found["as_of"]["position"] for found in shown] == [2, 2, 2]
    assert [found["state"] for found in shown] == [shown[0]["state"]] * 3
    assert (shown[0]["status"], shown[0]["state"]["read"], shown[0]["version"]) == ("on", 0, 2)
    before = pledger("show", "lamp/hall", "--position", "0")
    assert (before.code, before.out) == (3, "")
    assert "lamp/hall has no event as of position 0" in before.err


def test_show_of_an_unknown_domain_has_the_status_of_then(pledger: Pledger, log: Ledger) -> None:
    announce_statuses(log, {"desk.seen": TopicStatus(field="state")})
    for state in ("dusty", "clean"):
        log.append("desk/1", Body("desk.seen", 1, json.dumps({"state": state})))
    found = [pledger("show", "desk/1", "--json", "--version", n).objects[0] for n in ("1", "2")]
    assert [(one["status"], one["state"]) for one in found] == [("dusty", None), ("clean", None)]


def test_history_as_of_and_between(pledger: Pledger, switched: list[Appended]) -> None:
    def versions(*options: str) -> list[str]:
        return [row[0] for row in pledger("history", "lamp/hall", *options).rows]

    assert versions("--position", "2") == ["1", "2"]
    assert versions("--at", switched[0].recorded_at.isoformat(), "--reverse") == ["2", "1"]
    assert versions("--after", "1", "--upto", "3") == ["2", "3"]
    assert versions("--after", "1", "--reverse") == ["4", "3", "2"]
    assert versions("--upto", "3", "--position", "2") == ["1", "2"]
    assert versions("--position", "0") == []


def test_tail_from_a_time_on(pledger: Pledger, switched: list[Appended]) -> None:
    ended = pledger("log", "--since", switched[0].recorded_at.isoformat())
    assert [row[0] for row in ended.rows] == ["3", "4", "5"]
    assert ended.err.startswith("as of position 2, ")
    assert pledger("log", "--since", "now-1h", "--json").objects[0]["position"] == 1
    assert pledger("log", "--since", "now", "--after", "3").code == 2


REFUSED = [
    (("diff", "lamp/hall", "--from", "9"), 3, "has no version 9; its last version is 4"),
    (("diff", "lamp/hall", "--from", "yesterday"), 2, "is not a moment"),
    (("diff", "lamp/hal", "--from", "1"), 3, "did you mean lamp/hall"),
    (("diff", "lamp/hall"), 2, "--from"),
    (("blame", "lamp/hall", "--version", "9"), 3, "has no version 9; its last version is 4"),
    (("blame", "lamp/hall", "--version", "1", "--at", "now"), 2, "give one of"),
    (("why", "lamp/hall", "--version", "9"), 3, "has no version 9; its last version is 4"),
    (("why", "lamp/hall", "--within", "soon"), 2, "is not a span of time"),
    (("why", "lamp/none"), 3, "no event is recorded"),
    (("states", "--axis", "guessed"), 2, "must be recorded or claimed"),
    (("states", "--at", "now", "--position", "1"), 2, "give one of"),
    (("dwell", "lamp/hall", "--each"), 2, "a STREAM excludes"),
    (("show", "lamp/hall", "--at", "now", "--version", "1"), 2, "give one of"),
    (("history", "lamp/hall", "--at", "14:00:99"), 2, "is not a moment"),
]


def test_what_cannot_be_answered_says_why(pledger: Pledger, switched: list[Appended]) -> None:
    for arguments, code, said in REFUSED:
        ended = pledger(*arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert said in ended.err
        assert pledger(*arguments, "--json").error["exit"] == code
