"""
A concurrency limit: its record, and who holds its slots.

    concurrency_limit/ID     its record's facts, and slots taken | released | refused | reset

Slots are held by leases. The number of active slots is the sum of what the leases hold and is never counted
apart: it can neither drift nor fall below zero (W3-04). A limit of a tag has the name `tag:TAG`; limits of
Prefect's v1 are nothing else. An inactive limit gives no slots and takes them back (W3-12).

Slots of a limit with `slot_decay_per_second` come back with time, those of nobody first, then those of the
oldest lease. Decay is a function of the state and a time. Facts name the time by which they were decided
(`now`), so that a fold computes the same numbers wherever it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..errors import BadInput
from .records import PRESENT, OpenRecord, RecordState
from .records import evolve as evolve_record

NOBODY: Final = ""
"""The lease of slots that were taken without one: they come back by decay, or by a number given back."""
TAG: Final = "tag:"
"""How the name of a tag's limit begins."""
MAX_WAIT: Final = 30.0
"""Seconds that a client waits at most for a slot of a limit without decay, before it asks again."""
MIN_OCCUPANCY: Final = 0.1
"""Seconds that a slot counts as occupied at least, so that averages stay above zero."""
FIRST_OCCUPANCY: Final = 2.0
"""Seconds for which a slot of a new limit is expected to be held."""
NEARLY: Final = 1e-9
"""By how much a sum of decayed slots may miss a whole number."""
SAMPLES: Final = 2
"""The average occupancy is over this many releases of each slot (spec S3-61)."""
_TO_ITS_CREATOR: Final = ("denied_slots", "avg_slot_occupancy_seconds")

Json = Mapping[str, Any]


class SlotsTaken(Event, topic="concurrency_limit.slots_taken"):
    """A lease holds slots. leased: it runs out unless it is renewed. lease: empty for slots of nobody."""

    lease: str
    slots: int
    now: datetime
    holder: Json | None = None
    leased: bool = False


class SlotsReleased(Event, topic="concurrency_limit.slots_released"):
    """A lease gave back all it held, or nobody's lease gave back `slots`.

    reason: why. occupancy_seconds: for how long each was held. surplus: slots that were given back although
    nobody held them; the limit stays as it is.
    """

    lease: str
    slots: float
    now: datetime
    reason: Literal["released", "expired", "run_over"] = "released"
    occupancy_seconds: float | None = None
    surplus: float = 0.0


class SlotsRefused(Event, topic="concurrency_limit.slots_refused"):
    """Slots were asked for while too few were free. blocking: whether this limit was full.

    Recorded once for each holder, until its request is granted or the limit is changed.
    """

    slots: int
    now: datetime
    lease: str = NOBODY
    holder: Json | None = None
    blocking: bool = True


class SlotsReset(Event, topic="concurrency_limit.slots_reset"):
    """Only these leases hold slots from now on, by an operator's word: slots and holder of each."""

    holders: Mapping[str, Json]
    now: datetime


