"""JSON Lines of the user's own, mapped as CSV is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import BadFile, Ledger
from ledger.exchange.mapped_files import Mapped, MappedJsonLines
from tests.exchange.conftest import events, imported, read
from tests.gateway.conftest import Ended

Written = Callable[..., Path]
MAPPED = Mapped("scan", key_columns=["id"], time_column="at", state_column="status", actor_column="by.name")
LINES = """{"id": 7, "at": "2030-01-31T14:00:00Z", "status": "new", "by": {"name": "mina"}, "mm": 1.50}
{"id": "7", "status": null, "mm": 2}

{"id": 8, "status": 3, "by": {"name": null}}
"""


def test_lines_become_events_with_states(log: Ledger, written: Written) -> None:
    done = imported(log, written("scans.jsonl", LINES), MappedJsonLines(MAPPED))
    assert (done.recorded, done.streams) == (3, 2)
    first, second, third = events(log)
    assert (first.stream, second.stream, third.stream) == ("scan/7", "scan/7", "scan/8")
    assert first.topic == "scan.recorded"
    assert first.meta.actor == "mina"
    assert first.meta.claimed_at is not None
    assert json.loads(first.data or "") == {
        "id": 7,
        "state": "new",
        "by": {"name": "mina"},
        "mm": 1.5,
    }
    assert '"mm": 1.50' in (first.data or ""), "digits as the file has them"
    assert json.loads(second.data or "") == {"id": "7", "mm": 2}
    assert [log.head(name).status for name in ("scan/7", "scan/8")] == ["new", "3"]  # type: ignore[union-attr]
    assert imported(log, written("scans.jsonl", LINES), MappedJsonLines(MAPPED)).there == 3
    grown = written("scans.jsonl", LINES + '{"id": 9}\n')
    assert imported(log, grown, MappedJsonLines(MAPPED)).recorded == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[]", "a line must be one object"),
        ("{", "it is not JSON"),
        ('{"at": "2030-01-31T14:00:00Z"}', "it has no 'id'"),
        ('{"id": null}', "a column of the key is empty"),
        ('{"id": {"a": 1}}', "'id' must be text or a number, not an object"),
        ('{"id": true}', "'id' must be text or a number, not true"),
        ('{"id": 1, "at": "May"}', "at 'May' is not a time"),
        ('{"id": 1, "state": "x"}', "'state' conflicts with --state-column"),
        ('{"id": 1, "x": "\\u0000"}', "contains NUL"),
    ],
)
def test_a_bad_line_is_named(written: Written, line: str, says: str) -> None:
    with pytest.raises(BadFile) as caught:
        read(written("bad.jsonl", LINES + line + "\n"), MappedJsonLines(MAPPED))
    assert str(caught.value).startswith("bad.jsonl, line 5: ")
    assert says in str(caught.value)


def test_a_name_that_no_line_has_is_refused(log: Ledger, written: Written) -> None:
    mapped = Mapped("scan", key_columns=["id"], time_column="when")
    with pytest.raises(BadFile, match=r"no line has 'when'; there are 'at', 'by', 'id', 'mm', 'status'"):
        imported(log, written("scans.jsonl", LINES), MappedJsonLines(mapped))
    many = "".join(f'{{"id": {n}}}\n' for n in range(3000))
    with pytest.raises(BadFile, match=r"no line of the first 1000 has 'when'"):
        imported(log, written("many.jsonl", many), MappedJsonLines(mapped))
    assert not events(log)


def test_the_command_maps_lines(pledger: Callable[..., Ended], written: Written, log: Ledger) -> None:
    path = str(written("scans.jsonl", LINES))
    given = ("--category", "scan", "--key-column", "id", "--time-column", "at", "--state-column", "status")
    done = pledger("import", path, *given, "--json").objects[0]
    assert (done["recorded"], done["streams"]) == (3, 2)
    ids = pledger("import", path, "--category", "other", "--key-column", "id", "--id-column", "id",
                  "--file-name", "other")  # fmt: skip
    assert "line 2: the row with the id '7' is recorded" in ids.err
    assert "--time-column needs" in pledger("import", path, "--time-column", "at").err
    assert "--delimiter is not for jsonl" in pledger("import", path, *given, "--delimiter", ";").err
