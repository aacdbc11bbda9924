"""
Times of a cron expression in a time zone.

Five fields (minute, hour, day of the month, month, day of the week), or six with the second before them.
As in Debian's cron, at the change to or from summer time: a time of day that does not exist fires right after
the gap; one that exists twice fires once, the first time. An expression whose minute or hour begins with `*`,
or that has six fields, follows elapsed time instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..errors import BadInput, shown

MANY: Final = 1000
"""How many times are computed one by one; if more were missed, the last is searched backwards."""


def zone(name: object) -> tzinfo:
    """A time zone by its IANA name. Raises BadInput."""
    if name == "UTC":
        return UTC
    try:
        if not isinstance(name, str) or not name:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise BadInput(
            f"{shown(name)} is not a known time zone: give an IANA name such as 'Europe/Berlin' or 'UTC'"
        ) from None


def checked_cron(expression: object, timezone: object, after: datetime) -> str:
    """The expression itself, with single spaces. Raises BadInput if it has no time after this one."""
    where = zone(timezone)
    if not isinstance(expression, str):
        raise BadInput(f"cron {shown(expression)} must be text, such as '*/5 * * * *'")
    try:
        CronSim(expression, after.astimezone(where))
    except CronSimError as error:
        raise BadInput(f"cron {shown(expression)} {_wrong(expression.split(), str(error))}") from None
    if next(times(expression, timezone, after), None) is None:
        raise BadInput(f"cron {shown(expression)} never fires")
    return " ".join(expression.split())


_FIELDS: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7, or SUN to SAT",
}
"""The fields of an expression, by the library's names, and their allowed values."""


def _wrong(given: list[str], said: str) -> str:
    """What is wrong with an expression of these fields; `said` is the library's message."""
    names = [*_FIELDS][-len(given) :] if len(given) in (5, 6) else []
    if not names:
        must = "five (minute, hour, day of month, month, day of week), or six with seconds first"
        return f"is not a cron expression: it has {len(given)} fields; there must be {must}"
    name = said.lower().removeprefix("bad ")
    if name not in names:
        return f"is not a cron expression: {said.lower()}"
    if name == "day-of-month" and _is_valid([*given[:-2], "*", given[-1]]):
        return f"never fires: month {shown(given[-2])} has no day {shown(given[-3])}"
    wrong = f"{name.replace('-', ' ')} must be {_FIELDS[name]}, not {shown(given[names.index(name)])}"
    fields = ", ".join(names).replace("-", " ")
    return f"is not a cron expression: {wrong}; its {len(given)} fields are {fields}"


def _is_valid(fields: list[str]) -> bool:
    """Whether these fields are a cron expression."""
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def times(expression: str, timezone: object, after: datetime) -> Iterator[datetime]:
    """The times of an expression, in UTC, after a time, in order.

    Raises BadInput for an unknown zone or an invalid expression: either may have been recorded.
    """
    last, where = after, zone(timezone)
    try:
        steps = CronSim(expression, after.astimezone(where))
    except (CronSimError, TypeError, AttributeError, ValueError, OverflowError):
        raise BadInput(f"cron {shown(expression)} is not a valid cron expression") from None
    for at in _steps(steps):
        if at > last:  # in the hour that exists twice the library begins with the first of them
            last = at
            yield at


def missed(expression: str, timezone: object, after: datetime, upto: datetime) -> list[datetime]:
    """The times after `after` up to `upto`: all of them, or only the last if there are more than MANY."""
    found = _upto(times(expression, timezone, after), upto)
    if len(found) <= MANY:
        return found
    behind = _steps(CronSim(expression, _whole(upto).astimezone(zone(timezone)), reverse=True))
    nearly = max(next(behind, after), after)
    return [*_upto(times(expression, timezone, nearly - timedelta(seconds=1)), upto)[-1:]]


def _upto(found: Iterator[datetime], upto: datetime) -> list[datetime]:
    some: list[datetime] = []
    for at in found:
        if at > upto or len(some) > MANY:
            break
        some.append(at)
    return some


def _whole(at: datetime) -> datetime:
    """A moment within this second, after its start, so that the library begins with that second."""
    return at.replace(microsecond=max(1, at.microsecond))


def _steps(steps: Iterator[datetime]) -> Iterator[datetime]:
    """The library's results in UTC, until it has no more."""
    while True:
        try:
            at = next(steps)
        except (StopIteration, OverflowError):
            return
        yield at.astimezone(UTC)
