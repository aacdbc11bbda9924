"""
Times of a cron expression in a time zone.

Five fields (minute, hour, day of the month, month, day of the week), or six with the second before them.
As in Debian's cron, where summer time begins or ends: a time of the day that does not exist comes right after
the gap, one that exists twice comes once, the first time. An expression whose minute or hour begins with `*`
goes by the hours that really pass, and so does one with six fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..errors import BadInput, shown

MANY: Final = 1000
"""Times that are looked at one by one; where more were missed, the last is looked for from behind."""


def zone(name: object) -> tzinfo:
    """A time zone of the IANA's, by its name. Raises BadInput."""
    if name == "UTC":
        return UTC
    try:
        if not isinstance(name, str) or not name:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise BadInput(
            f"{shown(name)} is no time zone that is known here; one is named like 'Europe/Berlin' or 'UTC'"
        ) from None


def checked_cron(expression: object, timezone: object, after: datetime) -> str:
    """The expression itself, with single spaces. Raises BadInput for one without a time after this one."""
    where = zone(timezone)
    if not isinstance(expression, str):
        raise BadInput(f"cron {shown(expression)} must be text, such as '*/5 * * * *'")
    try:
        CronSim(expression, after.astimezone(where))
    except CronSimError as error:
        raise BadInput(
            f"cron {shown(expression)} is no cron expression ({str(error).lower()}); it has five fields: "
            "minute, hour, day of month, month, day of week"
        ) from None
    if next(times(expression, timezone, after), None) is None:
        raise BadInput(f"cron {shown(expression)} names no time that ever comes")
    return " ".join(expression.split())


def times(expression: str, timezone: object, after: datetime) -> Iterator[datetime]:
    """The times of an expression, in UTC, after a time, in order. Raises BadInput for an unknown zone."""
    last = after
    for at in _steps(CronSim(expression, after.astimezone(zone(timezone)))):
        if at > last:  # in the hour that exists twice the library begins with the first of them
            last = at
            yield at


def missed(expression: str, timezone: object, after: datetime, upto: datetime) -> list[datetime]:
    """The times after one time, up to another, both known: all of them, or of more than MANY the last."""
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
    """A moment behind the second of this one, so that the library begins with that second."""
    return at.replace(microsecond=max(1, at.microsecond))


def _steps(steps: Iterator[datetime]) -> Iterator[datetime]:
    """What the library finds, until it finds no more, in UTC."""
    while True:
        try:
            at = next(steps)
        except (StopIteration, OverflowError):
            return
        yield at.astimezone(UTC)
