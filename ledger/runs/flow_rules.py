"""
The rules of flow runs, and the policies that they make (spec 4.6), in the order of the spec.

    FLOW_POLICY            every proposal of a client
    MINIMAL_FLOW_POLICY    forced moves: a person or a runner says what is so
    MARK_LATE_POLICY       the service that marks runs as late

`docs/explanation/runs.md` has them as a table, with what differs from Prefect's server.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .flow_run import FlowRun
from .json_values import new_id
from .orchestration import ALL, Change, Policy, Rule, Transform
from .policies import FlowRunPolicy
from .states import TERMINAL, State, StateType, awaiting_retry, cancelled, failed

SCHEDULED, PENDING, RUNNING = StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING
COMPLETED, FAILED, CANCELLED = StateType.COMPLETED, StateType.FAILED, StateType.CANCELLED
CRASHED, PAUSED, CANCELLING = StateType.CRASHED, StateType.PAUSED, StateType.CANCELLING
LEASE: Final = "deployment_concurrency_lease_id"

Flow = Change[FlowRun]


def _policy(change: Flow) -> FlowRunPolicy:
    """The policy of the run, with what the rules changed so far."""
    changed = change.changes.get("empirical_policy")
    return change.run.empirical_policy if changed is None else FlowRunPolicy.of(changed)


def _set_policy(change: Flow, **fields: Any) -> None:
    change.set(empirical_policy={**_policy(change).shown(), **fields})


def _now() -> datetime:
    return datetime.now(UTC)


class PreserveDeploymentConcurrencyLeaseId(Transform):
    """A new state keeps the lease of the slot of its deployment's limit."""

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        lease = initial.detail(LEASE)
        if lease is not None and proposed.detail(LEASE) is None:
            change.detail(**{LEASE: lease})


class PreventDuplicateTransitions(Rule):
    """A client that repeats a proposal, because it got no answer, gets the present state.

    It has made the transition, whatever came after it: the run remembers the ids of its last proposals, also
    of those that led to another state than the proposed one (spec W3-03).
    """

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        if proposed.detail("transition_id") in change.run.transitions:
            change.reject(None, "This run has already made this state transition.")


class HandleFlowTerminalStateTransitions(Rule):
    """A run that is over begins anew only by a move that makes sense, and without its former pauses."""

    FROM_STATES = TERMINAL

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        if proposed.type in {CANCELLING, PAUSED, CRASHED}:
            change.abort(f"Run is already in terminal state {initial.type}.")
        elif initial.type is COMPLETED and initial.has_result and not proposed.is_terminal:
            change.reject(None, "Run is already COMPLETED.")
        elif _loses_result(initial, proposed):
            change.reject(None, _KEEPS_RESULT)
        elif proposed.type is SCHEDULED and change.run.deployment_id is None:
            change.abort("Cannot reschedule a run without an associated deployment.")
        elif not proposed.is_terminal:
            retry_type = "reschedule" if proposed.type is SCHEDULED else None
            _set_policy(change, resuming=False, pause_keys=[], retry_type=retry_type)

    def cleanup(self, change: Flow, initial: State | None, validated: State | None) -> None:
        change.unset("empirical_policy")


_KEEPS_RESULT: Final = (
    "Cannot overwrite a COMPLETED state that carries persisted result data with one that does not."
)


def _loses_result(initial: State, proposed: State) -> bool:
    both = initial.type is COMPLETED and proposed.type is COMPLETED
    return both and initial.has_result and not proposed.has_result


class PreventResultDataLoss(Rule):
    """Not even a forced move loses the result of a completed run."""

    FROM_STATES = TO_STATES = TERMINAL

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is not None and proposed is not None and _loses_result(initial, proposed):
            change.reject(None, _KEEPS_RESULT)


class EnforceCancellingToCancelledTransition(Rule):
    """A run that is being cancelled ends as cancelled."""

    FROM_STATES, TO_STATES = {CANCELLING}, ALL - {CANCELLED}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        change.reject(None, "Cannot transition flows that are cancelling to a state other than Cancelled.")


class BypassCancellingFlowRunsWithNoInfra(Rule):
    """A run without a process is cancelled at once: nobody would end it."""

    FROM_STATES, TO_STATES = {SCHEDULED, PAUSED}, {CANCELLING}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None:
            return
        if initial.type is SCHEDULED and (not change.run.infrastructure_pid or initial.name == "Resuming"):
            change.reject(cancelled(), "Scheduled flow run has no infrastructure to terminate.")
        elif initial.type is PAUSED and initial.detail("pause_reschedule"):
            change.reject(cancelled(), "Suspended flow run has no infrastructure to terminate.")


class PreventPendingTransitions(Rule):
    """Of two workers that claim a run by PENDING, one gets it.

    A worker that has it may name its progress: PENDING to PENDING with another name than "Pending".
    """

    FROM_STATES, TO_STATES = {PENDING, CANCELLING, RUNNING, CANCELLED}, {PENDING}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        if initial.type is PENDING and proposed.name not in {initial.name, "Pending"}:
            kept = ("scheduled_time", LEASE)
            change.detail(**{name: initial.detail(name) for name in kept})
        else:
            change.abort(f"This run is in a {initial.type} state and cannot transition to a PENDING state.")


