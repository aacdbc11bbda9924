"""
Rules of deployments' concurrency limits: a run holds a slot from PENDING until it is over (spec 4.6).

Slots are taken and given back in the append of the state, which names the lease under which the run holds its
slot (`deployment_concurrency_lease_id`). The lease has a row that the client renews; a lease that ran out is
taken again where a slot is free (W3-07).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import RecordNotFound
from ..log.append import Append
from ..log.ledger import Ledger
from .flow_run import FlowRun
from .json_values import new_id
from .limits import Full, Limits, Opened, appends_to_keep, appends_to_release, appends_to_take
from .orchestration import ALL, Change, Rule, Transform, Verdict
from .records import Record, Records
from .run_rules import CANCELLING, LEASE, PAUSED, PENDING, RUNNING, SCHEDULED
from .states import State, awaiting_concurrency_slot, cancelled

GRACE_SECONDS: Final = 300
"""How long a lease lasts at first, where the deployment does not say: its infrastructure starts meanwhile."""
WAIT_SECONDS: Final = 30
"""After how long a run asks again for a slot."""
RENEWING_SINCE: Final = (3, 4, 11)
"""The first version of Prefect whose clients renew their leases."""

Flow = Change[FlowRun]


def _deployment(change: Flow) -> Record | None:
    """The deployment of the run; None where it has none, or it was deleted."""
    if change.run.deployment_id is None:
        return None
    try:
        return Records(change.ledger).get("deployment", change.run.deployment_id)
    except RecordNotFound:
        return None


def _limits_of(change: Flow, deployment: Record) -> Opened | None:
    """The limit of a deployment, if it has one that is in force."""
    id = deployment["concurrency_limit_id"]
    opened = None if id is None else Limits(change.ledger).opened(ids=[id])
    return opened if opened is not None and opened.active else None


def _options(deployment: Record) -> dict[str, Any]:
    return dict(deployment["concurrency_options"] or {})


def _grace(deployment: Record) -> float:
    return float(_options(deployment).get("grace_period_seconds") or GRACE_SECONDS)


def _cancels_new(deployment: Record) -> bool:
    return _options(deployment).get("collision_strategy") == "CANCEL_NEW"


def _holder(change: Flow) -> dict[str, str]:
    return {"type": "flow_run", "id": change.run.id}


class PreserveDeploymentConcurrencyLeaseId(Transform):
    """A new state keeps the lease of the one before."""

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        if initial is not None and proposed.detail(LEASE) is None and initial.detail(LEASE) is not None:
            change.detail(**{LEASE: initial.detail(LEASE)})


class ValidateDeploymentConcurrencyAtRunning(Rule):
    """A run whose lease ran out while its infrastructure started takes a slot again, or is cancelled."""

    FROM_STATES, TO_STATES = {PENDING}, {RUNNING}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        lease = None if initial is None else initial.detail(LEASE)
        if lease is None or not _renews(change) or (deployment := _deployment(change)) is None:
            return
        limits, seconds = Limits(change.ledger), _grace(deployment)
        if limits.renew(lease, seconds) or (opened := _limits_of(change, deployment)) is None:
            return
        taken = appends_to_take(opened, lease, holder=_holder(change), seconds=seconds)
        if isinstance(taken, Full):
            change.also(*taken.appends)
            change.reject(
                cancelled(message="Its concurrency slot was lost while it started, and no slot is free."),
                "Deployment concurrency limit reached after lease expiry.",
            )
            return
        limits.lease(lease, opened, 1, seconds, _holder(change))
        change.also(*taken)


class SecureFlowConcurrencySlots(Rule):
    """A run that is about to start takes a slot of its deployment's limit; where none is free, it waits.

    With the collision strategy CANCEL_NEW it is cancelled instead.
    """

    FROM_STATES, TO_STATES = ALL - {PENDING, RUNNING, CANCELLING}, {PENDING}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        self.opened: Opened | None = None
        if change.run.deployment_id is None:
            return
        deployment = _deployment(change)
        if deployment is None:
            change.abort("Deployment not found.")
            return
        opened = _limits_of(change, deployment)
        if opened is None:
            return
        if any(limit.state.limit == 0 for limit in opened.active):
            change.abort("The deployment concurrency limit is 0. The flow will deadlock if submitted again.")
            return
        self._take(change, deployment, opened, proposed.detail(LEASE) or new_id())

    def _take(self, change: Flow, deployment: Record, opened: Opened, lease: str) -> None:
        self.seconds = _grace(deployment)
        taken = appends_to_take(opened, lease, holder=_holder(change), seconds=self.seconds)
        if not isinstance(taken, Full):
            self.opened, self.lease = opened, lease
            change.also(*taken)
            change.detail(**{LEASE: lease})
            return
        change.also(*taken.appends)
        reason = "Deployment concurrency limit reached."
        if _cancels_new(deployment):
            change.reject(cancelled(message=reason), reason)
        else:
            later = datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS)
            change.reject(awaiting_concurrency_slot(later), reason)

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        if self.opened is not None:  # before the append: without it, the row only runs out
            Limits(change.ledger).lease(self.lease, self.opened, 1, self.seconds, _holder(change))

    def cleanup(self, change: Flow, initial: State | None, validated: State | None) -> None:
        change.withdraw()


class RemoveDeploymentConcurrencyLeaseForOldClientVersions(Rule):
    """Clients that do not renew a lease keep the slot without one, until the run is over."""

    FROM_STATES, TO_STATES = {PENDING}, {RUNNING, CANCELLING}

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        lease = None if initial is None else initial.detail(LEASE)
        if lease is not None and not _renews(change):
            limits = Limits(change.ledger)
            change.also(*appends_to_keep(_held(limits, lease), lease))
            limits.forget(lease)


class EnforceDeploymentConcurrencyOnLate(Rule):
    """A late run of a deployment that is full and cancels new runs is cancelled, and does not pile up."""

    FROM_STATES, TO_STATES = {SCHEDULED}, {SCHEDULED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        deployment = _deployment(change) if proposed.name == "Late" else None
        if deployment is None or not _cancels_new(deployment):
            return
        opened = _limits_of(change, deployment)
        if opened is not None and any(not one.state.has_room(1, opened.now) for one in opened.active):
            change.reject(
                cancelled(message="Deployment concurrency limit reached."),
                "Deployment concurrency limit is full and uses the CANCEL_NEW strategy.",
            )


class ReleaseFlowConcurrencySlots(Transform):
    """A run that leaves its process gives back its slot, in whatever state it was.

    It keeps the slot where its process goes on: in a pause that blocks, and while it awaits a retry.
    """

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        self.lease = None if initial is None else initial.detail(LEASE)
        if self.lease is None or _goes_on(change, proposed):
            self.lease = None
        else:
            change.detail(**{LEASE: None})

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        if self.lease is not None:
            change.also(*appends_to_give_back(change.ledger, self.lease))


def appends_to_give_back(ledger: Ledger, lease: str) -> list[Append]:
    """The appends by which a run that is over gives back what its lease holds."""
    return appends_to_release(_held(Limits(ledger), lease), lease, "run_over")


def _held(limits: Limits, lease: str) -> Opened:
    """The limits of which a lease holds slots, open for change."""
    return limits.opened(ids=[limit.id for limit in limits.holding(lease)])


def _goes_on(change: Flow, proposed: State) -> bool:
    """Whether the process of the run goes on in this state."""
    if proposed.type is SCHEDULED:
        return change.status is Verdict.REJECT and proposed.name == "AwaitingRetry"
    if proposed.type is PAUSED:
        return not proposed.detail("pause_reschedule")
    return proposed.type in {PENDING, RUNNING, CANCELLING}


def _renews(change: Flow) -> bool:
    """Whether the client renews its leases; one that does not tell its version does not."""
    numbers = str(change.given.get("client_version") or "0").split(".")[:3]
    version = tuple(int("".join(filter(str.isdigit, number)) or 0) for number in numbers)
    return version >= RENEWING_SINCE
