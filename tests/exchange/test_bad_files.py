"""Files that are not what they should be: each is refused with its place, and with what would be right."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ledger import BadFile, BadInput, Body, Ledger, StreamConflict
from ledger.domain.topics import TopicStatus
from ledger.exchange import Source
from ledger.exchange.csv_files import Dialect, EnvelopeCsv
from ledger.exchange.importer import told_statuses, zone_named
from ledger.exchange.json_lines import JsonLines
from ledger.exchange.mapped_files import Mapped, MappedCsv
from tests.exchange.conftest import events, imported, read

Written = Callable[..., Path]
GOOD = '{"stream": "a/1", "topic": "a.b", "data": {}}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "it is not JSON"),
        ("[]", "a line must be one object"),
        ('{"topic": "a.b", "data": {}}', "stream name '' must be text that is not empty"),
        ('{"stream": 7, "topic": "a.b", "data": {}}', "stream name 7 must be text"),
        ('{"stream": "a/1", "data": {}}', "`topic` must be text, not null"),
        ('{"stream": "a/1", "topic": "a.b"}', "either `data` or `raw`"),
        ('{"stream": "a/1", "topic": "a.b", "data": [1]}', "`data` must be an object, such as"),
        ('{"stream": "a/1", "topic": "a.b", "data": null}', "`data` must be an object, such as"),
        ('{"stream": "a/1", "topic": "a.b", "data": "x"}', "`data` must be an object, such as"),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "raw": {"base64": ""}}', "exactly one"),
        ('{"stream": "a/1", "topic": "a.b", "raw": "00ff"}', 'must be {"base64": "…"}'),
        ('{"stream": "a/1", "topic": "a.b", "raw": {"base64": "?"}}', "not base64"),
        (
            '{"stream": "a/1", "topic": "a.b", "data": {}, "version": 0}',
            "`version` must be an integer from 1",
        ),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "version": true}', "not true"),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "schema": 40000}', "`schema` must be an integer"),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "when": 1}', "the key 'when' is none of actor, data"),
        ('{"stream": "a/1", "topic": "a.b", "data": {"x": NaN}}', "NaN is not a number"),
        ('{"stream": "a/1", "topic": "a.b", "data": {"x": -0.0}}', "-0.0 would be stored as 0.0"),
        ('{"stream": "a/1", "topic": "a.b", "data": {"x": "\\u0000"}}', "x: contains NUL"),
        ('{"stream": "a/1", "topic": "a.b", "data": {"x": "\\ud800"}}', "x: contains a lone surrogate"),
        (
            '{"stream": "a/1", "topic": "a.b", "data": ' + "[" * 300 + "]" * 300 + "}",
            "nested deeper than 200",
        ),
        ('{"stream": "a/1", "topic": "a.b", "data": ' + "[" * 9999 + "]" * 9999 + "}", "cannot be read"),
        ('{"stream": "a/1", "topic": "a.b", "data": ' + "9" * 5000 + "}", "cannot be read"),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "meta": []}', "`meta` must be an object"),
        (
            '{"stream": "a/1", "topic": "a.b", "data": {}, "meta": {"actor": 1}}',
            "`actor` must be text, not 1",
        ),
        (
            '{"stream": "a/1", "topic": "a.b", "data": {}, "meta": {"causation": 1.5}}',
            "`causation` must be an integer",
        ),
        (
            '{"stream": "a/1", "topic": "a.b", "data": {}, "recorded_at": "2030-01-01T10:00:00"}',
            "--time-zone",
        ),
        (
            '{"stream": "a/1", "topic": "a.b", "data": {}, "recorded_at": "yesterday"}',
            "'yesterday' is not a time",
        ),
        ('{"stream": "a/1", "topic": "a.b", "data": {}, "leads_to": {"to": "x"}}', "`leads_to` must be"),
    ],
)
def test_a_bad_line_is_named(written: Written, line: str, says: str) -> None:
    with pytest.raises(BadFile) as caught:
        read(written("bad.jsonl", GOOD + "\n" + line + "\n"), JsonLines())
    assert str(caught.value).startswith("bad.jsonl, line 3: ")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


def test_bytes_that_are_no_text_are_named(written: Written) -> None:
    with pytest.raises(BadFile, match="line 2: it is not UTF-8"):
        read(written("bad.jsonl", GOOD.encode() + b'{"stream": "\xff"}\n'), JsonLines())
    assert read(written("mark.jsonl", b"\xef\xbb\xbf" + GOOD.encode()), JsonLines())


@pytest.mark.parametrize(
    "endless", [b"x" * 100_000, b'"' + b"x\n" * 50_000, b'"x\n",' * 30_000, b"x," * 50_000]
)
def test_an_endless_row_is_refused_early(
    written: Written, monkeypatch: pytest.MonkeyPatch, endless: bytes
) -> None:
    """Also where it is packed, and a few bytes are gigabytes."""
    monkeypatch.setattr("ledger.exchange.csv_files.LONGEST", 1000)
    rows = b"stream,topic,data\n" + b"a/1,a.b,{}\n" * 500
    for content in (rows + endless, gzip.compress(rows + endless)):
        with pytest.raises(BadFile, match="the row has more than 1000 characters"):
            read(written("bad.csv", content), EnvelopeCsv(Dialect()))
    with pytest.raises(BadFile, match="the title line has more than 1000 characters"):
        read(written("bad.csv", gzip.compress(endless.replace(b"\n", b""))), EnvelopeCsv(Dialect()))
    assert len(read(written("good.csv", gzip.compress(rows)), EnvelopeCsv(Dialect()))) == 500


def test_an_endless_line_is_refused_early(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.exchange.json_lines.LONGEST", 1000)
    with pytest.raises(BadFile, match="line 1: the line has more than 1000 bytes"):
        read(written("bad.jsonl", b'{"stream": "' + b"x" * 100_000), JsonLines())


def versions(*numbers: int) -> str:
    parts = {"stream": "a/1", "topic": "a.b", "data": {}}
    return "".join(json.dumps({**parts, "version": number}) + "\n" for number in numbers)


def test_versions_must_go_on(log: Ledger, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadFile, match=r"line 3: version 4 of a/1 follows version 2; it should be 3"):
        imported(log, written("gap.jsonl", versions(1, 2, 4)), JsonLines())
    with pytest.raises(StreamConflict) as caught:
        imported(log, written("late.jsonl", versions(2)), JsonLines())
    assert "late.jsonl, line 1: the stream in this ledger is not at" in caught.value.__notes__[0]
    assert caught.value.__notes__[1] == "nothing of the file was recorded"
    assert not events(log)
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 2)
    with pytest.raises(StreamConflict) as caught:
        imported(log, written("gap.jsonl", versions(1, 2, 4, 5)), JsonLines())
    assert "line 3" in caught.value.__notes__[0]
    assert "the first 2 events of the file are recorded" in caught.value.__notes__[1]
    done = imported(log, written("gap.jsonl", versions(1, 2, 3, 4)), JsonLines())
    assert (done.there, done.recorded) == (2, 2)
    log.append("a/1", Body("a.b", 1, "{}"))
    with pytest.raises(StreamConflict):
        imported(log, written("more.jsonl", versions(1)), JsonLines(), dry_run=True)
    assert imported(log, written("more.jsonl", versions(1)), JsonLines(renumber=True)).recorded == 1
    assert len(events(log)) == 6


MAPPED = Mapped("scan", key_columns=["id"], time_column="at", state_column="status", actor_column="who")
ZURICH = ZoneInfo("Europe/Zurich")


@pytest.mark.parametrize(
    ("start", "encoding", "delimiter"),
    [
        (b"", "utf-8", ","),
        (b"\xef\xbb\xbf", "utf-8", ";"),
        (b"\xff\xfe", "utf-16-le", "\t"),
        (b"", "utf-8", "|"),
    ],
)
def test_csv_of_any_dialect(written: Written, start: bytes, encoding: str, delimiter: str) -> None:
    rows = [
        ["id", "at", "status", "who", "größe"],
        ["7", "2030-07-01 12:00", "new", "mina", '"a\n1"'],
        ["8", "", "", "", ""],
    ]
    text = "\r\n".join(delimiter.join(row) for row in rows)
    first, second = read(
        written("scans.csv", start + text.encode(encoding)), MappedCsv(Dialect(), MAPPED, ZURICH)
    )
    assert first.stream == "scan/7"
    assert first.topic == "scan.recorded"
    assert first.fields == {"actor": "mina", "claimed_at": "2030-07-01T10:00:00+00:00"}
    assert json.loads(first.data or "") == {"id": "7", "state": "new", "größe": "a\n1"}
    assert first.status == "new"
    assert second.fields == {}
    assert json.loads(second.data or "") == {"id": "8", "größe": ""}


@pytest.mark.parametrize(
    ("text", "mapped", "says"),
    [
        ("", MAPPED, "line 1: it is empty"),
        ("id,id\n1,2\n", MAPPED, "line 1: two columns are named 'id'"),
        ("id,at\n1,2\n", MAPPED, "line 1: there is no column 'status'; there are 'id', 'at'"),
        ("id,at,status,who\n1,2\n", MAPPED, "line 2: it has 2 values, and the title line names 4 columns"),
        ("id,at,status,who\n1,May,,\n", MAPPED, "line 2: at 'May' is not a time"),
        (
            "id,at,status,who\n1,2030-01-01T10:00,,\n",
            MAPPED,
            "line 2: at '2030-01-01T10:00' has no offset",
        ),
        ("id,at,status,who\n,,,\n", MAPPED, "line 2: a column of the key is empty"),
        ("id,at,status,who,state\n1,,,,x\n", MAPPED, "line 2: the column 'state' conflicts"),
        ('id,at,status,who\n1,,,"x\n', MAPPED, "after line 1: it is not CSV (unexpected end of data)"),
        (b"id,at,status,who\n1,,,\xff\n", MAPPED, "is not utf-8 (invalid start byte): give the encoding"),
        (
            "s,t\na/1,In Progress\n",
            Mapped(stream_column="s", topic_column="t"),
            "line 2: topic 'In Progress' must be lower-case",
        ),
        ("s,t\na/1,\n", Mapped(stream_column="s", topic_column="t"), "line 2: the row has no topic"),
    ],
)
def test_a_bad_csv_is_named(written: Written, text: str | bytes, mapped: Mapped, says: str) -> None:
    with pytest.raises(BadFile) as caught:
        read(written("bad.csv", text), MappedCsv(Dialect(), mapped))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stream,topic,data,colour\na/1,a.b,{},red\n", "the column 'colour' is none of an export"),
        ("stream,topic,data,version\na/1,a.b,{},x\n", "version 'x' must be a whole number"),
        ("stream,topic,data\na/1,a.b,{\n", "it is not JSON"),
        ("stream,topic,data,meta\na/1,a.b,{},{\n", "`meta` is not JSON"),
    ],
)
def test_a_bad_csv_of_ours_is_named(written: Written, text: str, says: str) -> None:
    with pytest.raises(BadFile, match=r"bad.csv, line 2: ") as caught:
        read(written("bad.csv", text), EnvelopeCsv(Dialect()))
    assert says in str(caught.value)


def test_settings_that_cannot_be(written: Written) -> None:
    for mapped in (Mapped(), Mapped(key_columns=["id"]), Mapped(stream_column="s"), Mapped("c", "s", ["id"])):
        with pytest.raises(BadInput):
            MappedCsv(Dialect(), mapped)
    with pytest.raises(BadInput, match="there is no time zone 'Mars'"):
        zone_named("Mars")
    with pytest.raises(BadInput, match="unknown encoding: klingon"):
        read(written("a.csv", "id\n"), MappedCsv(Dialect(encoding="klingon"), MAPPED))
    with (
        pytest.raises(BadFile, match=r"nowhere.csv: it cannot be read: No such file"),
        Source.of("nowhere.csv"),
    ):
        pass


def test_rows_become_events_with_states(log: Ledger, written: Written) -> None:
    path = written(
        "scans.csv", "id,at,status,who\n1,2030-01-01T10:00Z,new,mina\n2,,new,\n1,2029-01-01T10:00Z,done,\n"
    )
    done = imported(log, path, MappedCsv(Dialect(), MAPPED))
    assert (done.recorded, done.streams) == (3, 2)
    assert [event.stream for event in events(log)] == ["scan/1", "scan/2", "scan/1"]
    assert [log.head(name).status for name in ("scan/1", "scan/2")] == ["done", "new"]  # type: ignore[union-attr]
    assert told_statuses(log) == {"scan.recorded": TopicStatus(field="state")}
    again = imported(log, path, MappedCsv(Dialect(), MAPPED))
    assert (again.recorded, again.there) == (0, 3)
