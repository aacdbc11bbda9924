"""Who was in which status at a moment, since when, and how long; against folds that know no SQL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from statistics import median
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import BadInput, Body, Event, Ledger, Recorded
from ledger.domain.topics import TopicStatus, leads_to
from ledger.log.announce import announce_statuses
from projections.audit import Axis, Moment, Question, counts, dwell, states, stays
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn

LAWS = settings(
    max_examples=int(os.environ.get("LEDGER_TEST_EXAMPLES", "100")) // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_numbers = count(1)
DAY = datetime(2013, 5, 1, tzinfo=UTC)
Told = tuple[datetime, int, str, Recorded]
"""One event that leads to a status: its time on the axis, its version, the status, the event."""

KINDS = st.sampled_from([LampMade, LampSwitchedOn, LampBroke, LampRead])
HISTORY = st.lists(
    st.tuples(st.integers(0, 2), KINDS, st.one_of(st.none(), st.integers(0, 5))), min_size=1, max_size=14
)
"""For each event its stream, its kind, and the hour that it claims."""


def told(events: Iterable[Recorded], axis: Axis) -> dict[str, list[Told]]:
    """What each stream's events lead to, in the order of the axis."""
    found: dict[str, list[Told]] = {}
    for event in events:
        at = event.recorded_at if axis is Axis.RECORDED else event.meta.claimed_at
        status = leads_to(event.event) if isinstance(event.event, Event) else None
        if at is not None and status is not None:
            found.setdefault(event.stream, []).append((at, event.version, status, event))
    for rows in found.values():
        rows.sort(key=lambda row: row[1] if axis is Axis.RECORDED else row[:2])  # type: ignore[arg-type, return-value]
    return found


def runs(rows: Sequence[Told]) -> list[Told]:
    """Those that begin a stay: the first, and each that leads elsewhere than the one before."""
    return [*rows[:1], *(row for before, row in pairwise(rows) if row[2] != before[2])]


def naive(events: Iterable[Recorded], axis: Axis) -> list[tuple[str, str, datetime, int, int]]:
    last = {stream: runs(rows)[-1] for stream, rows in told(events, axis).items()}
    return sorted((s, row[2], row[0], row[1], row[3].position) for s, row in last.items())


@LAWS
@given(history=HISTORY, data=st.data())
def test_states_and_stays_equal_a_naive_fold(
    log: Ledger, history: list[tuple[int, Any, int | None]], data: st.DataObject
) -> None:
    category = f"law{next(_numbers)}"
    for stream, kind, hour in history:
        claimed = None if hour is None else DAY + timedelta(hours=hour)
        log.append(f"{category}/{stream}", kind(), claimed_at=claimed)
    everything = log.log(0, log.bound(), 10**6)
    events = [event for event in everything if event.stream.startswith(f"{category}/")]
    for axis in Axis:
        position = events[0].position - 1 + data.draw(st.integers(0, len(events)))
        until = data.draw(st.sampled_from([None, *(DAY + timedelta(hours=h) for h in range(-1, 7))]))
        if axis is Axis.RECORDED:
            until = None
        moment = Moment(position=position) if until is None else Moment(time=until)
        question = Question(moment, category, axis=axis, upto=None if until is None else position)
        seen = [e for e in events if e.position <= position]
        if until is not None:
            seen = [e for e in seen if e.meta.claimed_at is not None and e.meta.claimed_at <= until]
        answer, rows = states(log, question)
        assert answer.position == position
        assert rows == naive(seen, axis)
        check_counts(log, question, rows)
        check_stays(log, question, told(seen, axis))


def check_counts(log: Ledger, question: Question, rows: Sequence[Any]) -> None:
    _, counted = counts(log, question)
    each = {status: sum(row.status == status for row in rows) for status in {row.status for row in rows}}
    assert {row.status: row.streams for row in counted} == each
    for status in each:
        assert states(log, question, status=status)[1] == [row for row in rows if row.status == status]