class EnsureOnlyScheduledFlowsMarkedLate(Rule):
    """Late is a scheduled run that did not start, once."""

    TO_STATES = {SCHEDULED}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None or proposed.name != "Late":
            return
        if initial.type is not SCHEDULED:
            change.reject(None, "Only scheduled flows can be marked late.")
        elif initial.name == "Late":
            change.reject(None, "This flow run is already marked late.")


class HandlePausingFlows(Rule):
    """Only a running flow pauses, and at each place of its code once."""

    TO_STATES = {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if proposed is None:
            return
        verb = "suspend" if proposed.name == "Suspended" else "pause"
        self.key = proposed.detail("pause_key") or new_id()
        if initial is None:
            change.abort(f"Cannot {verb} flows with no state.")
        elif initial.type is not RUNNING:
            change.reject(None, f"Cannot {verb} flows that are not currently running.")
        elif self.key in _policy(change).pause_keys:
            change.reject(None, f"This {verb} has already fired.")
        elif proposed.detail("pause_reschedule") and change.run.parent_task_run_id is not None:
            change.abort(f"Cannot {verb} subflows.")
        elif proposed.detail("pause_reschedule") and change.run.deployment_id is None:
            change.abort(f"Cannot {verb} flows without a deployment.")

    def after(self, change: Flow, initial: State | None, validated: State | None) -> None:
        _set_policy(change, pause_keys=sorted({*_policy(change).pause_keys, self.key}))


class HandleResumingPausedFlows(Rule):
    """A paused run goes on, or ends; after its timeout it fails, unless it is cancelled (spec W3-09)."""

    FROM_STATES = {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        verb = "suspend" if initial.name == "Suspended" else "pause"
        ends = proposed.is_terminal or proposed.type is CANCELLING
        if not ends and proposed.type not in {RUNNING, SCHEDULED}:
            change.reject(
                None,
                f"This run cannot transition to the {proposed.type} state from the {initial.type} state.",
            )
        elif not ends and initial.detail("pause_reschedule") and change.run.deployment_id is None:
            change.reject(None, f"Cannot reschedule a {verb}ed flow run without a deployment.")
        elif not ends and _is_past(initial.time_of("pause_timeout")):
            change.reject(
                failed(message=f"The flow was {verb}ed and never resumed."),
                f"The flow run {verb} has timed out and can no longer resume.",
            )

    def after(self, change: Flow, initial: State | None, validated: State | None) -> None:
        if validated is not None and validated.type in {RUNNING, SCHEDULED}:
            _set_policy(change, resuming=True)


def _is_past(at: datetime | None) -> bool:
    return at is not None and at < _now()


class CopyScheduledTime(Rule):
    """A pending run keeps the time for which it was scheduled."""

    FROM_STATES, TO_STATES = {SCHEDULED}, {PENDING}

    def before(self, change: Change[Any], initial: State | None, proposed: State | None) -> None:
        if initial is not None and proposed is not None and proposed.detail("scheduled_time") is None:
            change.detail(scheduled_time=initial.detail("scheduled_time"))


class WaitForScheduledTime(Rule):
    """A run does not start before its time; the seconds to wait are rounded up (spec W3-09)."""

    FROM_STATES, TO_STATES = {SCHEDULED, PENDING}, {RUNNING}

    def before(self, change: Change[Any], initial: State | None, proposed: State | None) -> None:
        at = None if initial is None else initial.scheduled_time
        early = 0.0 if at is None else (at - _now()).total_seconds()
        if early > 0:
            change.wait(math.ceil(early), "Scheduled time is in the future")


class RetryFailedFlows(Rule):
    """A run that failed runs once more while it has retries left."""

    FROM_STATES, TO_STATES = {RUNNING}, {FAILED}

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        if initial is None or proposed is None:
            return
        policy = _policy(change)
        if policy.retries is None or change.run.run_count > policy.retries:
            _set_policy(change, retry_type=None)
            return
        _set_policy(change, resuming=False, pause_keys=[], retry_type="in_process")
        again = awaiting_retry(
            _now() + timedelta(seconds=policy.retry_delay or 0),
            message=proposed.message,
            data=proposed.data,
            state_details={LEASE: initial.detail(LEASE)},
        )
        change.reject(again, "Retrying")


class StampStateDetails(Transform):
    """A state names its run; that of a subflow also the task run that stands for it in the parent."""

    def before(self, change: Flow, initial: State | None, proposed: State | None) -> None:
        details = {"flow_run_id": change.run.id}
        if change.run.parent_task_run_id is not None:
            details["task_run_id"] = change.run.parent_task_run_id
        change.detail(**details)


FLOW_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    PreventDuplicateTransitions,
    HandleFlowTerminalStateTransitions,
    EnforceCancellingToCancelledTransition,
    BypassCancellingFlowRunsWithNoInfra,
    PreventPendingTransitions,
    EnsureOnlyScheduledFlowsMarkedLate,
    HandlePausingFlows,
    HandleResumingPausedFlows,
    CopyScheduledTime,
    WaitForScheduledTime,
    RetryFailedFlows,
    StampStateDetails,
)
"""What every proposal of a client goes through."""

MINIMAL_FLOW_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    PreventDuplicateTransitions,
    PreventResultDataLoss,
    BypassCancellingFlowRunsWithNoInfra,
    StampStateDetails,
)
"""What a forced move goes through."""

MARK_LATE_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    EnsureOnlyScheduledFlowsMarkedLate,
    StampStateDetails,
)
"""What the mark of a late run goes through."""
