"""What is asked for by version, position or time, and the position that it means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ledger import BadInput, Ledger, StreamNotFound
from projections.audit import AsOf, Moment, as_of
from projections.audit.moments import parse_span, parse_time
from tests.lamp import LampMade, LampRead, OpenLamp

KOLKATA = timezone(timedelta(hours=5, minutes=30))
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2026-02-03T04:05:06+02:00", datetime(2026, 2, 3, 2, 5, 6, tzinfo=UTC)),
        ("2026-02-03T04:05:06Z", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2026-02-03 04:05", datetime(2026, 2, 3, 4, 5, tzinfo=KOLKATA)),
        ("2026-02-03", datetime(2026, 2, 3, tzinfo=KOLKATA)),
        ("14:00", datetime(2026, 3, 1, 14, tzinfo=KOLKATA)),
        ("14:00Z", datetime(2026, 3, 1, 14, tzinfo=UTC)),
        ("now", NOON),
        ("now-2h30m", NOON - timedelta(hours=2.5)),
        (" now-1w1d1s ", NOON - timedelta(days=8, seconds=1)),
    ],
)
def test_a_time_is_read(text: str, means: datetime) -> None:
    assert parse_time(text, zone=KOLKATA, now=NOON) == means


def test_a_time_without_an_offset_is_local() -> None:
    assert parse_time("2026-02-03T04:05") == datetime(2026, 2, 3, 4, 5).astimezone()


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "@", "@-1", "now-", "now+1h", "now-5", "25:00", "2026-13-01", "now-999999999w"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a moment: give a time such as"):
        Moment.parse(text)


def test_a_moment_is_read() -> None:
    assert Moment.parse("7") == Moment(version=7)
    assert Moment.parse("@123") == Moment(position=123)
    assert Moment.parse("2026-02-03T00:00Z") == Moment(time=datetime(2026, 2, 3, tzinfo=UTC))
    assert parse_span("1d12h") == timedelta(days=1.5)


@pytest.mark.parametrize("span", ["", "1", "h", "1y", "-1h", "1h ", "999999999w"])
def test_what_is_no_span_is_refused(span: str) -> None:
    with pytest.raises(BadInput):
        parse_span(span)


@pytest.mark.parametrize(
    "parts",
    [
        {"version": 1, "position": 1},
        {"position": 1, "time": NOON},
        {"version": -1},
        {"position": 2**63},
        {"time": NOON.replace(tzinfo=None)},
    ],
)
def test_what_is_no_moment_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Moment(**parts)


def test_every_way_to_ask_names_the_position(log: Ledger) -> None:
    """Given a lamp of two events and another between: each way to ask for the first means its position."""
    first = log.append("lamp/a", LampMade())
    other = log.append("lamp/b", LampMade())
    last = log.append("lamp/a", LampRead(value=1))
    assert as_of(log, Moment(version=1), stream="lamp/a") == AsOf(1, None, False, "lamp/a", 1)
    assert as_of(log, Moment(position=2), stream="lamp/a") == AsOf(2, None, False, "lamp/a", 1)
    at = other.recorded_at
    assert as_of(log, Moment(time=at), stream="lamp/a") == AsOf(2, at, False, "lamp/a", 1)
    before = first.recorded_at - timedelta(microseconds=1)
    assert as_of(log, Moment(time=before), stream="lamp/a") == AsOf(0, before, False, "lamp/a", 0)
    assert as_of(log, stream="lamp/a") == AsOf(last.last_position, None, False, "lamp/a", 2)
    assert as_of(log, Moment(version=0), stream="lamp/b") == AsOf(1, None, False, "lamp/b", 0)


def test_what_lies_beyond_the_log_says_so(log: Ledger) -> None:
    last = log.append("lamp/a", LampMade())
    later = last.recorded_at + timedelta(days=1)
    assert as_of(log, Moment(time=later)) == AsOf(1, later, True)
    assert as_of(log, Moment(time=last.recorded_at)) == AsOf(1, last.recorded_at, True)
    assert as_of(log, Moment(position=2)) == AsOf(1, None, True)
    assert as_of(log, Moment(version=5), stream="lamp/a") == AsOf(1, None, True, "lamp/a", 1)
    assert as_of(log, Moment(position=1)) == AsOf(1)


def test_no_answer_is_beyond_what_is_safe_to_read(log: Ledger, connect: Callable[..., Any]) -> None:
    """While an append is open, what was recorded after it is not in the answer yet, whatever is asked."""
    with connect(autocommit=False) as connection:
        with log.join(connection) as joined:
            joined.append("lamp/slow", LampMade())
        second = log.append("lamp/a", LampMade())
        assert second.last_position == 2
        far = second.recorded_at + timedelta(days=1)
        asked = [Moment(), Moment(time=far), Moment(time=second.recorded_at), Moment(position=9)]
        assert [as_of(log, moment).position for moment in asked] == [0, 0, 0, 0]
        connection.commit()
    assert [as_of(log, moment).position for moment in asked] == [2, 2, 2, 2]


def test_a_stream_that_nobody_recorded_is_refused(log: Ledger) -> None:
    log.append("lamp/a", LampMade())
    for moment in (Moment(), Moment(version=0), Moment(version=2), Moment(position=1)):
        with pytest.raises(StreamNotFound):
            as_of(log, moment, stream="lamp/none")
    with pytest.raises(BadInput, match="name the stream"):
        as_of(log, Moment(version=1))


def test_a_stream_is_loaded_as_of_every_version(log: Ledger) -> None:
    """Before the version of the head's state, at it and after it."""
    with log.open(OpenLamp, "a") as lamp:
        lamp.make(40)
        lamp.read(1)
    log.append("lamp/a", LampRead(value=2), LampRead(value=3))  # the head's state stays at 2
    seen = [log.load(OpenLamp, "a", version=version) for version in range(6)]
    assert [lamp.version for lamp in seen] == [0, 1, 2, 3, 4, 4]
    assert [lamp.state.values for lamp in seen] == [(), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3)]
    assert seen[5].state == log.load(OpenLamp, "a").state
