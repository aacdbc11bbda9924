"""
The instants of a deployment's schedules, from Prefect's JSON: an interval, a cron expression or an RRULE.

    {"interval": 3600.0, "anchor_date": "2024-01-01T00:00:00Z", "timezone": "Europe/Berlin"}
    {"cron": "0 9 * * 1-5", "timezone": "America/New_York", "day_or": true}
    {"rrule": "FREQ=WEEKLY;BYDAY=MO", "timezone": "UTC"}

An instant depends on the schedule alone, never on when it is asked for: so each has one idempotency key.
Whole days of an interval are days of the calendar, the rest is elapsed time: a daily schedule keeps its time
of day through a change of the clocks. A time of day that the clocks skip is taken that much later; one that
exists twice, the first time. Cron is that of `ledger.jobs.cron`. An RRULE counts in local time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Final

from ..errors import BadInput, shown
from ..jobs.cron import checked_cron, times, zone

ANCHOR: Final = datetime(2020, 1, 1)  # noqa: DTZ001  local time
"""Where intervals and recurrences without a start begin, in the schedule's time zone."""
LONGEST: Final = 6500
"""Maximum number of characters of an RRULE."""
MOST: Final = 100_000
"""Maximum COUNT of an RRULE whose times within a day are filtered: they are walked one by one."""
CANDIDATES: Final = 1000
"""How many days of a cron expression are looked at for one whose day must match twice."""
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names that stand for cron expressions."""
_DAYS: Final = {"bymonth", "bymonthday", "byweekday", "byyearday", "byweekno", "byeaster"}
"""What chooses the days of an RRULE."""
_STEPS: Final = (None, None, timedelta(weeks=1), timedelta(days=1), timedelta(hours=1), timedelta(minutes=1),
                 timedelta(seconds=1))  # fmt: skip
"""By the number of an RRULE's frequency: the time between two of its periods, where it is always the same."""


