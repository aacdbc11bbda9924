"""`pledger append`: one event, checked where its domain is known, once where it has a command id."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from ledger import Ledger
from tests.gateway.conftest import Ended
from tests.lamp import OpenLamp

Pledger = Callable[..., Ended]


def test_an_event_is_recorded(pledger: Pledger, log: Ledger) -> None:
    done = pledger("append", "scan/1", "scan.started", '{"by": "é"}', "--correlation", "night 7", "--json")
    assert done.code == 0, done.err
    assert set(done.objects[0]) == {"stream", "version", "position", "recorded_at", "repeated"}
    (event,) = log.read("scan/1")
    assert (event.topic, json.loads(event.data or "")) == ("scan.started", {"by": "é"})
    assert (event.version, event.position) == (done.objects[0]["version"], done.objects[0]["position"])
    assert event.meta.correlation == "night 7"
    assert dict(pledger("append", "scan/1", "scan.ended").rows)["version"] == "2"


def test_the_body_may_come_from_stdin(pledger: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"n": 123456789012345678901234567890}'))
    assert pledger("append", "scan/1", "scan.started", "-").code == 0
    assert log.read("scan/1")[0].data == '{"n": 123456789012345678901234567890}'


def test_a_known_event_is_checked_and_leads_to_its_status(pledger: Pledger, log: Ledger) -> None:
    assert pledger("append", "lamp/a", "lamp.made", '{"watts": 40}', "--domain", "tests.lamp").code == 0
    assert log.load(OpenLamp, "a").state.watts == 40
    head = log.head("lamp/a")
    assert head is not None
    assert head.status == "made"
    for body, said in (('{"wats": 40}', "wats: Extra inputs"), ('{"watts": "x"}', "watts: Input should be")):
        refused = pledger("append", "lamp/a", "lamp.made", body, "--domain", "tests.lamp")
        assert (refused.code, said in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["[1]"], 2, "must be a JSON object"),
        (["{"], 2, "is not JSON"),
        (["{}", "--expected", "7"], 5, "expected version 7, found"),
        (["{}", "--expected", "new"], 5, "found version 1"),
        (["{}", "--expected", "soon"], 2, "must be any, new, exists, or a version"),
        (["{}", "--expected", "-1"], 2, "must be any, new, exists, or a version"),
        (['{"x": NaN}'], 2, "is not JSON: NaN is no number"),
    ],
)
def test_what_does_not_fit_is_refused_and_stores_nothing(
    pledger: Pledger, log: Ledger, arguments: list[str], code: int, said: str
) -> None:
    pledger("append", "scan/1", "scan.started")
    refused = pledger("append", "scan/1", "scan.started", *arguments)
    assert (refused.code, said in refused.err) == (code, True), refused.err
    assert len(log.read("scan/1")) == 1


def test_expectations_that_hold(pledger: Pledger, log: Ledger) -> None:
    for expected in ("new", "1", "exists", "any"):
        assert pledger("append", "scan/1", "scan.seen", "--expected", expected).code == 0
    assert pledger("append", "scan/2", "scan.seen", "--expected", "exists").code == 5
    assert len(log.read("scan/1")) == 4


def test_a_command_records_once(pledger: Pledger, log: Ledger) -> None:
    first = pledger("append", "scan/1", "scan.started", "{}", "--command", "c1", "--json").objects[0]
    again = pledger("append", "scan/1", "scan.started", "{}", "--command", "c1", "--json")
    assert again.objects[0] == first | {"repeated": True}
    assert "recorded this before" in again.err
    other = pledger("append", "scan/1", "scan.ended", "{}", "--command", "c1")
    assert (other.code, len(log.read("scan/1"))) == (5, 1)