@dataclass(frozen=True, slots=True)
class Holding:
    """What a lease holds: slots at the time of the last fact; since when; for whom, if that was told."""

    slots: float
    since: datetime
    holder: Mapping[str, Any] | None = None
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Limit(RecordState):
    """The state of a limit. holdings: by lease, the oldest first. decided: the time of the last slots fact.

    denied: slots refused lately, by which waiting clients are spread. occupancy: average seconds of a slot.
    """

    id: str = ""
    holdings: Mapping[str, Holding] = field(default_factory=FrozenDict)
    decided: datetime | None = None
    denied: float = 0.0
    occupancy: float = FIRST_OCCUPANCY

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.fields.get("name", ""))

    @property
    def limit(self) -> int:
        """How many slots it has."""
        return int(self.fields.get("limit", 0))

    @property
    def active(self) -> bool:
        """Whether it limits anything now."""
        return self.status == PRESENT and bool(self.fields.get("active", True))

    @property
    def decay(self) -> float:
        """How many slots come back each second by themselves."""
        return float(self.fields.get("slot_decay_per_second") or 0.0)

    def held(self, now: datetime) -> dict[str, float]:
        """How many slots each lease holds at a time, after decay."""
        held = {lease: one.slots for lease, one in self.holdings.items()}
        back = self.decay * _seconds(self.decided, now)
        for lease in sorted(held, key=lambda one: one != NOBODY):  # stable: the oldest first
            if back <= 0:
                break
            less = min(back, held[lease])
            held[lease] -= less
            back -= less
        return held

    def active_slots(self, now: datetime) -> float:
        """How many slots are held at a time."""
        return sum(self.held(now).values())

    def denied_slots(self, now: datetime) -> float:
        """How many slots were refused lately; the number falls with the speed at which slots come back."""
        speed = self.decay or 1.0 / max(MIN_OCCUPANCY, min(self.occupancy, MAX_WAIT))
        return max(0.0, self.denied - speed * _seconds(self.decided, now))

    def has_room(self, slots: int, now: datetime) -> bool:
        """Whether so many more slots may be taken; always where the limit is not active."""
        return not self.active or self.active_slots(now) + slots <= self.limit + NEARLY

    def retry_after(self, slots: int, now: datetime, others: float = 0.0) -> float:
        """Seconds after which so many slots may be free: by what was refused, and how long slots are held.

        others: the slots for which others are known to wait.
        """
        waiting = slots + max(self.denied_slots(now), others)
        if self.decay > 0:
            return waiting / self.decay
        return min(min(self.occupancy, MAX_WAIT) * waiting / max(1, self.limit), MAX_WAIT)


def _seconds(before: datetime | None, after: datetime) -> float:
    """The seconds between two times; 0 where the clock went back."""
    return max(0.0, (after - before).total_seconds()) if before is not None else 0.0


def evolve_limit(limit: Limit, event: Event, at: datetime) -> Limit:
    """Apply a fact. It applies no rules."""
    match event:
        case SlotsTaken():
            taken = Holding(event.slots, event.now, event.holder, event.leased)
            before = limit.holdings.get(event.lease)
            if before is not None:  # nobody's slots add up; a lease that is taken again stays one
                more = event.slots if event.lease == NOBODY else 0.0
                taken = changed(before, slots=limit.held(event.now)[event.lease] + more, leased=event.leased)
            return _at(limit, event.now, {event.lease: taken})
        case SlotsReleased():
            return _averaged(_at(limit, event.now, {event.lease: _less(limit, event)}), event)
        case SlotsRefused():
            return changed(_at(limit, event.now), denied=limit.denied_slots(event.now) + event.slots)
        case SlotsReset():
            anew = {
                lease: Holding(float(one["slots"]), event.now, one.get("holder"))
                for lease, one in event.holders.items()
            }
            return changed(limit, holdings=FrozenDict(anew), decided=event.now)
        case _:
            recorded: Limit = evolve_record(limit, event, at)
            return recorded


def _at(limit: Limit, now: datetime, changes: Mapping[str, Holding | None] = FrozenDict()) -> Limit:
    """The limit with decay applied up to a time, and with some holdings replaced or, by None, removed."""
    held = limit.held(now) if limit.decay > 0 else {}
    decayed = {
        lease: changed(one, slots=held[lease]) if lease in held else one
        for lease, one in limit.holdings.items()
    }
    holdings = {
        lease: one
        for lease, one in {**decayed, **changes}.items()
        if one is not None and (lease != NOBODY or one.slots > 0)
    }
    later = now if limit.decided is None or now > limit.decided else limit.decided
    denied = limit.denied_slots(now)
    return changed(limit, holdings=FrozenDict(holdings), decided=later, denied=denied)


def _less(limit: Limit, event: SlotsReleased) -> Holding | None:
    """What remains of a holding after a release: nothing of a lease's."""
    holding = limit.holdings.get(event.lease)
    if event.lease != NOBODY or holding is None:
        return None
    return changed(holding, slots=max(0.0, limit.held(event.now)[NOBODY] - event.slots))


def _averaged(limit: Limit, event: SlotsReleased) -> Limit:
    """The limit with the occupancy of a release in its average (spec S3-61)."""
    if event.occupancy_seconds is None:
        return limit
    share = max(event.occupancy_seconds, MIN_OCCUPANCY) - limit.occupancy
    return changed(limit, occupancy=limit.occupancy + share / (max(1, limit.limit) * SAMPLES))


