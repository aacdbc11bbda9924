"""
Concurrency limits: slots are taken by leases, renewed, given back; several limits all or nothing.

    limits = Limits(log)
    taken = limits.increment(["database"], 1, lease_seconds=300)    # Taken, or Full with seconds to wait
    limits.renew(taken.lease, 300)
    limits.release(taken.lease)

What holds a slot is decided by the version of the limit's stream (`ledger.runs.limit`). A lease that a client
renews has a row in `run_leases`, which is put before the append: without the append it runs out by itself. A
rule takes and gives back slots inside the append of a state by `appends_to_take` and `appends_to_release`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from ..errors import BadInput, StreamConflict
from ..log.append import Append, append_of, append_to
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .leases import LeaseKind, RunLeases
from .limit import NOBODY, TAG, Holding, Limit, OpenLimit, SlotsRefused
from .names import OpenName
from .waiters import Waiters

ATTEMPTS: Final = 20
"""How often a decision about slots is taken again when another came first."""
BUSY: Final = 0.5
"""Seconds to wait after that many attempts."""
SPREAD: Final = (0.7, 1.3)
"""By how much a time to wait is varied: clients that were refused together do not come back together."""

Mode = Literal["concurrency", "rate_limit"]


class Taken(NamedTuple):
    """Slots were taken. lease: its id; None where they are nobody's. limits: those with these names."""

    lease: str | None
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Full:
    """Too few slots are free; none was taken. limits: the names of those that are full.

    appends: the facts of the refusal, for an append of the caller's; `Limits.increment` has recorded them.
    """

    retry_after_seconds: float
    limits: tuple[str, ...]
    appends: tuple[Append, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """Limits that exist, as they were at one moment, open for change. now: the database's time then."""

    limits: tuple[OpenLimit, ...]
    now: datetime

    def __iter__(self) -> Iterator[OpenLimit]:
        return iter(self.limits)

    def __len__(self) -> int:
        return len(self.limits)

    @property
    def active(self) -> list[OpenLimit]:
        """Those that limit anything now."""
        return [limit for limit in self.limits if limit.state.active]

    def states(self) -> tuple[Limit, ...]:
        """Their states."""
        return tuple(limit.state for limit in self.limits)


def appends_to_take(
    opened: Opened,
    lease: str,
    *,
    slots: int = 1,
    holder: Mapping[str, Any] | None = None,
    seconds: float | None = None,
) -> list[Append] | Full:
    """The appends by which a lease takes slots of all these limits, at exactly their versions; or Full.

    None of a limit that is not active, or whose slots the lease holds already. seconds: given where the lease
    runs out unless it is renewed. Raises BadInput for a number of slots that a limit does not have.
    """
    wanted = [limit for limit in opened.active if lease == NOBODY or lease not in limit.state.holdings]
    full = [limit for limit in wanted if not limit.state.has_room(slots, opened.now)]
    if full:
        return _refused(opened, full, lease, slots, holder)
    for limit in wanted:
        limit.take(lease, slots, opened.now, holder=holder, leased=seconds is not None)
    return [append_of(limit) for limit in opened if limit.news]


def appends_to_release(
    opened: Opened, lease: str, reason: Literal["released", "expired", "run_over"] = "released"
) -> list[Append]:
    """The appends by which a lease gives back what it holds of these limits; none where it holds nothing.

    A limit that is not active takes its slots back like any other (W3-12).
    """
    return [append_of(limit) for limit in opened if limit.release(lease, opened.now, reason)]


def appends_to_keep(opened: Opened, lease: str) -> list[Append]:
    """The appends by which a lease holds its slots without renewals, until they are released."""
    for limit in opened:
        if lease in limit.state.holdings and limit.state.holdings[lease].leased:
            limit.hold_again(lease, opened.now, leased=False)
    return [append_of(limit) for limit in opened if limit.news]


def _refused(
    opened: Opened,
    full: Sequence[OpenLimit],
    lease: str,
    slots: int,
    holder: Mapping[str, Any] | None,
) -> Full:
    """The answer to a request that these limits cannot grant now."""
    wait = max(limit.state.retry_after(slots, opened.now) for limit in full)
    facts = [
        append_to(
            limit.name,
            [SlotsRefused(slots=slots, now=opened.now, lease=lease, holder=holder, blocking=limit in full)],
        )
        for limit in opened.active
    ]
    names = tuple(limit.state.name for limit in full)
    return Full(wait * random.uniform(*SPREAD), names, tuple(facts))


class Limits:
    """The concurrency limits of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.leases, self.waiters = ledger, RunLeases(ledger), Waiters()

    # Reading

    def opened(self, names: Iterable[str] = (), ids: Iterable[str] = ()) -> Opened:
        """The limits with these names or ids, open for change; only those that are asked for (W3-05).

        They come in the order in which they are asked for; unknown and deleted ones are left out.
        """
        asked = [OpenName(OpenLimit.KIND.name, name) for name in dict.fromkeys(names)]
        found = [name.holder for name in self.ledger.load_each(asked)] if asked else []
        wanted = dict.fromkeys([*ids, *(id for id in found if id is not None)])
        read = (
            {limit.id: limit for limit in self.ledger.load_each([OpenLimit(id) for id in wanted])}
            if wanted
            else {}
        )
        return Opened(tuple(read[id] for id in wanted if read[id].is_present), self.leases.clock())

    def all(self) -> Opened:
        """All limits, by name."""
        found = self.ledger.load_below((f"{OpenLimit.CATEGORY}/", OpenLimit))
        there = sorted((limit for limit in found if limit.is_present), key=lambda limit: limit.state.name)
        return Opened(tuple(there), self.leases.clock())

    def holding(self, lease: str) -> list[Limit]:
        """The limits of which a lease holds slots. All limits are read if the row of the lease names none."""
        row = self.leases.get(LeaseKind.SLOTS, lease)
        if row is not None and not row.data["limits"]:
            return []
        named = () if row is None else self.opened(ids=row.data["limits"]).states()
        held = [limit for limit in named if lease in limit.holdings]
        return held or [limit for limit in self.all().states() if lease in limit.holdings]

    # Taking

    def increment(
        self,
        names: Sequence[str],
        slots: int = 1,
        mode: Mode = "concurrency",
        *,
        lease_seconds: float | None = None,
        holder: Mapping[str, Any] | None = None,
        lease: str | None = None,
    ) -> Taken | Full:
        """Take slots of all limits with these names, or of none (S3-61). Names without a limit limit nothing.

        lease_seconds: for how long, unless renewed; None for slots of nobody, which come back by decay or by
        `decrement`. lease: the lease's id, by default a new one; with it, but without lease_seconds, the
        slots are held until they are released. Raises BadInput for more slots than a limit has, and in mode
        `rate_limit` for a limit without decay.
        """
        held_by = lease or (NOBODY if lease_seconds is None else str(uuid4()))

        def attempt() -> Taken | Full:
            opened = self.opened(names)
            _check(opened, slots, mode)
            return self._take(opened, held_by, slots, holder, lease_seconds)

        try:
            return retry_conflicts(attempt, attempts=ATTEMPTS)
        except StreamConflict:  # others take and release all the time; the client asks again
            return Full(BUSY * random.uniform(*SPREAD), tuple(names))

    def _take(
        self,
        opened: Opened,
        lease: str,
        slots: int,
        holder: Mapping[str, Any] | None,
        seconds: float | None,
    ) -> Taken | Full:
        found = appends_to_take(opened, lease, slots=slots, holder=holder, seconds=seconds)
        if isinstance(found, Full):
            return self._refuse(opened, found, slots, holder)
        if seconds is not None:
            self.lease(lease, opened, slots, seconds, holder)
        if found:
            self.ledger.append_all(found)
        if holder is not None:
            self.waiters.granted(opened.states(), holder)
        return Taken(lease or None, opened.states())

    def _refuse(self, opened: Opened, full: Full, slots: int, holder: Mapping[str, Any] | None) -> Full:
        """Record a refusal, unless it is the repeat of one; without a holder nobody knows whether it is."""
        if holder is None or "id" not in holder:
            self.ledger.append_all(full.appends)
            return full
        limits = [limit.state for limit in opened.active]
        known = {limit.id for limit in limits if self.waiters.knows(limit, holder, opened.now)}
        facts = [fact for limit, fact in zip(limits, full.appends, strict=True) if limit.id not in known]
        if facts:
            self.ledger.append_all(facts)
        wait = max(
            limit.retry_after(slots, opened.now, self.waiters.others(limit, holder, opened.now))
            for limit in limits
            if limit.name in full.limits
        )
        self.waiters.refused(limits, holder, slots, opened.now)
        return replace(full, retry_after_seconds=wait * random.uniform(*SPREAD), appends=tuple(facts))

    def lease(
        self,
        lease: str,
        opened: Opened,
        slots: int,
        seconds: float,
        holder: Mapping[str, Any] | None = None,
    ) -> None:
        """Put the row of a lease; call it before the append by which the lease takes its slots."""
        held = {"slots": slots, "holder": None if holder is None else dict(holder)}
        data = {"limits": [limit.state.id for limit in opened.active], **held}
        self.leases.renew(LeaseKind.SLOTS, lease, seconds, data)

    # Renewing

    def renew(self, lease: str, seconds: float) -> bool:
        """Renew a lease for so many seconds from now; no event.

        A lease that ran out is taken again, with its slots, where these are still free (W3-07). False where
        they are not, or the lease is unknown.
        """
        if self.leases.renew_held(LeaseKind.SLOTS, lease, seconds):
            return True
        lost = self.leases.get(LeaseKind.LOST_SLOTS, lease)
        if lost is not None:
            data = lost.data
        elif held := self.holding(lease):  # the table was lost
            data = row_of({limit.id: limit.holdings[lease] for limit in held})
        else:
            return False
        self.leases.renew(LeaseKind.SLOTS, lease, seconds, data)
        if retry_conflicts(lambda: self._take_again(lease, data), attempts=ATTEMPTS):
            self.leases.release(LeaseKind.LOST_SLOTS, lease)
            return True
        self.leases.release(LeaseKind.SLOTS, lease)
        return False

    def _take_again(self, lease: str, data: Mapping[str, Any]) -> bool:
        """Hold the slots of a lease whose row is there again; False where others have them.

        Each limit gets a fact also where the lease still holds it, so that who is about to take it away
        conflicts and looks again.
        """
        opened = self.opened(ids=data["limits"])
        for limit in opened:
            if lease in limit.state.holdings:
                limit.hold_again(lease, opened.now, leased=True)
        taken = appends_to_take(opened, lease, slots=data["slots"], holder=data.get("holder"), seconds=1.0)
        if isinstance(taken, Full):
            return False
        if taken:
            self.ledger.append_all(taken)
        return True

    # Giving back

    def release(self, lease: str) -> list[Limit]:
        """Give back what a lease holds; the limits of which it held slots. A repeat changes nothing."""
        released = self._release(lease, [limit.id for limit in self.holding(lease)], "released")
        self.forget(lease)
        return released

    def forget(self, lease: str) -> None:
        """Delete the rows of a lease whose slots were given back by an append of the caller's."""
        self.leases.release(LeaseKind.SLOTS, lease)
        self.leases.release(LeaseKind.LOST_SLOTS, lease)

    def expire(self, lease: str, ids: Sequence[str]) -> list[Limit]:
        """Give back what a lease holds whose row was taken out, unless it was renewed meanwhile."""
        return self._release(lease, ids, "expired")

    def end(self, lease: str, ids: Sequence[str]) -> list[Limit]:
        """Give back what a lease holds whose run is over."""
        return self._release(lease, ids, "run_over")

    def decrement(
        self, names: Sequence[str], slots: int, occupancy_seconds: float | None = None
    ) -> list[Limit]:
        """Give back slots that were taken without a lease; the limits with these names.

        More than nobody's lease holds is recorded as surplus and changes nothing (W3-04).
        """

        def attempt() -> list[Limit]:
            opened = self.opened(names)
            for limit in opened:
                limit.give_back(slots, opened.now, occupancy_seconds)
            self.ledger.commit(*opened)
            return list(opened.states())

        if slots < 1:
            raise BadInput(f"slots {slots} must be 1 or more")
        return retry_conflicts(attempt, attempts=ATTEMPTS)

    def reset(self, id: str, holders: Mapping[str, Mapping[str, Any]]) -> Limit | None:
        """Let only these leases hold slots of a limit: `slots` and `holder` of each; None if there is none.

        The lease `NOBODY` holds slots without an owner.
        """

        def attempt() -> Limit | None:
            opened = self.opened(ids=[id])
            for limit in opened:
                limit.reset(holders, opened.now)
            self.ledger.commit(*opened)
            return opened.limits[0].state if opened else None

        return retry_conflicts(attempt, attempts=ATTEMPTS)

    def _release(
        self, lease: str, ids: Sequence[str], reason: Literal["released", "expired", "run_over"]
    ) -> list[Limit]:
        def attempt() -> list[Limit]:
            opened = self.opened(ids=ids)
            # After the load: a renewal puts its row first, its fact later, so one of the two sees the other.
            if reason == "expired" and self.leases.lasting(LeaseKind.SLOTS, [lease]):
                return []
            held = [limit.state for limit in opened if lease in limit.state.holdings]
            if appends := appends_to_release(opened, lease, reason):
                self.ledger.append_all(appends)
            return held

        return retry_conflicts(attempt, attempts=ATTEMPTS)

    # Limits of tags (v1)

    def take_tags(self, tags: Sequence[str], task_run: str) -> Taken | Full:
        """Take one slot of each tag that has a limit for a task run, or none; it is its own lease (v1)."""
        holder = {"type": "task_run", "id": task_run}
        return self.increment([f"{TAG}{tag}" for tag in tags], 1, lease=task_run, holder=holder)

    def release_tags(self, tags: Sequence[str], task_run: str) -> list[Limit]:
        """Give back the slots of these tags that a task run holds; the limits of the tags (v1)."""
        found = self.opened(f"{TAG}{tag}" for tag in tags)
        self._release(task_run, [limit.state.id for limit in found], "released")
        return list(found.states())


def _check(opened: Opened, slots: int, mode: Mode) -> None:
    """Raise BadInput for what these limits can never grant."""
    if slots < 1:
        raise BadInput(f"slots {slots} must be 1 or more")
    if any(limit.state.limit < slots for limit in opened.active):
        raise BadInput("Slots requested is greater than the limit")
    lasting = [limit.state.name for limit in opened.active if limit.state.decay == 0]
    if mode == "rate_limit" and lasting:
        raise BadInput(f"a rate limit needs slot_decay_per_second; {', '.join(lasting)} has none")


def row_of(held: Mapping[str, Holding]) -> dict[str, Any]:
    """The data of the row of a lease, from what it holds of each limit, by the limit's id."""
    first = next(iter(held.values()))
    holder = None if first.holder is None else dict(first.holder)
    return {"limits": list(held), "slots": max(1, round(first.slots)), "holder": holder}
