"""The instants of schedules: intervals, cron and recurrence rules, at changes of the clocks, and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput
from ledger.runs.schedules import checked_schedule, next_times

BERLIN = "Europe/Berlin"
BEFORE_SUMMER = datetime(2026, 3, 28, 12, tzinfo=UTC)
BEFORE_WINTER = datetime(2026, 10, 24, 12, tzinfo=UTC)


def local(schedule: dict[str, Any], after: datetime, many: int) -> list[str]:
    zone = ZoneInfo(schedule.get("timezone") or "UTC")
    return [at.astimezone(zone).strftime("%d %H:%M") for at in next_times(schedule, after, many)]


def interval(seconds: float, anchor: str = "2026-01-01T09:00:00+01:00", zone: str = BERLIN) -> dict[str, Any]:
    return {"interval": seconds, "anchor_date": anchor, "timezone": zone}


@pytest.mark.parametrize("after", [BEFORE_SUMMER, BEFORE_WINTER])
def test_a_daily_interval_keeps_its_time_of_day(after: datetime) -> None:
    assert [text[3:] for text in local(interval(86400), after, 3)] == ["09:00"] * 3


@pytest.mark.parametrize("after", [BEFORE_SUMMER, BEFORE_WINTER])
def test_an_hourly_interval_follows_elapsed_time(after: datetime) -> None:
    found = next_times(interval(3600), after, 30)
    assert {b - a for a, b in pairwise(found)} == {timedelta(hours=1)}


def test_a_time_that_the_clocks_skip_is_taken_later() -> None:
    daily = interval(86400, "2026-01-01T02:30:00+01:00")
    assert local(daily, BEFORE_SUMMER, 2) == ["29 03:30", "30 02:30"]
    weekly = {"rrule": "DTSTART:20260101T023000\nFREQ=DAILY", "timezone": BERLIN}
    assert local(weekly, BEFORE_SUMMER, 2) == ["29 03:30", "30 02:30"]


def test_a_time_that_exists_twice_is_taken_once() -> None:
    for schedule in (
        interval(86400, "2026-01-01T02:30:00+01:00"),
        {"cron": "30 2 * * *", "timezone": BERLIN},
        {"rrule": "DTSTART:20260101T023000\nFREQ=DAILY", "timezone": BERLIN},
    ):
        assert local(schedule, BEFORE_WINTER, 2) == ["25 02:30", "26 02:30"]
        assert next_times(schedule, BEFORE_WINTER, 1) == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]


@given(
    st.sampled_from([60.0, 3600.0, 5400.0, 86400.0, 3 * 86400.0, 129600.0]),
    st.integers(0, 730 * 86400),
    st.integers(0, 40),
)
@settings(max_examples=25, deadline=None)
def test_an_instant_does_not_depend_on_when_it_is_asked_for(seconds: float, after: int, further: int) -> None:
    """Law: from a later time on, the instants are the same ones; else a slot would fire twice."""
    schedule, start = interval(seconds), datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=after)
    found = next_times(schedule, start, 60)
    assert found == sorted(set(found))
    assert found[0] > start
    assert next_times(schedule, found[further], 10) == found[further + 1 : further + 11]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY;INTERVAL=7",
        "FREQ=MINUTELY;INTERVAL=45",
        "FREQ=HOURLY;BYMINUTE=0,20",
        "FREQ=WEEKLY;BYDAY=MO,FR",
        "FREQ=DAILY;INTERVAL=3",
        "FREQ=MONTHLY;BYDAY=-1FR",
    ],
)
def test_a_rule_that_began_long_ago_has_the_same_instants_as_its_whole_walk(rule: str) -> None:
    from dateutil.rrule import rrulestr

    start, after = datetime(2026, 1, 29, 5, 3, 1, tzinfo=UTC), datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    whole = rrulestr(rule, dtstart=start)
    text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule}"
    assert next_times({"rrule": text, "timezone": "UTC"}, after, 20) == [*whole.xafter(after, count=20)]


def test_a_rule_ends_with_its_count_its_end_and_its_exceptions() -> None:
    after = datetime(2019, 12, 31, tzinfo=UTC)
    days = [datetime(2020, 1, day, tzinfo=UTC) for day in range(1, 6)]
    assert next_times({"rrule": "FREQ=DAILY;COUNT=3"}, after, 9) == days[:3]
    assert next_times({"rrule": "FREQ=DAILY;UNTIL=20200104T000000Z"}, after, 9) == days[:4]
    ruled = "RRULE:FREQ=DAILY;COUNT=4\nEXDATE:20200102T000000"
    assert next_times({"rrule": ruled}, after, 9) == [days[0], *days[2:4]]
    for often in ("YEARLY", "HOURLY"):  # none, and soon
        assert next_times({"rrule": f"FREQ={often};BYMONTH=2;BYMONTHDAY=30"}, after, 1) == []


def test_cron_has_prefects_order_of_fields_and_its_two_ways_with_days() -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_times({"cron": "0 9 * * 1 30"}, after) == [datetime(2026, 1, 5, 9, 0, 30, tzinfo=UTC)]
    assert next_times({"cron": "@daily"}, after) == [datetime(2026, 1, 2, tzinfo=UTC)]
    second = {"cron": "0 9 13 * 5", "timezone": None}
    assert next_times({**second, "day_or": True}, after) == [datetime(2026, 1, 2, 9, tzinfo=UTC)]
    fridays = next_times({**second, "day_or": False}, after, 2)
    assert fridays == [datetime(2026, 2, 13, 9, tzinfo=UTC), datetime(2026, 3, 13, 9, tzinfo=UTC)]


def test_a_checked_schedule_has_what_its_instants_need() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    kept = checked_schedule({"interval": "PT1H"}, now)
    assert kept == {"interval": 3600.0, "anchor_date": "2026-01-01T00:00:00Z", "timezone": None}
    assert checked_schedule({"cron": "0 9 * * *", "interval": None}, now)["cron"] == "0 9 * * *"


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"interval": 0},
        {"interval": "soon"},
        {"interval": 60, "cron": "* * * * *"},
        {"interval": 60, "timezone": "Mars/Base"},
        {"interval": 60, "anchor_date": "yesterday"},
        {"cron": "nonsense"},
        {"cron": 5},
        {"cron": "0 0 30 2 *"},
        {"cron": "0 9 * * *", "timezone": "Nowhere"},
        {"rrule": "FREQ=SOMETIMES"},
        {"rrule": "FREQ=MINUTELY;BYHOUR=25"},
        {"rrule": "X" * 7000},
        {"rrule": 7},
        {"rrule": "FREQ=DAILY", "timezone": "x"},
    ],
)
def test_a_wrong_schedule_is_refused(schedule: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        checked_schedule(schedule)
