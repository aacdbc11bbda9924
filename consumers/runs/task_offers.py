"""
Background task runs: which of them wait for a client, and which client has one.

A task run waits while its current state is SCHEDULED and `deferred`: that is in the log, so nothing is lost
with a server. A client that is given one has it under a lease. The lease is renewed while the client is
connected, and given back when the client goes before it said that it has the run; then, and when the lease
runs out, the run is offered again, unless it has begun. So of any number of servers one gives it to one
client; a client that is cut off for longer than the lease, and yet begins, shares its run with another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ledger import Ledger
from ledger.runs.leases import LeaseKind, RunLeases
from ledger.runs.states import StateType
from ledger.runs.task_run import OpenTaskRun, TaskRun
from projections.runs import task_runs, wait_for

LEASE: Final = 60.0
"""Seconds for which a client has a task run without a renewal."""
PAGE: Final = 1000
"""Task runs that are read at once."""


class Offer(NamedTuple):
    """A task run that waits in a state. retry: it ran before, so it comes first."""

    id: str
    state_id: str
    task_key: str
    retry: bool = False

    @property
    def lease(self) -> str:
        """The key of its lease: another one when it is scheduled once more."""
        return f"{self.id} {self.state_id}"


class TaskOffers:
    """The background task runs of a ledger. Needs the writer's role."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._leases = ledger, RunLeases(ledger)

    def waiting(self, task_keys: Collection[str]) -> list[Offer]:
        """The task runs of these tasks that wait for a client, the oldest first; read from the view."""
        wait_for(self.ledger, views=["task_runs"])
        found: list[Offer] = []
        offset = 0
        wanted = {"task_runs": {"state": {"type": {"any_": [StateType.SCHEDULED.value]}}}}
        while page := task_runs(self.ledger, wanted, "EXPECTED_START_TIME_ASC", offset, PAGE):
            found += [offer for run in page if run.task_key in task_keys and (offer := offer_of(run))]
            offset += len(page)
        taken = self._leases.lasting(LeaseKind.TASK_RUN, [offer.lease for offer in found])
        return [offer for offer in found if offer.lease not in taken]

    def take(self, offer: Offer, client: str) -> TaskRun | None:
        """Give a task run to a client; None if another has it, or it waits no more in this state."""
        if not self._leases.take(LeaseKind.TASK_RUN, offer.lease, LEASE, {"client": client}):
            return None
        run = self.ledger.load(OpenTaskRun, offer.id).state
        if offer_of(run) != offer:
            self.give_back(offer)
            return None
        return run

    def give_back(self, offer: Offer) -> None:
        """The client has it no more."""
        self._leases.release(LeaseKind.TASK_RUN, offer.lease)

    def of_client(self, client: str) -> set[Offer]:
        """The task runs that a client has, which was connected before, and which still wait."""
        leases = [one for one in self._leases.all(LeaseKind.TASK_RUN) if one.data.get("client") == client]
        runs = self.ledger.load_each([OpenTaskRun(one.key.partition(" ")[0]) for one in leases])
        keys = {one.key for one in leases}
        return {offer for run in runs if (offer := offer_of(run.state)) and offer.lease in keys}

    def renew(self, offers: Collection[Offer]) -> set[Offer]:
        """Renew the leases of a client's task runs; returns those that still wait, and ends the others."""
        runs = self.ledger.load_each([OpenTaskRun(offer.id) for offer in offers])
        waiting = {offer for run in runs if (offer := offer_of(run.state))} & set(offers)
        begun = [offer.lease for offer in offers if offer not in waiting]
        self._leases.release(LeaseKind.TASK_RUN, *begun)
        return {one for one in waiting if self._leases.renew_held(LeaseKind.TASK_RUN, one.lease, LEASE)}


def offer_of(run: TaskRun) -> Offer | None:
    """The offer of a task run, if it waits for a client (spec 4.6, EnqueueScheduledTasks)."""
    state = run.state
    if (
        state is None
        or run.is_deleted
        or state.type is not StateType.SCHEDULED
        or not state.detail("deferred")
    ):
        return None
    return Offer(run.id, state.id, run.task_key, state.name == "AwaitingRetry")
