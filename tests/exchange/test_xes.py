"""XES: what goes in comes out equal, state and times are where the ledger looks, bad files are named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ledger import BadFile, BadInput, Body, Ledger, StreamConflict
from ledger.domain.topics import TopicStatus
from ledger.exchange import Xes
from ledger.exchange.importer import told_statuses
from ledger.log.announce import announce_statuses
from tests.exchange.conftest import events, exported, imported, read
from tests.exchange.xes_files import SMALL, content, logs

Written = Callable[..., Path]
_numbers = count(1)


def test_a_log_comes_out_equal(log: Ledger, written: Written, tmp_path: Path) -> None:
    path = written("small.xes", SMALL)
    done = imported(log, path, Xes("incident", "small"))
    assert (done.events, done.recorded, done.streams) == (10, 10, 5)
    out = exported(log, tmp_path / "out.xes.gz", "xes", prefix="incident/")
    assert content(out) == content(path)
    again = imported(log, out, Xes("again", "small"))
    assert again.recorded == done.recorded
    assert content(exported(log, tmp_path / "again.xes", "xes", prefix="again/")) == content(path)


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(logs())
def test_any_log_comes_out_equal(log: Ledger, tmp_path: Path, text: bytes) -> None:
    category = f"chance{next(_numbers)}"
    path = tmp_path / f"{category}.xes"
    path.write_bytes(text)
    imported(log, path, Xes(category, "any"))
    assert content(exported(log, tmp_path / "out.xes", "xes", prefix=f"{category}/")) == content(path)


def test_state_actor_and_time_are_where_the_ledger_looks(log: Ledger, written: Written) -> None:
    imported(log, written("small.xes", SMALL), Xes("incident", "small"))
    trace, first, second = log.read("incident/a%2F1")
    assert trace.topic == "incident.trace"
    assert trace.version == 1
    assert first.topic == second.topic == "incident.recorded"
    assert '"state": "Queued"' in (first.data or "")
    assert first.meta.actor == "Frederic"
    assert first.meta.claimed_at == datetime(2010, 3, 31, 14, 59, 42, tzinfo=UTC)
    assert second.meta.claimed_at == datetime(2010, 3, 31, 14, 0, 0, 250000, tzinfo=UTC)
    head = log.head("incident/a%2F1")
    assert head is not None
    assert (head.version, head.status) == (3, "Accepted")
    assert told_statuses(log)["incident.recorded"] == TopicStatus(field="state")


def test_equal_names_and_no_names_are_streams_of_their_own(log: Ledger, written: Written) -> None:
    imported(log, written("small.xes", SMALL), Xes("incident", "small"))
    names = [info.stream for info in log.streams("incident/")]
    assert names == ["incident/a%2F1", "incident/a%2F1/2", "incident/unnamed/3", "incident/unnamed/4"]
    nameless = log.read("incident/a%2F1/2")[1]
    assert nameless.meta.claimed_at is None
    assert "state" not in (nameless.data or "")


def test_equal_names_are_told_apart_across_pieces(
    log: Ledger, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 2)
    trace = '<trace><string key="concept:name" value="x"/><event/><event/></trace>'
    path = written("same.xes", f"<log>{trace * 4}</log>")
    imported(log, path, Xes("same", "same"))
    assert [(info.stream, info.version) for info in log.streams("same/")] == [
        ("same/x", 3), ("same/x/2", 3), ("same/x/3", 3), ("same/x/4", 3)
    ]  # fmt: skip
    assert imported(log, path, Xes("same", "same")).there == 14
    assert content(exported(log, tmp_path / "out.xes", "xes", prefix="same/")) == content(path)


def test_several_attributes_say_the_state(log: Ledger, written: Written) -> None:
    states = ("concept:name", "lifecycle:transition")
    imported(log, written("small.xes", SMALL), Xes("incident", "small", states))
    assert ['"state": "Queued / Awaiting"' in (e.data or "") for e in log.read("incident/a%2F1")[1:]] == [
        True,
        False,
    ]
    head = log.head("incident/a%2F1")
    assert head is not None
    assert head.status == "Accepted"


def test_it_is_recorded_once_also_packed(log: Ledger, written: Written) -> None:
    path = written("small.xes", SMALL)
    imported(log, path, Xes("incident", "small"))
    before = events(log)
    again = imported(log, written("packed", gzip.compress(SMALL.encode())), Xes("incident", "small"))
    assert (again.recorded, again.there) == (0, 10)
    assert events(log) == before


def test_another_log_of_that_name_is_refused(log: Ledger, written: Written) -> None:
    imported(log, written("small.xes", SMALL), Xes("incident", "small"))
    with pytest.raises(StreamConflict) as caught:
        imported(log, written("changed.xes", SMALL.replace("Queued", "Closed")), Xes("incident", "small"))
    assert "changed.xes, line 9: the stream in this ledger is not at" in "; ".join(caught.value.__notes__)
    with pytest.raises(StreamConflict):
        imported(
            log, written("changed.xes", SMALL.replace("Queued", "Closed")), Xes("incident", "b"), dry_run=True
        )


def test_a_dry_run_records_nothing(log: Ledger, written: Written) -> None:
    path = written("small.xes", SMALL)
    would = imported(log, path, Xes("incident", "small"), dry_run=True)
    assert (would.events, would.recorded, would.there) == (10, 10, 0)
    assert not events(log)
    assert not told_statuses(log)
    imported(log, path, Xes("incident", "small"))
    would = imported(log, path, Xes("incident", "small"), dry_run=True)
    assert (would.recorded, would.there) == (0, 10)


def test_a_topic_that_leads_elsewhere_is_left_alone(log: Ledger, written: Written) -> None:
    imported(log, written("small.xes", SMALL), Xes("incident", "small"))
    announce_statuses(log, {"lamp.recorded": TopicStatus("on")})
    with pytest.raises(BadInput, match=r"lamp.recorded leads to the status 'on'"):
        imported(log, written("small.xes", SMALL), Xes("lamp", "small"))


BOMB = '<!DOCTYPE l [<!ENTITY a "aaa"><!ENTITY b "&a;&a;&a;&a;">]><log><string key="x" value="&b;"/></log>'
EVENT = "<log><trace><event>{}</event></trace></log>"
DEEP = "<log>" + "<string key='a' value='b'>" * 95 + "</string>" * 95 + "</log>"
LONG = f"<log><trace><string key='concept:name' value='{'x' * 1001}'/></trace></log>"
OUTSIDE = '<!DOCTYPE log [<!ENTITY x SYSTEM "file:///etc/hostname">]><log><string key="x" value="y"/></log>'


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (BOMB, "line 1", "declares a document type"),
        (OUTSIDE, "line 1", "declares a document type"),
        ("<log><trace><event></log>", "line 1", "mismatched tag"),
        ("<log><trace>", "line 1", "it is not XML, or it is truncated"),
        ("", "line 1", "no element found"),
        ("<html/>", "line 1", "<html> at the beginning is not XES"),
        ("<string key='a' value='b'/>", "line 1", "XES begins with <log>"),
        ("<log><event/></log>", "line 1", "<event> in <log> is not XES"),
        ("<log><trace>\n<event><foo/></event></trace></log>", "trace 1, event 1, line 2", "<foo> is no"),
        (EVENT.format("<int key='a' value='1.5'/>"), "event 1", "a whole number, such as 42"),
        (EVENT.format("<boolean key='a' value='maybe'/>"), "event 1", "true or false"),
        (EVENT.format("<float key='a' value='x'/>"), "event 1", "a number, such as 7.5"),
        (EVENT.format("<date key='a' value='May'/>"), "event 1", "must look like 2030-01-31"),
        (EVENT.format("<int key='a'/>"), "event 1", "the int 'a' has no value"),
        (EVENT.format("<string value='a'/>"), "event 1", "<string> has no key"),
        (EVENT.format("<string key='a' value='b' c='d'/>"), "event 1", "<string> has 'c'"),
        ("<log><trace a='b'/></log>", "line 1", "<trace> has 'a'"),
        ("<log><trace><event/><string key='a' value='b'/></trace></log>", "event 1", "after the events"),
        ("<log><trace/><string key='a' value='b'/></log>", "trace 1", "after the traces of its log"),
        ("<log><trace/><global scope='event'/></log>", "trace 1", "<global> comes too late"),
        (DEEP, "line 1", "nested deeper than 90"),
        (LONG, "trace 1", "more than 1000"),
        (EVENT.format("<date key='time:timestamp' value='2010-03-31T16:59:42'/>"),
         "trace 1, event 1", "has no offset from UTC"),
    ],
)  # fmt: skip
def test_a_bad_log_is_refused_with_its_place(written: Written, text: str, place: str, says: str) -> None:
    with pytest.raises(BadFile) as caught:
        read(written("bad.xes", text), Xes("bad", "bad", strict=True))
    said = str(caught.value)
    assert said.startswith("bad.xes, ")
    assert place in caught.value.place
    assert says in said
    assert len(said) < 300


def test_times_without_offset_are_of_the_zone_that_is_named(written: Written) -> None:
    text = "<log><trace><event><date key='time:timestamp' value='2010-07-01T12:00:00'/></event></trace></log>"
    found = read(written("naive.xes", text), Xes("naive", "n", zone=ZoneInfo("Europe/Zurich")))
    assert found[2].fields == {"claimed_at": "2010-07-01T10:00:00+00:00"}


def test_one_endless_tag_is_refused_early(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.exchange.xes_read.LONGEST", 1 << 20)
    packed = gzip.compress(b"<log><string key='a' value='" + b"x" * (4 << 20))
    with pytest.raises(BadFile, match="more than 1048576 bytes"):
        read(written("endless.xes.gz", packed), Xes("bad", "bad"))


def test_a_file_that_is_cut_off_is_refused(log: Ledger, written: Written) -> None:
    packed = gzip.compress(SMALL.encode() * 3)
    with pytest.raises(BadFile, match=r"cut.xes.gz: its gzip data is damaged or truncated") as caught:
        imported(log, written("cut.xes.gz", packed[: len(packed) // 2]), Xes("bad", "bad"))
    assert caught.value.__notes__ == ["nothing of the file was recorded"]
    assert not events(log)


def test_what_is_repaired_goes_on(log: Ledger, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 4)
    with pytest.raises(BadFile) as caught:
        imported(log, written("a.xes", SMALL.replace('key="note"', "")), Xes("incident", "a", strict=True))
    assert "the first 4 events of the file are recorded" in caught.value.__notes__[0]
    done = imported(log, written("a.xes", SMALL), Xes("incident", "a"))
    assert (done.there, done.recorded) == (4, 6)


def test_streams_of_other_domains_become_a_log(log: Ledger, tmp_path: Path) -> None:
    log.append(
        "lamp/1",
        Body("lamp.made", 1, '{"watts": 2.5, "on": true, "parts": [1, {"x": null}], "n": 7}'),
        actor="mina",
    )
    log.append("lamp/1", Body("lamp.raw", 1, None, b"\x00\xff"))
    log.append("lamp/2", Body("lamp.made", 1, "{}"))
    out = exported(log, tmp_path / "lamps.xes", "xes", prefix="lamp/")
    text = out.read_text()
    assert text.count("<trace>") == 2
    assert '<string key="org:resource" value="mina"/>' in text
    assert '<float key="watts" value="2.5"/>' in text
    assert imported(log, out, Xes("copy", "lamps")).events == 7
    log.append("lamp/3", Body("lamp.made", 1, '{"a": "\\u0001"}'))
    with pytest.raises(BadInput, match=r"version 1 of lamp/3 holds the character U\+0001"):
        exported(log, tmp_path / "lamps.xes", "xes", prefix="lamp/")
    assert out.read_text() == text, "the old file is kept"
    assert [path.name for path in tmp_path.iterdir()] == ["lamps.xes"]


def test_a_log_as_it_was_and_one_of_several(log: Ledger, written: Written, tmp_path: Path) -> None:
    one = written("one.xes", SMALL)
    two = written("two.xes", SMALL.replace("a/1", "b").replace("<trace/>", ""))
    imported(log, one, Xes("incident", "one"))
    end = log.bound()
    text = two.read_text().replace(
        "<event><string value", "<string key='concept:name' value='c'/><event><string value"
    )
    two.write_text(text)
    imported(log, two, Xes("incident", "two"))
    with pytest.raises(BadInput, match="several logs"):
        exported(log, tmp_path / "out.xes", "xes", prefix="incident/")
    from ledger.exchange import Part, export_events

    for path, name in ((one, "one"), (two, "two")):
        export_events(log, tmp_path / "out.xes", "xes", Part("incident/"), log=f"incident.log/{name}")
        assert content(tmp_path / "out.xes") == content(path)
    export_events(log, tmp_path / "out.xes", "xes", Part("incident/", upto=end), log="incident.log/one")
    assert content(tmp_path / "out.xes") == content(one)