def check_stays(log: Ledger, question: Question, expected: dict[str, list[Told]]) -> None:
    _, rows = stays(log, question)
    wanted = []
    for stream, led in sorted(expected.items()):
        ends = [row[0] for row in runs(led)[1:]]
        wanted += [
            (stream, row[2], row[0], end, row[1]) for row, end in zip(runs(led), [*ends, None], strict=True)
        ]
    assert [row[:5] for row in rows] == wanted
    for row in rows:
        if row.until is not None:
            assert row.seconds == pytest.approx(max((row.until - row.since).total_seconds(), 0), abs=1e-6)
    _, stats = dwell(log, question)
    for stat in stats:
        times = [row.seconds for row in rows if row.status == stat.status]
        still = sum(row.until is None for row in rows if row.status == stat.status)
        assert (stat.stays, stat.open) == (len(times), still)
        assert stat.median == pytest.approx(median(times))
        assert (stat.longest, stat.total) == (pytest.approx(max(times)), pytest.approx(sum(times)))
    assert {stat.status for stat in stats} == {row.status for row in rows}


def test_who_was_running_at_a_time(log: Ledger) -> None:
    """Given two lamps that went on and one of them broke: at the time between, both were on."""
    for name in ("a", "b"):
        log.append(f"lamp/{name}", LampMade())
        on = log.append(f"lamp/{name}", LampSwitchedOn())
    broke = log.append("lamp/a", LampBroke())
    answer, rows = states(log, Question(Moment(time=on.recorded_at)), status="on")
    assert [(row.stream, row.version) for row in rows] == [("lamp/a", 2), ("lamp/b", 2)]
    assert (answer.position, answer.beyond) == (4, False)
    answer, rows = states(log, Question(Moment(time=broke.recorded_at)))
    assert [(row.stream, row.status) for row in rows] == [("lamp/a", "broken"), ("lamp/b", "on")]
    assert (answer.position, answer.beyond) == (5, True)
    assert len(states(log, Question(), limit=1)[1]) == 1


def test_the_same_status_again_does_not_begin_anew(log: Ledger) -> None:
    first = log.append("lamp/a", LampMade())
    log.append("lamp/a", LampMade(), LampRead(value=1), LampMade())
    _, (row,) = states(log, Question())
    assert (row.since, row.version) == (first.recorded_at, 1)


def test_a_category_is_its_streams_and_no_others(log: Ledger) -> None:
    for name in ("lamp", "lamp/a", "lamp-x/a", "lamp.x/a", "lampa", "lamp/a/b", "lamp0/a"):
        log.append(name, LampMade())
    assert [row.stream for row in states(log, Question(category="lamp"))[1]] == ["lamp", "lamp/a", "lamp/a/b"]
    assert [row.stream for row in states(log, Question(stream="lamp/a"))[1]] == ["lamp/a"]
    assert [row.stream for row in states(log, Question(stream="lamp"))[1]] == ["lamp"]
    assert len(states(log, Question())[1]) == 7
    _, rows = dwell(log, Question(category="lamp"), each=True)
    assert [(row.subject, row.stays, row.open) for row in rows] == [
        *[("lamp", 1, 1), ("lamp/a", 1, 1), ("lamp/a/b", 1, 1)]
    ]


def test_statuses_of_domains_that_nobody_imported(log: Ledger) -> None:
    """Given topics that the ledger was told of, one by its status and one by a field of its body."""
    announce_statuses(log, {"far.begun": TopicStatus("begun"), "far.said": TopicStatus(field="state")})
    log.append("far/1", Body("far.begun", 1, "{}"), Body("far.said", 1, '{"state":"here"}'))
    log.append("far/1", Body("far.said", 1, '{"state":null}'), Body("far.said", 1, "[]"))
    log.append("far/2", Body("far.begun", 1, "{}"), Body("far.other", 1, '{"state":"x"}'))
    log.append("far/3", Body("far.other", 1, None, b"\x00"), head=False)
    assert [row[:2] for row in states(log, Question())[1]] == [("far/1", "here"), ("far/2", "begun")]


