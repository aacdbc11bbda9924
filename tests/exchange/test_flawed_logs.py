"""XES logs that are a little wrong, as real ones are: kept as found, counted, told with their places."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import BadFile, Ledger
from ledger.exchange import Xes
from tests.exchange.conftest import events, exported, imported, read
from tests.exchange.xes_files import SMALL, content
from tests.gateway.conftest import Ended

Written = Callable[..., Path]

FLAWED = """<log xes.version="1.0">
  <float key="meta_org:resource_events_standard_deviation" value="7.626">
    <float key="Claudemar" value="0.012"/>
    <float value="0.051"/>
    <float value="0.033"><float value="1"/></float>
  </float>
  <trace id="7">
    <string key="concept:name" value="a"/>
    <event kind="x">
      <string key="concept:name" value="Queued"/>
      <date key="time:timestamp" value="yesterday"/>
      <int key="n" value="many"/>
      <boolean key="paid"/>
      <string key="note" value="x" color="red"><int key="inner" value="1"/></string>
      <remark author="mina">see <b>below</b> &amp; above</remark>
    </event>
    <event>
      <string key="concept:name" value="Accepted"/>
      <string key="time:timestamp" value="soon"/>
    </event>
    <string key="closed by" value="theo"/>
    <event><string key="concept:name" value="Closed"/></event>
  </trace>
  <string key="source" value="a late word"/>
</log>
"""
FLAWS = [
    ("line 4", "<float> has no key"),
    ("line 5", "<float> has no key"),
    ("line 5", "<float> has no key"),
    ("trace 1, line 7", "<trace> has 'id'"),
    ("trace 1, event 1, line 9", "<event> has 'kind'"),
    ("trace 1, event 1, line 11", "the date 'time:timestamp' is 'yesterday'"),
    ("trace 1, event 1, line 12", "the int 'n' is 'many'; it must be a whole number"),
    ("trace 1, event 1, line 13", "the boolean 'paid' has no value"),
    ("trace 1, event 1, line 14", "<string> has 'color'"),
    ("trace 1, event 1, line 15", "<remark> is not an element of XES"),
    ("trace 1, event 2, line 20", "time:timestamp 'soon' is not a time"),
    ("trace 1, event 2, line 21", "<string> comes after the events of its trace"),
    ("trace 1, line 24", "<string> comes after the traces of its log"),
]


def test_what_is_wrong_is_kept_counted_and_told(log: Ledger, written: Written, tmp_path: Path) -> None:
    path = written("flawed.xes", FLAWED)
    done = imported(log, path, Xes("incident", "flawed"))
    assert (done.recorded, done.streams) == (7, 2)
    assert done.faults == len(FLAWS)
    for said, (place, wrong) in zip(done.places, FLAWS, strict=True):
        assert said.startswith(f"{place}: ")
        assert wrong in said
    assert content(exported(log, tmp_path / "out.xes", "xes", prefix="incident/")) == content(path)
    head = log.head("incident/a")
    assert head is not None
    assert head.status == "Closed"
    first = log.read("incident/a")[1]
    assert first.meta.claimed_at is None
    ended = log.read("incident.log/flawed")[-1]
    assert json.loads(ended.data or "")["faults"] == len(FLAWS)
    again = imported(log, path, Xes("incident", "flawed"))
    assert (again.recorded, again.there, again.faults) == (0, 7, len(FLAWS))


def test_text_of_an_element_that_is_not_xes_comes_out_again(
    log: Ledger, written: Written, tmp_path: Path
) -> None:
    imported(log, written("flawed.xes", FLAWED), Xes("incident", "flawed"))
    text = exported(log, tmp_path / "out.xes", "xes", prefix="incident/").read_text()
    assert "see <b>below</b> &amp; above</remark>" in text


def test_strict_refuses_the_first(log: Ledger, written: Written) -> None:
    path = written("flawed.xes", FLAWED)
    with pytest.raises(BadFile, match=r"flawed.xes, line 4: <float> has no key"):
        imported(log, path, Xes("incident", "flawed", strict=True))
    assert not events(log)
    assert imported(log, written("right.xes", SMALL), Xes("right", "small", strict=True)).faults == 0


def test_the_dry_run_tells_the_same(log: Ledger, written: Written) -> None:
    path = written("flawed.xes", FLAWED)
    dry = imported(log, path, Xes("incident", "flawed"), dry_run=True)
    done = imported(log, path, Xes("incident", "flawed"))
    assert (dry.recorded, dry.streams, dry.faults, dry.places) == (
        done.recorded,
        done.streams,
        done.faults,
        done.places,
    )


def test_the_places_that_are_named_are_bounded(written: Written) -> None:
    flaws = "<float value='1'/>" * 5000
    format = Xes("many", "many")
    read(written("many.xes", f"<log>{flaws}</log>"), format)
    assert format.faults.count == 5000
    assert len(format.faults.places) == 20


def test_late_attributes_are_bounded(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.exchange.xes_read.MAX_LATE", 10)
    late = "<trace/><string key='a' value='b'/>" * 11
    with pytest.raises(BadFile, match="more than 10 attributes after its traces"):
        read(written("late.xes", f"<log>{late}</log>"), Xes("late", "late"))


def test_an_endless_foreign_element_is_refused_early(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.exchange.xes_read.LONGEST", 1 << 20)
    with pytest.raises(BadFile, match="more than 1048576 bytes"):
        read(written("endless.xes", "<log><foo>" + "x" * (4 << 20) + "</foo></log>"), Xes("bad", "bad"))
    with pytest.raises(BadFile, match="nested deeper than 90"):
        read(written("deep.xes", "<log>" + "<foo>" * 95 + "</foo>" * 95 + "</log>"), Xes("bad", "bad"))


def test_the_command_says_how_many_and_where(
    pledger: Callable[..., Ended], written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(written("flawed.xes", FLAWED))
    refused = pledger("import", path, "--category", "incident", "--strict")
    assert refused.code == 2
    assert "line 4: <float> has no key" in refused.err
    done = pledger("import", path, "--category", "incident")
    assert done.code == 0
    assert "13 places are not as XES (IEEE 1849) has it; they were kept as they were found" in done.err
    assert "trace 1, event 1, line 12: the int 'n' is 'many'" in done.err
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 3)
    told = pledger("import", path, "--category", "again", "--json").objects[0]
    assert told["faults"] == 13
    assert told["places"][0] == "line 4: <float> has no key"