def checked_schedule(schedule: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """The schedule as it is kept: an interval gets the anchor `now` where it has none. Raises BadInput."""
    kinds = [kind for kind in ("interval", "cron", "rrule") if schedule.get(kind) is not None]
    if len(kinds) != 1:
        raise BadInput(f"a schedule needs one of interval, cron and rrule, not {', '.join(kinds) or 'none'}")
    now = (now or datetime.now(UTC)).astimezone(UTC)
    kept = dict(schedule)
    if kinds == ["interval"]:
        kept["interval"] = _interval(schedule["interval"]).total_seconds()
        kept.setdefault("timezone", None)
        if kept.get("anchor_date") is None:
            kept["anchor_date"] = now.isoformat().replace("+00:00", "Z")
        _anchor(kept)
    elif kinds == ["cron"]:
        checked_cron(_seconds_first(schedule["cron"]), _timezone(schedule), now)
    else:
        next(instants(schedule, now), None)
    return kept


def next_times(schedule: Mapping[str, Any], after: datetime, many: int = 1) -> list[datetime]:
    """The next instants of a schedule after a time, in UTC, in order; fewer if it ends. Raises BadInput."""
    return list(islice(instants(schedule, after), many))


def instants(schedule: Mapping[str, Any], after: datetime) -> Iterator[datetime]:
    """All instants of a schedule after a time, in UTC, in order. Raises BadInput."""
    after = after.astimezone(UTC)
    if schedule.get("interval") is not None:
        return _later(_of_interval(schedule, after), after)
    if schedule.get("cron") is not None:
        return _of_cron(schedule, after)
    if schedule.get("rrule") is not None:
        return _later(_of_rules(schedule, after), after)
    raise BadInput(f"schedule {shown(dict(schedule))} has none of interval, cron and rrule")


def _later(found: Iterable[datetime], after: datetime) -> Iterator[datetime]:
    """Those after a time, each once: at a change of the clocks two local times can be one instant."""
    last = after
    for at in found:
        if at > last:
            last = at
            yield at


def _timezone(schedule: Mapping[str, Any]) -> str:
    return schedule.get("timezone") or "UTC"


# Intervals


def _interval(given: Any) -> timedelta:
    """An interval in seconds, or as an ISO 8601 duration. Raises BadInput."""
    from pydantic import TypeAdapter, ValidationError

    try:
        interval = TypeAdapter(timedelta).validate_python(given)
    except ValidationError:
        interval = timedelta()
    if interval <= timedelta():
        raise BadInput(f"interval {shown(given)} must be a number of seconds above 0")
    return interval


def _anchor(schedule: Mapping[str, Any]) -> datetime:
    """The local time at which an interval begins, without its time zone. Raises BadInput."""
    where, given = zone(_timezone(schedule)), schedule.get("anchor_date")
    if given is None:
        return ANCHOR
    try:
        at = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except (ValueError, TypeError):
        raise BadInput(f"anchor_date {shown(given)} is not a time in ISO 8601") from None
    return at if at.tzinfo is None else at.astimezone(where).replace(tzinfo=None)


def _of_interval(schedule: Mapping[str, Any], after: datetime) -> Iterator[datetime]:
    """The instants of an interval from shortly before a time on."""
    interval, anchor, where = _interval(schedule["interval"]), _anchor(schedule), zone(_timezone(schedule))
    days, rest = timedelta(days=interval.days), interval - timedelta(days=interval.days)
    start = _utc(anchor, where)
    nth = (after - start) // interval - (2 if days else 0)  # the clocks change by less than a period of a day
    while True:
        try:
            yield (_utc(anchor + nth * days, where) if days else start) + nth * rest
        except OverflowError:
            return
        nth += 1


def _utc(local: datetime, where: tzinfo) -> datetime:
    return local.replace(tzinfo=where).astimezone(UTC)


# Cron


def _seconds_first(expression: Any) -> Any:
    """Prefect's order of six fields has the seconds last; names stand for expressions."""
    if not isinstance(expression, str):
        return expression
    fields = ALIASES.get(expression.strip(), expression).split()
    return " ".join([fields[-1], *fields[:-1]] if len(fields) == 6 else fields)


def _of_cron(schedule: Mapping[str, Any], after: datetime) -> Iterator[datetime]:
    expression, timezone = _seconds_first(schedule["cron"]), _timezone(schedule)
    fields = expression.split() if isinstance(expression, str) else []
    if schedule.get("day_or", True) or len(fields) < 5 or "*" in (fields[-3], fields[-1]):
        return times(expression, timezone, after)
    return _of_both_days(fields, timezone, after)


def _of_both_days(fields: list[str], timezone: str, after: datetime) -> Iterator[datetime]:
    """The times whose day matches both the day of the month and the day of the week."""
    where = zone(timezone)
    by_date = " ".join([*fields[:-1], "*"])
    by_weekday = f"0 0 * * {fields[-1]}"
    missed = 0
    for at in times(by_date, timezone, after):
        midnight = at.astimezone(where).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
        if next(times(by_weekday, "UTC", midnight - timedelta(seconds=1)), None) == midnight:
            missed = 0
            yield at
        elif (missed := missed + 1) > CANDIDATES:
            return


# RRULE


def _rules(schedule: Mapping[str, Any], after: datetime) -> Any:
    """The recurrence of an RRULE in local time, from shortly before a time on. Raises BadInput."""
    from dateutil.rrule import rrule, rrulestr

    text, where = schedule["rrule"], zone(_timezone(schedule))
    if not isinstance(text, str) or len(text) > LONGEST:
        raise BadInput(f"rrule {shown(text)} must be text of at most {LONGEST} characters")
    try:
        found: Any = rrulestr(text, dtstart=ANCHOR, ignoretz=True)
        local = after.astimezone(where).replace(tzinfo=None)
        if isinstance(found, rrule):
            return _nearby(found, local)
        found._rrule = [_nearby(one, local) for one in found._rrule]
        found._exrule = [_nearby(one, local) for one in found._exrule]
        return found
    except BadInput:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise BadInput(f"rrule {shown(text)} is not a recurrence rule: {error}") from None


def _nearby(rule: Any, local: datetime) -> Any:
    """The same rule, begun a whole number of periods later: to walk from its start to now takes minutes.

    A rule whose days never come is walked to the year 9999; it is replaced by one that has ended. Raises
    BadInput for a rule that would have to be walked from its start and is too long.
    """
    step, filters = _STEPS[rule._freq], {name for name, value in rule._original_rule.items() if value}
    if step is None:
        return rule
    if filters & _DAYS and not _has_days(rule, local):
        return _ended(rule)
    if rule._count is not None and filters:
        if step < timedelta(days=1) and rule._count > MOST:
            raise BadInput(f"rrule: COUNT {rule._count} must be at most {MOST} for a rule within days")
        return rule
    periods = max(0, (local - rule._dtstart) // (step * rule._interval) - 2)
    if rule._count is not None and periods >= rule._count:
        return _ended(rule)
    left = None if rule._count is None else rule._count - periods
    return rule.replace(dtstart=rule._dtstart + periods * step * rule._interval, count=left)


def _ended(rule: Any) -> Any:
    """A rule without any time."""
    from dateutil.rrule import DAILY, rrule

    return rrule(DAILY, dtstart=rule._dtstart, until=rule._dtstart - timedelta(days=1))


def _has_days(rule: Any, local: datetime) -> bool:
    """Whether the days of a rule ever come; asked of a rule by the year, which is walked soon."""
    from dateutil.rrule import YEARLY

    start = min(rule._dtstart, local).replace(month=1, day=1)
    once = {"byhour": 0, "byminute": 0, "bysecond": 0, "bysetpos": None}
    by_year = rule.replace(freq=YEARLY, interval=1, dtstart=start, until=None, count=None, **once)
    return next(iter(by_year), None) is not None


def _of_rules(schedule: Mapping[str, Any], after: datetime) -> Iterator[datetime]:
    where = zone(_timezone(schedule))
    local = after.astimezone(where).replace(tzinfo=None) - timedelta(
        hours=3
    )  # more than clocks are changed by
    found = _rules(schedule, after).xafter(local, inc=True)
    try:
        for at in found:
            yield _utc(at, where)
    except ValueError as error:  # hours or minutes that its interval never meets
        raise BadInput(f"rrule {shown(schedule['rrule'])} is not a recurrence rule: {error}") from None
