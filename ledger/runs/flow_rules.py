"""
The rules of flow runs, and the policies that they make (spec 4.6), in the order of the spec.

    FLOW_POLICY            every proposal of a client
    MINIMAL_FLOW_POLICY    forced moves: a person or a runner says what is so
    MARK_LATE_POLICY       the service that marks runs as late
    RESUME_POLICY          a request to resume a paused run

`docs/explanation/runs.md` has them as a table, with what differs from Prefect's server.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from .deployment_slots import (
    EnforceDeploymentConcurrencyOnLate,
    PreserveDeploymentConcurrencyLeaseId,
    ReleaseFlowConcurrencySlots,
    RemoveDeploymentConcurrencyLeaseForOldClientVersions,
    SecureFlowConcurrencySlots,
    ValidateDeploymentConcurrencyAtRunning,
)
from .flow_run import FlowRun, FlowRunInputSet
from .json_values import kept, new_id
from .orchestration import ALL, Change, Policy, Rule, Transform
from .parameters import checked_parameters, filled_in, variable_value
from .policies import FlowRunPolicy
from .records import Records
from .run_rules import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    FAILED,
    KEEPS_RESULT,
    LEASE,
    PAUSED,
    RUNNING,
    SCHEDULED,
    CopyScheduledTime,
    LeaveTerminalState,
    PreventDuplicateTransitions,
    PreventPendingTransitions,
    PreventResultDataLoss,
    StorePersistedResult,
    WaitForScheduledTime,
    loses_result,
)
from .states import State, awaiting_retry, cancelled, failed
from .subflows import MirrorOnParentTaskRun

Flow = Change[FlowRun]


def _policy(change: Flow) -> FlowRunPolicy:
    """The policy of the run, with what the rules changed so far."""
    changed = change.changes.get("empirical_policy")
    return change.run.empirical_policy if changed is None else FlowRunPolicy.of(changed)


def _set_policy(change: Flow, **fields: Any) -> None:
    change.set(empirical_policy={**_policy(change).shown(), **fields})


def _now() -> datetime:
    return datetime.now(UTC)


class HandleFlowTerminalStateTransitions(LeaveTerminalState):
    """A run that is over begins anew only by a move that makes sense, and without its former pauses."""

    def decide(self, change: Flow, initial: State, proposed: State) -> None:
        if initial.type is COMPLETED and initial.has_result and not proposed.is_terminal:
            change.reject(None, "Run is already COMPLETED.")
        elif loses_result(initial, proposed):
            change.reject(None, KEEPS_RESULT)
        elif proposed.type is SCHEDULED and change.run.deployment_id is None:
            change.abort("Cannot reschedule a run without an associated deployment.")
        elif not proposed.is_terminal:
            retry_type = "reschedule" if proposed.type is SCHEDULED else None
            _set_policy(change, resuming=False, pause_keys=[], retry_type=retry_type)

    def cleanup(self, change: Flow, initial: State | None, validated: State | None) -> None:
        change.unset("empirical_policy")


class EnforceCancellingToCancelledTransition(Rule):
    """A run that is being cancelled ends as cancelled."""

    FROM_STATES, TO_STATES = {CANCELLING}, ALL - {CANCELLED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        change.reject(None, "Cannot transition flows that are cancelling to a state other than Cancelled.")


class BypassCancellingFlowRunsWithNoInfra(Rule):
    """A run without a process is cancelled at once: nobody would end it."""

    FROM_STATES, TO_STATES = {SCHEDULED, PAUSED}, {CANCELLING}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        if initial is None:
            return
        if initial.type is SCHEDULED and (not change.run.infrastructure_pid or initial.name == "Resuming"):
            change.reject(cancelled(), "Scheduled flow run has no infrastructure to terminate.")
        elif initial.type is PAUSED and initial.detail("pause_reschedule"):
            change.reject(cancelled(), "Suspended flow run has no infrastructure to terminate.")


class EnsureOnlyScheduledFlowsMarkedLate(Rule):
    """Late is a scheduled run that did not start, once."""

    TO_STATES = {SCHEDULED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        if initial is None or proposed.name != "Late":
            return
        if initial.type is not SCHEDULED:
            change.reject(None, "Only scheduled flows can be marked late.")
        elif initial.name == "Late":
            change.reject(None, "This flow run is already marked late.")


class HandlePausingFlows(Rule):
    """Only a running flow pauses, and at each place of its code once."""

    TO_STATES = {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
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

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        _set_policy(change, pause_keys=sorted({*_policy(change).pause_keys, self.key}))


class HandleResumingPausedFlows(Rule):
    """A paused run goes on, or ends; after its timeout it fails, unless it is cancelled (spec W3-09)."""

    FROM_STATES = {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        if initial is None:
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

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        if validated.type in {RUNNING, SCHEDULED}:
            _set_policy(change, resuming=True)


def _is_past(at: datetime | None) -> bool:
    return at is not None and at < _now()


class RetryFailedFlows(Rule):
    """A run that failed runs once more while it has retries left."""

    FROM_STATES, TO_STATES = {RUNNING}, {FAILED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        if initial is None:
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

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        details = {"flow_run_id": change.run.id}
        if change.run.parent_task_run_id is not None:
            details["task_run_id"] = change.run.parent_task_run_id
        change.detail(**details)


class ResumeOnlyPausedFlows(Rule):
    """A request to resume a run that is not paused is refused."""

    FROM_STATES = ALL - {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        change.abort("Cannot resume a flow run that is not paused.")


class CheckRunInput(Rule):
    """The input with which a paused run is resumed fits the schema that the run asked for, and is kept."""

    FROM_STATES = {PAUSED}

    def before(self, change: Flow, initial: State | None, proposed: State) -> None:
        self.keys = {} if initial is None else initial.detail("run_input_keyset") or {}
        self.input = change.given.get("run_input") or {}
        if not self.keys:
            return
        schema = next((one.value for one in change.run.inputs if one.key == self.keys.get("schema")), None)
        if schema is None:
            change.reject(None, "Run input schema not found.")
            return
        try:
            self.input = filled_in(self.input, partial(variable_value, Records(change.ledger)))
            checked_parameters(self.input, json.loads(schema))
        except ValueError as error:  # of json, and BadParameters
            change.reject(None, f"Reason: {error}")

    def after(self, change: Flow, initial: State | None, validated: State) -> None:
        if self.keys and self.input:
            value = json.dumps(kept(self.input))
            change.record(FlowRunInputSet(key=self.keys["response"], value=value))


ON_EVERY_MOVE: Final[Policy] = (MirrorOnParentTaskRun, StorePersistedResult, StampStateDetails)
"""The end of each policy: what is part of every move that is written."""

FLOW_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    PreventDuplicateTransitions,
    HandleFlowTerminalStateTransitions,
    EnforceCancellingToCancelledTransition,
    BypassCancellingFlowRunsWithNoInfra,
    PreventPendingTransitions,
    ValidateDeploymentConcurrencyAtRunning,
    SecureFlowConcurrencySlots,
    RemoveDeploymentConcurrencyLeaseForOldClientVersions,
    EnsureOnlyScheduledFlowsMarkedLate,
    HandlePausingFlows,
    HandleResumingPausedFlows,
    CopyScheduledTime,
    WaitForScheduledTime,
    RetryFailedFlows,
    ReleaseFlowConcurrencySlots,
    *ON_EVERY_MOVE,
)
"""What every proposal of a client goes through."""

MINIMAL_FLOW_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    PreventDuplicateTransitions,
    PreventResultDataLoss,
    BypassCancellingFlowRunsWithNoInfra,
    ReleaseFlowConcurrencySlots,
    *ON_EVERY_MOVE,
)
"""What a forced move goes through."""

MARK_LATE_POLICY: Final[Policy] = (
    PreserveDeploymentConcurrencyLeaseId,
    EnsureOnlyScheduledFlowsMarkedLate,
    EnforceDeploymentConcurrencyOnLate,
    *ON_EVERY_MOVE,
)
"""What the mark of a late run goes through."""

RESUME_POLICY: Final[Policy] = (ResumeOnlyPausedFlows, CheckRunInput, *FLOW_POLICY)
"""What a request to resume a paused run goes through."""
