"""JSON Lines and CSV: import(export(x)) == x, whatever x holds."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledger import Body, CommandReused, Ledger, Meta, Recorded
from ledger.domain import canonical_json
from ledger.domain.topics import TopicStatus
from ledger.errors import BadBody
from ledger.exchange.csv_files import Dialect, EnvelopeCsv
from ledger.exchange.importer import told_statuses
from ledger.exchange.json_lines import JsonLines
from ledger.log.announce import announce_statuses
from ledger.log.append import Append
from tests.exchange.conftest import events, exported, imported

FORMATS: dict[str, Callable[[Ledger], Any]] = {
    "jsonl": lambda log: JsonLines(told_statuses(log), log.identity.ledger),
    "csv": lambda log: EnvelopeCsv(Dialect(), told_statuses(log), log.identity.ledger),
}


def kept(event: Recorded) -> tuple[Any, ...]:
    """What an event is, wherever it lies: all but position, times of recording, and ids of commands."""
    meta = json.loads(event.meta_data or "{}")
    claimed = meta.get("claimed_at") or event.recorded_at.isoformat()
    first = meta.get("origin", meta).get("command")
    cause = str(meta.get("causation")).rpartition(":")[2]
    told = (meta.get("actor"), meta.get("correlation"), cause, claimed, first, meta.get("more"))
    return (event.stream, event.version, event.topic, event.schema, event.data, event.raw, *told)


_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10),
        st.sampled_from([1e16, 2**70, 0.1, 1e-300, 5e-324, "\u2028\r\n", '","', "=1+1"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text("ab,\"\n;é", max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip
_META = st.builds(
    Meta,
    actor=st.sampled_from([None, "", "mina", "ü;\n", "=1+1", "'=1", "'", "-x", "@x", "\t+", "''"]),
    correlation=st.sampled_from([None, "c"]),
    causation=st.sampled_from([None, "x", 7]),
    command=st.sampled_from([None, "cmd 1"]),
    claimed_at=st.one_of(st.none(), st.datetimes(timezones=st.timezones(no_cache=True))),
)
_EVENTS = st.tuples(
    st.sampled_from(["lamp/1", "lamp/2", "a,b;c/\"'\n", "ünï", "=HYPERLINK(1)/x", "'+1", "-1/2", "@a"]),
    st.sampled_from(["lamp.made", "Other:App.Event#1"]),
    st.integers(0, 32767),
    st.one_of(st.dictionaries(st.text('ab,"\n;é', max_size=3), _JSON, max_size=3), st.binary(max_size=5)),
    _META,
)


def record(log: Ledger, given: list[tuple[str, str, int, Any, Meta]]) -> None:
    for stream, topic, schema, value, meta in given:
        data = None if isinstance(value, bytes) else canonical_json.body(value)
        raw = value if isinstance(value, bytes) else None
        log.append(stream, Body(topic, schema, data, raw, meta.body()), head=data is not None)


def storable(given: list[tuple[str, str, int, Any, Meta]]) -> bool:
    try:
        return all(isinstance(value, bytes) or canonical_json.body(value) for *_, value, _ in given)
    except BadBody:
        return False


@settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(_EVENTS, min_size=4, max_size=10).filter(storable), st.integers())
@pytest.mark.parametrize("format", FORMATS)
def test_any_event_survives(
    log: Ledger, other: Ledger, tmp_path: Path, format: str, given: list[Any], salt: int
) -> None:
    prefix = f"{random.Random(salt).getrandbits(60):x}{log.bound()}/"
    record(log, [(prefix + stream, *rest) for stream, *rest in given])
    out = exported(log, tmp_path / f"out.{format}", format, prefix=prefix)
    imported(other, out, FORMATS[format](other))
    mine = [event for event in events(log) if event.stream.startswith(prefix)]
    theirs = [event for event in events(other) if event.stream.startswith(prefix)]
    assert list(map(kept, theirs)) == list(map(kept, mine))
    assert [len(given), "in one order"] == [len(theirs), "in one order"]


def test_no_cell_of_a_table_is_a_formula(log: Ledger, tmp_path: Path) -> None:
    """Who appends chooses names, and another one opens the table."""
    for nth, odd in enumerate(("=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "'=1")):
        log.append(f"{odd}/{nth}", Body("lamp.made", 1, "{}"), actor=odd)
    with exported(log, tmp_path / "out.csv", "csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert "'=HYPERLINK(1)/0" in cells


@pytest.mark.parametrize("format", FORMATS)
def test_a_ledger_moves_whole(log: Ledger, other: Ledger, tmp_path: Path, format: str) -> None:
    announce_statuses(log, {"lamp.made": TopicStatus("made"), "job.moved": TopicStatus(field="to")})
    log.append_all(
        [Append("lamp/1", [Body("lamp.made", 3, '{"n": 1.10, "m": 12345678901234567890.5}')])],
        command="first",
    )
    log.append("job/1", Body("job.moved", 1, '{"to": "RUNNING"}'), causation=1, correlation="c")
    log.append("job/1", Body("job.noted", 1, "{}"), actor="mina")
    log.append("raw/1", Body("app:Made", 1, None, b""), head=False)
    out = exported(log, tmp_path / f"out.{format}.gz", format)
    done = imported(other, out, FORMATS[format](other))
    assert (done.recorded, done.streams) == (4, 3)
    assert list(map(kept, events(other))) == list(map(kept, events(log)))
    first, second, *_ = events(other)
    assert first.data == '{"m": 12345678901234567890.5, "n": 1.10}'
    assert first.meta.claimed_at == events(log)[0].recorded_at
    assert second.meta.causation == f"{log.identity.ledger}:1", (
        "a position of another ledger is no position here"
    )
    if format == "jsonl":
        assert [other.head(name).status for name in ("lamp/1", "job/1")] == ["made", "RUNNING"]  # type: ignore[union-attr]
        assert told_statuses(other) == told_statuses(log)
    assert other.head("raw/1") is None
    again = imported(other, out, FORMATS[format](other))
    assert (again.recorded, again.there) == (0, 4)
    back = exported(other, tmp_path / f"back.{format}", format)
    assert imported(log, back, type(FORMATS[format](log))(**_renumbered(log, format))).recorded == 4
    assert list(map(kept, events(log)[:4])) == [
        (*kept(e)[:1], i, *kept(e)[2:]) for e, i in zip(events(other), (1, 1, 2, 1), strict=True)
    ]


def _renumbered(log: Ledger, format: str) -> dict[str, Any]:
    dialect = {"dialect": Dialect()} if format == "csv" else {}
    return {**dialect, "here": log.identity.ledger, "renumber": True}


def test_a_command_of_an_import_is_no_command_of_the_user(log: Ledger, other: Ledger, tmp_path: Path) -> None:
    log.append("lamp/1", Body("lamp.made", 1, "{}"), command="mine")
    imported(other, exported(log, tmp_path / "out.jsonl", "jsonl"), FORMATS["jsonl"](other))
    (event,) = events(other)
    assert (event.meta.command or "").startswith("import/0/-/")
    assert json.loads(event.meta_data or "{}")["origin"]["command"] == "mine"
    with pytest.raises(CommandReused):
        other.append("lamp/2", Body("lamp.made", 1, "{}"), command=event.meta.command)


def test_a_part_is_what_was_asked_for(log: Ledger, tmp_path: Path) -> None:
    for nth in range(1, 6):
        log.append(f"lamp/{nth % 2}", Body("lamp.made" if nth < 4 else "lamp.broke", 1, "{}"))
    log.append("lampoon/1", Body("lamp.made", 1, "{}"))

    def positions(**part: Any) -> list[int]:
        text = exported(log, tmp_path / "part.jsonl", "jsonl", **part).read_text()
        return [json.loads(line)["position"] for line in text.splitlines()]

    assert positions() == [1, 2, 3, 4, 5, 6]
    assert positions(prefix="lamp/") == [1, 2, 3, 4, 5]
    assert positions(prefix="lamp/1", after=1, upto=4) == [3]
    assert positions(topics=["lamp.broke"]) == [4, 5]
    assert positions(prefix="none") == []