def test_what_the_ledger_was_told_counts_more_than_what_is_known_here(log: Ledger) -> None:
    log.append("lamp/a", LampMade())
    announce_statuses(log, {"lamp.made": TopicStatus("assembled")})
    assert [row.status for row in states(log, Question())[1]] == ["assembled"]


def test_claimed_times_order_events_that_were_recorded_late(log: Ledger) -> None:
    """Given an event that was recorded last, but claims to be the first."""
    hour = timedelta(hours=1)
    log.append("lamp/a", LampSwitchedOn(), claimed_at=DAY + hour)
    log.append("lamp/a", LampBroke(), claimed_at=DAY + 3 * hour)
    log.append("lamp/a", LampMade(), claimed_at=DAY)
    log.append("lamp/a", LampRead(value=1), LampMade())  # claims nothing

    def claimed(at: datetime | None, upto: int | None = None) -> tuple[list[str], bool]:
        question = Question(Moment(time=at), axis=Axis.CLAIMED, upto=upto)
        answer, rows = states(log, question)
        return [row.status for row in rows], answer.beyond

    assert claimed(DAY - hour) == ([], False)
    assert claimed(DAY) == (["made"], False)
    assert claimed(DAY + 2 * hour) == (["on"], False)
    assert claimed(DAY + 9 * hour) == (["broken"], True)
    assert claimed(DAY, upto=2) == ([], False), "what had been recorded by then says nothing of that time"
    assert claimed(None) == (["broken"], False)
    _, rows = stays(log, Question(Moment(time=DAY + 2 * hour), stream="lamp/a", axis=Axis.CLAIMED))
    assert [(row.status, row.until, row.seconds) for row in rows] == [
        ("made", DAY + hour, 3600.0),
        ("on", None, 3600.0),
    ]
    _, rows = stays(log, Question(stream="lamp/a", axis=Axis.CLAIMED))
    assert [row.seconds for row in rows] == [3600.0, 7200.0, 0.0], "up to the latest time that is claimed"


def test_a_claimed_time_that_is_none_is_passed_over(log: Ledger) -> None:
    log.append("lamp/a", Body("lamp.made", 1, "{}", meta='{"claimed_at":"yesterday"}'))
    assert states(log, Question(axis=Axis.CLAIMED))[1] == []
    assert states(log, Question(Moment(time=DAY), axis=Axis.CLAIMED))[1] == []


def test_open_stays_count_up_to_the_moment(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    made = log.append("lamp/a", LampMade())
    later = log.append("lamp/b", LampMade())
    now = connection.execute("SELECT clock_timestamp()").fetchone()
    assert now is not None

    def seconds(moment: Moment) -> float:
        (stay,) = stays(log, Question(moment, stream="lamp/a"))[1]
        assert stay.until is None
        return stay.seconds

    between = (later.recorded_at - made.recorded_at).total_seconds()
    assert seconds(Moment(position=2)) == pytest.approx(between, abs=1e-6)
    assert seconds(Moment(position=1)) == 0
    assert seconds(Moment()) >= (now[0] - made.recorded_at).total_seconds()
    far = made.recorded_at + timedelta(days=1)
    assert seconds(Moment(time=far)) < 86_000, "no stay lasts longer than it has lasted"


def test_what_cannot_be_asked_is_refused_and_an_empty_log_has_no_states(log: Ledger) -> None:
    for question in (Question(Moment(version=1)), Question(category="a", stream="b"), Question(upto=1)):
        with pytest.raises(BadInput):
            states(log, question)
    for axis in Axis:
        assert states(log, Question(axis=axis))[1] == []
        assert dwell(log, Question(axis=axis))[1] == []
        assert counts(log, Question(Moment(time=DAY), axis=axis))[1] == []