class OpenLimit(OpenRecord, kind="concurrency_limit"):
    """A limit open for change; its key is its id."""

    STATE = Limit
    state: Limit
    evolve = staticmethod(evolve_limit)

    @classmethod
    def initial(cls, *key: str | int) -> Limit:
        return Limit(id=str(key[0]) if key else "")

    def shown_at(self, now: datetime) -> dict[str, Any]:
        """Prefect's JSON of a limit (v2), with its numbers at a time."""
        return {
            **self.shown().shown(),
            "active_slots": int(self.state.active_slots(now) + NEARLY),
            "denied_slots": int(self.state.denied_slots(now) + NEARLY),
            "avg_slot_occupancy_seconds": self.state.occupancy,
        }

    def listed_at(self, now: datetime) -> dict[str, Any]:
        """Prefect's JSON of a limit (v2) that is listed: without what only its creator is shown."""
        shown = self.shown_at(now)
        return {name: value for name, value in shown.items() if name not in _TO_ITS_CREATOR}

    def shown_by_tag(self) -> dict[str, Any]:
        """Prefect's JSON of a limit of a tag (v1): `active_slots` are the ids of task runs."""
        record = self.shown().shown()
        holders = [one.holder for one in self.state.holdings.values() if one.holder]
        return {
            **{name: record[name] for name in ("id", "created", "updated")},
            "tag": self.state.name.removeprefix(TAG),
            "concurrency_limit": self.state.limit,
            "active_slots": [holder["id"] for holder in holders if holder.get("type") == "task_run"],
        }

    def take(
        self, lease: str, slots: int, now: datetime, *, holder: Json | None = None, leased: bool = False
    ) -> None:
        """Record that a lease takes slots; nothing if it holds them, or the limit is not active.

        The caller has asked `has_room`. Raises BadInput for a number below 1 or above the limit.
        """
        if not self.state.active:
            return
        if slots < 1 or slots > self.state.limit:
            raise BadInput(
                f"{slots} slots of {self.state.name!r} can never be taken: it has {self.state.limit}"
            )
        if lease == NOBODY or lease not in self.state.holdings:
            self.record(SlotsTaken(lease=lease, slots=slots, now=now, holder=holder, leased=leased))

    def hold_again(self, lease: str, now: datetime, *, leased: bool) -> None:
        """Record that a lease goes on holding its slots. leased: whether it runs out unless it is renewed."""
        holding = self.state.holdings[lease]
        slots = max(0, round(holding.slots))
        self.record(SlotsTaken(lease=lease, slots=slots, now=now, holder=holding.holder, leased=leased))

    def release(
        self, lease: str, now: datetime, reason: Literal["released", "expired", "run_over"] = "released"
    ) -> bool:
        """Give back all that a lease holds; False if it holds nothing."""
        holding = self.state.holdings.get(lease)
        if lease == NOBODY or holding is None:
            return False
        seconds = _seconds(holding.since, now)
        held = self.state.held(now)[lease]
        self.record(SlotsReleased(lease=lease, slots=held, now=now, reason=reason, occupancy_seconds=seconds))
        return True

    def give_back(self, slots: int, now: datetime, occupancy_seconds: float | None = None) -> float:
        """Give back slots of nobody; how many were held. What nobody held is recorded as surplus."""
        held = min(float(slots), self.state.held(now).get(NOBODY, 0.0))
        each = None if occupancy_seconds is None else occupancy_seconds / slots
        surplus = slots - held if self.state.decay == 0 else 0.0
        if held or surplus:
            self.record(
                SlotsReleased(
                    lease=NOBODY,
                    slots=held,
                    now=now,
                    occupancy_seconds=each if held else None,
                    surplus=surplus,
                )
            )
        return held

    def reset(self, holders: Mapping[str, Json], now: datetime) -> None:
        """Let only these leases hold slots: slots and holder of each."""
        self.record(SlotsReset(holders=holders, now=now))
