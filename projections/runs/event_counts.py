"""How many events there are by time, by name or by resource: what Prefect's clients count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from ledger import BadInput

from .event_filters import ID, EventFilter
from .prefect_events import PrefectEvents

Countable = Literal["day", "time", "event", "resource"]
PIVOT: Final = datetime(2024, 4, 1, tzinfo=UTC)
"""Where spans of time begin, as Prefect's server has it: a Monday before all of its events."""
UNITS: Final = {
    "week": timedelta(weeks=1), "day": timedelta(days=1), "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1), "second": timedelta(seconds=1),
}  # fmt: skip
LEAST_INTERVAL: Final = 0.01
MOST: Final = 100_000
"""Events that are counted at most: for more the filter must be narrower."""
PAGE: Final = 500


@dataclass(slots=True)
class Count:
    """Events of one value: how many, and the times of the first and the last."""

    value: str
    label: str
    count: int
    start_time: datetime
    end_time: datetime


def count_events(
    events: PrefectEvents, wanted: EventFilter, by: Countable, unit: str = "day", interval: float = 1.0
) -> list[Count]:
    """Counts of events: times in their order, names and resources by how many.

    interval: how many units a span of time has. Raises BadInput where there are too many events.
    """
    if unit not in UNITS or not LEAST_INTERVAL <= interval <= MOST:
        raise BadInput(f"time_unit must be one of {', '.join(UNITS)}, and time_interval at least 0.01")
    if (many := events.count(wanted)) > MOST:
        raise BadInput(f"{many} events are too many to count: choose a shorter time or fewer names")
    span = UNITS["day"] if by == "day" else UNITS[unit] * interval
    found: dict[str, Count] = {}
    for event in _newest_first(events, wanted):
        at = datetime.fromisoformat(event["occurred"])
        value, label = _value(event, at, by, span)
        one = found.setdefault(value, Count(value, label, 0, at, at))
        one.count += 1
        one.start_time, one.end_time = min(one.start_time, at), max(one.end_time, at)
    if by in ("day", "time"):
        return sorted(found.values(), key=lambda one: one.start_time)
    return sorted(found.values(), key=lambda one: (-one.count, one.label))


def _newest_first(events: PrefectEvents, wanted: EventFilter) -> Iterator[dict[str, Any]]:
    wanted = replace(wanted, oldest_first=False)
    page = events.read(wanted, limit=PAGE)
    yield from page.events
    while page.next is not None:
        page = events.read(wanted, limit=PAGE, start=page.next)
        yield from page.events


def _value(event: dict[str, Any], at: datetime, by: Countable, span: timedelta) -> tuple[str, str]:
    """The value and the label that an event counts for; of a span of time its number and its begin."""
    match by:
        case "event":
            return event["event"], event["event"]
        case "resource":
            resource = event["resource"]
            id = resource[ID]
            return id, resource.get("prefect.resource.name") or resource.get("prefect.name") or id
        case _:
            number = (at - PIVOT) // span
            return str(number), (PIVOT + number * span).isoformat()
