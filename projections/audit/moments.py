"""Moments: what a caller asks for (a version, a position, a time), and the position that it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

from ledger import BadInput, Ledger, StreamNotFound
from ledger.log.sql import Statements

SQL = Statements(__package__, "moments")


HOW: Final = (
    "a time such as 14:00, 2026-03-01, 2026-03-01T14:00+01:00 or now-2h30m; "
    "without an offset it is local time"
)
_AGO = re.compile(r"now(?:-((?:\d{1,9}[wdhms])+))?\Z")
_SPAN = re.compile(r"(\d{1,9})([wdhms])")
_UNITS: Final = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


@dataclass(frozen=True, slots=True)
class Moment:
    """A version of one stream, a position of the log, or a time; if none is given, now.

    Raises BadInput if more than one of them is given, for a negative number and for a time without its
    offset from UTC.
    """

    version: int | None = None
    position: int | None = None
    time: datetime | None = None

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.version, self.position, self.time)) > 1:
            raise BadInput("a moment is only one of version, position and time")
        if min(self.version or 0, self.position or 0) < 0:
            raise BadInput("a version or a position must be 0 or more")
        if max(self.version or 0, self.position or 0) >= 2**63:
            raise BadInput("a version or a position must be below 2**63")
        if self.time is not None and self.time.utcoffset() is None:
            raise BadInput("the time of a moment must have its offset from UTC")

    @classmethod
    def parse(cls, text: str, *, zone: tzinfo | None = None) -> Moment:
        """`7` is a version, `@123` a position, else a time as `parse_time` reads it. Raises BadInput."""
        text = text.strip()
        digits = text.removeprefix("@")
        if digits.isascii() and digits.isdigit():
            number = int(digits[:30])
            return cls(position=number) if text.startswith("@") else cls(version=number)
        return cls(time=parse_time(text, zone=zone))


NOW: Final = Moment()


@dataclass(frozen=True, slots=True)
class AsOf:
    """The answer to a moment: everything at or before `position`, which is always a prefix of the log.

    time: the requested time, if any. beyond: the request lies beyond the log, so the answer is its present
    end, and may change later. stream, version: for a moment of one stream, its last event at or before the
    position; version 0 where it had none.
    """

    position: int
    time: datetime | None = None
    beyond: bool = False
    stream: str | None = None
    version: int | None = None


def parse_time(text: str, *, zone: tzinfo | None = None, now: datetime | None = None) -> datetime:
    """The aware time in a text: ISO 8601, a time of today, a date, `now`, `now-2h30m` (w, d, h, m, s).

    zone: of times without an offset; by default that of this machine. Raises BadInput.
    """
    now = now or datetime.now(UTC)
    try:
        if ago := _AGO.match(text.strip()):
            return now - _span(ago[1] or "")
        return _aware(_read(text.strip(), now.astimezone(zone)), zone)
    except (ValueError, OverflowError, OSError):
        raise BadInput(f"{text!r} is not a moment: give {HOW}") from None


def parse_span(text: str) -> timedelta:
    """The time span in a text such as `90m` or `1d12h`. Raises BadInput."""
    if not re.fullmatch(rf"(?:{_SPAN.pattern})+", text):
        raise BadInput(
            f"{text!r} is not a span of time: give weeks, days, hours, minutes, seconds, such as 1d12h"
        )
    try:
        return _span(text)
    except OverflowError:
        raise BadInput(f"{text!r} is too long for a span of time") from None


def _span(text: str) -> timedelta:
    return sum((timedelta(**{_UNITS[unit]: int(n)}) for n, unit in _SPAN.findall(text)), timedelta())


def _read(text: str, today: datetime) -> datetime:
    """A time of today, or a whole one."""
    if re.match(r"T?\d\d:\d\d", text):
        at = time.fromisoformat(text)
        return datetime.combine(today.astimezone(at.tzinfo).date() if at.tzinfo else today.date(), at)
    return datetime.fromisoformat(text)


def _aware(at: datetime, zone: tzinfo | None) -> datetime:
    """The time with an offset; astimezone takes a naive one as local where no zone is given."""
    if at.utcoffset() is None and zone is not None:
        return at.replace(tzinfo=zone)
    return at if at.utcoffset() is not None else at.astimezone()


def as_of(ledger: Ledger, moment: Moment = NOW, *, stream: str | None = None) -> AsOf:
    """The position that a moment means, never beyond what is safe to read.

    A version of a stream means the position of that event; it needs `stream`. A version beyond the stream's
    last means its last. Raises StreamNotFound, BadInput.
    """
    if moment.version is not None:
        return _of_version(ledger, moment.version, stream)
    bound = ledger.bound()
    position, beyond = bound, False
    if moment.position is not None:
        position, beyond = min(moment.position, bound), moment.position > bound
    elif moment.time is not None:
        position, beyond = _of_time(ledger, moment.time, bound)
    version = None if stream is None else ledger.version_at(stream, position)
    if stream is not None and not version:
        ledger.read(stream, limit=1)  # the stream begins later, or does not exist
    return AsOf(position, moment.time, beyond, stream, version)


def _of_time(ledger: Ledger, at: datetime, bound: int) -> tuple[int, bool]:
    """P(T) = (least position recorded after T) − 1, and whether nothing is recorded after T."""
    ((later,),) = ledger.query(SQL.first_recorded_after, at=at)
    return (bound, True) if later is None else (min(later - 1, bound), False)


def _of_version(ledger: Ledger, version: int, stream: str | None) -> AsOf:
    if stream is None:
        raise BadInput("a version belongs to one stream: name the stream, or give a position or a time")
    if version == 0:  # before its first event
        (first,) = ledger.read(stream, limit=1)
        return AsOf(first.position - 1, stream=stream, version=0)
    found = ledger.read(stream, upto=version, limit=1, backwards=True)
    if not found:
        raise StreamNotFound(stream)
    return AsOf(found[0].position, beyond=found[0].version < version, stream=stream, version=found[0].version)
