"""`pledger streams`, `history` and `show`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from ledger import Body, Ledger
from tests.gateway.conftest import Ended
from tests.lamp import LampRead, OpenLamp

Pledger = Callable[..., Ended]
UTC_OFFSET = timedelta(0)


@pytest.fixture
def lamps(log: Ledger) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make(40, {"big": 2**70, "text": "é\x1b[31m\n\t", "long": "x" * 500})
        lamp.switch_on()
    for number in range(3):
        with log.open(OpenLamp, "desk", number) as lamp:
            lamp.make()
    log.append("other\x1b[31m/app", Body("other.thing", 1, None, b"\x00\x01"), head=False)


def test_streams_lists_them_by_name(pledger: Pledger, lamps: None) -> None:
    ended = pledger("streams")
    assert ended.code == 0
    assert [row[:4] for row in ended.rows] == [
        ["lamp/desk/0", "1", "made", "3"],
        ["lamp/desk/1", "1", "made", "4"],
        ["lamp/desk/2", "1", "made", "5"],
        ["lamp/hall", "2", "on", "2"],
        ["other\\x1b[31m/app", "1", "", "6"],
    ]
    assert all(datetime.fromisoformat(row[4]).utcoffset() == UTC_OFFSET for row in ended.rows)


def test_streams_as_json(pledger: Pledger, lamps: None) -> None:
    (found,) = pledger("streams", "lamp/hall", "--json").objects
    assert list(found) == ["stream", "version", "status", "position", "recorded_at"]
    assert (found["stream"], found["version"], found["status"], found["position"]) == (
        "lamp/hall",
        2,
        "on",
        2,
    )
    assert datetime.fromisoformat(found["recorded_at"]).utcoffset() == UTC_OFFSET


def test_streams_page_by_page_is_all_of_them(pledger: Pledger, lamps: None) -> None:
    whole = [found["stream"] for found in pledger("streams", "--json").objects]
    seen: list[str] = []
    for _ in range(3):
        page = pledger("streams", "--json", "--limit", "2", "--after", seen[-1] if seen else "")
        assert ("there are more" in page.err) == (len(seen) < 3)
        seen += [found["stream"] for found in page.objects]
    assert seen == whole


def test_no_streams_is_no_error(pledger: Pledger, lamps: None) -> None:
    ended = pledger("streams", "nothing")
    assert (ended.code, ended.out) == (0, "")
    assert "no stream starts with 'nothing'" in ended.err
    assert pledger("streams", "nothing", "--quiet").err == ""


def test_history_shows_every_event_whole(pledger: Pledger, lamps: None) -> None:
    made, switched = pledger("history", "lamp/hall").rows
    assert (made[0], made[1], made[3], made[4]) == ("1", "1", "lamp.made", "tester")
    assert "x" * 500 in made[5]
    assert "\x1b" not in "".join(made)
    assert switched[3] == "lamp.switched_on"


def test_history_as_json_keeps_the_body_as_it_was_recorded(pledger: Pledger, lamps: None) -> None:
    made, switched = pledger("history", "lamp/hall", "--json").objects
    assert list(made) == [
        *("position", "stream", "version", "topic", "schema"),
        *("recorded_at", "actor", "data", "raw", "meta"),
    ]  # fmt: skip
    assert made["data"]["notes"] == {"big": 2**70, "text": "é\x1b[31m\n\t", "long": "x" * 500}
    assert (made["raw"], made["actor"], made["meta"]) == (None, "tester", {"actor": "tester"})
    assert switched["data"] == {}


def test_history_of_another_applications_bytes(pledger: Pledger, lamps: None) -> None:
    (found,) = pledger("history", "other\x1b[31m/app", "--json").objects
    assert (found["data"], found["raw"]) == (None, "0001")
    assert pledger("history", "other\x1b[31m/app").rows[0][5] == "<2 bytes>"


def test_history_in_both_directions_over_many_pages(
    pledger: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.streams.PAGE", 3)
    log.append("counts/one", *(LampRead(value=n) for n in range(10)))
    versions = [found["version"] for found in pledger("history", "counts/one", "--json").objects]
    assert versions == list(range(1, 11))
    turned = [found["version"] for found in pledger("history", "counts/one", "--json", "--reverse").objects]
    assert turned == versions[::-1]
    last = pledger("history", "counts/one", "--json", "--reverse", "--limit", "4").objects
    assert [found["version"] for found in last] == [10, 9, 8, 7]


def test_show_folds_a_stream_of_a_known_domain(pledger: Pledger, lamps: None) -> None:
    (found,) = pledger("show", "lamp/hall", "--json").objects
    assert list(found) == [
        *("stream", "category", "key", "version", "status", "state", "last_event", "as_of")
    ]  # fmt: skip
    assert found["as_of"] is None
    assert (found["category"], found["key"], found["version"]) == ("lamp", ["hall"], 2)
    assert (found["status"], found["state"]["status"], found["state"]["watts"]) == ("on", "on", 40.0)
    assert datetime.fromisoformat(found["state"]["made_at"]).utcoffset() == UTC_OFFSET
    assert found["last_event"]["topic"] == "lamp.switched_on"


def test_show_at_a_version(pledger: Pledger, lamps: None) -> None:
    (found,) = pledger("show", "lamp/hall", "--json", "--at-version", "1").objects
    assert (found["version"], found["status"], found["last_event"]["version"]) == (1, "made", 1)
    beyond = pledger("show", "lamp/hall", "--at-version", "3")
    assert (beyond.code, beyond.out) == (3, "")
    assert "has no version 3; its last version is 2" in beyond.err
    assert pledger("show", "lamp/hall", "--at-version", "0").code == 2


def test_show_at_every_version_equals_what_it_was_then(pledger: Pledger, log: Ledger) -> None:
    then = []
    for number in range(1, 6):
        with log.open(OpenLamp, "cellar") as lamp:
            lamp.make() if number == 1 else lamp.read(number)
        (shown,) = pledger("show", "lamp/cellar", "--json").objects
        then.append(shown["state"])
    now = [
        json.loads(pledger("show", "lamp/cellar", "--json", "--at-version", str(number)).out)["state"]
        for number in range(1, 6)
    ]
    assert now == then


def test_show_without_a_known_domain(process: Pledger, lamps: None) -> None:
    ended = process("show", "lamp/hall")
    fields = dict(row for row in ended.rows)
    assert (ended.code, fields["version"], fields["status"]) == (0, "2", "on")
    assert "no imported domain folds 'lamp' streams" in ended.err
    known = process("show", "lamp/hall", "--domain", "tests.lamp", "--json")
    assert known.objects[0]["state"]["watts"] == 40.0
    assert process("show", "lamp/hall", "--json", LEDGER_DOMAINS="tests.lamp").objects == known.objects


def test_show_of_bytes_without_a_head(pledger: Pledger, lamps: None) -> None:
    (found,) = pledger("show", "other\x1b[31m/app", "--json").objects
    assert (found["version"], found["status"], found["state"]) == (1, None, None)


@pytest.mark.parametrize("command", ["history", "show"])
def test_an_unknown_stream_is_answered_with_near_names(pledger: Pledger, lamps: None, command: str) -> None:
    ended = pledger(command, "lamp/hal")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "pledger: no event is recorded under 'lamp/hal'; did you mean lamp/hall?\n"
    told = pledger(command, "lamp/hal", "--json").error
    assert (told["error"], told["parts"]["stream"], told["exit"]) == ("StreamNotFound", "lamp/hal", 3)


def test_a_name_that_is_like_no_other_has_no_suggestion(pledger: Pledger, lamps: None) -> None:
    assert pledger("history", "zzz").err == "pledger: no event is recorded under 'zzz'\n"


@pytest.mark.parametrize("name", ["", "a\x00b", "x" * 1001, "\udcff"])
def test_a_name_that_cannot_be_one(pledger: Pledger, name: str) -> None:
    ended = pledger("history", name, "--json")
    assert (ended.code, ended.out, ended.error["error"]) == (2, "", "BadName")
