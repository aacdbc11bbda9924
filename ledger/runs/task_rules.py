"""
The rules of task runs, and the policies that they make (spec 4.6), in the order of the spec.

    TASK_POLICY               every proposal through the API
    CLIENT_SIDE_TASK_POLICY   the same for clients that take slots of limits themselves
    BACKGROUND_TASK_POLICY    deferred task runs, which belong to no flow run
    MINIMAL_TASK_POLICY       forced moves, and the states of subflows on their parents' task runs

A deferred run waits for a worker while it is in a SCHEDULED state with the detail `deferred`: that state is
its place in the queue, so that nothing has to be put into another one (EnqueueScheduledTasks of the spec).
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import RunNotFound
from ..log.append import Append, Guard
from .cached_states import cached_states
from .flow_run import FlowRun, OpenFlowRun
from .limit import TAG
from .limits import Full, Limits, appends_to_release, appends_to_take
from .orchestration import Change, Policy, Rule, Transform
from .policies import TaskRunPolicy
from .run import RunStatus
from .run_rules import (
    CANCELLING,
    COMPLETED,
    FAILED,
    PAUSED,
    PENDING,
    RUNNING,
    SCHEDULED,
    CopyScheduledTime,
    LeaveTerminalState,
    PreventDuplicateTransitions,
    PreventPendingTransitions,
    PreventResultDataLoss,
    StorePersistedResult,
    WaitForScheduledTime,
)
from .states import State, awaiting_retry, paused
from .task_run import TaskRun, ids_of_run

Task = Change[TaskRun]
LONGEST_CACHE_KEY: Final = 2000
"""Characters in a cache key; Prefect's default."""


def _flow_run(change: Task) -> FlowRun | None:
    """The flow run of the task run, as it is now; None for a background task, and where there is none."""
    if change.run.flow_run_id is None:
        return None
    opened = change.ledger.load(OpenFlowRun, change.run.flow_run_id)
    return opened.state if opened.is_there else None


def _run_count(change: Task) -> int:
    """The run count of the task run, with what the rules changed so far."""
    return int(change.changes.get("run_count", change.run.run_count))


class CacheRetrieval(Rule):
    """A task run whose cache key has a completed state takes it over, and does not run."""

    TO_STATES = {RUNNING}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        key = proposed.detail("cache_key")
        if not key or proposed.detail("refresh_cache"):
            return
        found = cached_states(change.ledger, key).state.newest(datetime.now(UTC))
        if found is not None:
            change.reject(found.fresh_copy(), "Retrieved state from cache")
            change.rename("Cached")


class HandleTaskTerminalStateTransitions(LeaveTerminalState):
    """A task run that is over keeps its result; it begins anew with all its retries."""

    def decide(self, change: Task, initial: State, proposed: State) -> None:
        if initial.type is COMPLETED and initial.has_result:
            change.reject(None, "This run is already completed.")
            return
        if not proposed.is_terminal:
            change.set(run_count=0)
        flow_run = _flow_run(change) if proposed.type is RUNNING else None
        if flow_run is not None and change.run.flow_run_run_count < flow_run.run_count:
            change.rename("Retrying")

    def cleanup(self, change: Task, initial: State | None, validated: State | None) -> None:
        change.unset("run_count")


class PreventRunningTasksFromStoppedFlows(Rule):
    """A task runs only while its flow runs, also at the moment of the append."""

    TO_STATES = {RUNNING}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        flow_run = _flow_run(change)
        if flow_run is None:
            return
        state = flow_run.state
        if state is not None and state.type is PAUSED:
            not_ready = paused(
                "NotReady",
                expires_at=state.time_of("pause_timeout"),
                reschedule=state.detail("pause_reschedule"),
            )
            why = f"The flow is paused, new tasks can execute after resuming flow run: {flow_run.id}."
            change.reject(not_ready, why)
        elif state is None or state.type is not RUNNING:
            change.abort("The enclosing flow must be running to begin task execution.")

    def after(self, change: Task, initial: State | None, validated: State) -> None:
        if change.run.flow_run_id is not None and _flow_run(change) is not None:
            stream = OpenFlowRun.name_of(change.run.flow_run_id)
            change.also(Append(stream, [], Guard(frozenset({RunStatus.RUNNING}))))


class SecureTaskConcurrencySlots(Rule):
    """A running task run holds a slot of the limit of each of its tags; it takes them all or waits."""

    TO_STATES = {RUNNING}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        if not change.run.tags:
            return
        opened = Limits(change.ledger).opened([f"{TAG}{tag}" for tag in change.run.tags])
        closed = [limit.state.name.removeprefix(TAG) for limit in opened.active if limit.state.limit == 0]
        if closed:
            why = "is 0 and will deadlock if the task tries to run again."
            change.abort(f'The concurrency limit on tag "{closed[0]}" {why}')
            return
        holder = {"type": "task_run", "id": change.run.id}
        found = appends_to_take(opened, change.run.id, holder=holder)
        if isinstance(found, Full):
            change.ledger.append_all(found.appends)  # the limits count whom they refused
            full = ", ".join(name.removeprefix(TAG) for name in found.limits)
            seconds = max(1, math.ceil(found.retry_after_seconds))
            change.wait(seconds, f"Concurrency limit reached for tags: {full}")
        else:
            change.also(*found)

    def cleanup(self, change: Task, initial: State | None, validated: State | None) -> None:
        change.withdraw()


class CopyTaskParametersID(Rule):
    """A background task run keeps the reference to its parameters."""

    FROM_STATES, TO_STATES = {SCHEDULED, PENDING}, {PENDING, RUNNING}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        if initial is not None and proposed.detail("task_parameters_id") is None:
            change.detail(task_parameters_id=initial.detail("task_parameters_id"))


class RetryFailedTasks(Rule):
    """A task run that failed runs once more while it has retries left, unless its client says no."""

    FROM_STATES, TO_STATES = {RUNNING}, {FAILED}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        policy, attempts = change.run.empirical_policy, _run_count(change)
        if initial is None or proposed.detail("retriable") is False:
            return
        if policy.retries is None or attempts > policy.retries:
            return
        kept = {name: initial.detail(name) for name in ("deferred", "task_parameters_id")}
        again = awaiting_retry(
            datetime.now(UTC) + timedelta(seconds=_delay(policy, attempts)),
            message=proposed.message,
            data=proposed.data,
            state_details=kept,
        )
        change.reject(again, "Retrying")


def _delay(policy: TaskRunPolicy, attempts: int) -> float:
    """Seconds before the next attempt; the jitter factor spreads them evenly around the delay."""
    delay, factor = policy.delay_before(attempts), policy.retry_jitter_factor or 0.0
    return delay * random.uniform(max(0.0, 1 - factor), 1 + factor)


class RenameReruns(Rule):
    """A further attempt is named Retrying after a failure that is retried, else Rerunning."""

    TO_STATES = {RUNNING}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        if initial is not None and _run_count(change) > 0:
            change.rename("Retrying" if initial.name == "AwaitingRetry" else "Rerunning")


class UpdateFlowRunTrackerOnTasks(Rule):
    """A task run knows the attempt of its flow run in which it ran last."""

    TO_STATES = {RUNNING}

    def after(self, change: Task, initial: State | None, validated: State) -> None:
        if change.run.flow_run_id is None:
            return
        flow_run = _flow_run(change)
        if flow_run is None:
            raise RunNotFound("flow run", change.run.flow_run_id)
        change.set(flow_run_run_count=flow_run.run_count)


class CacheInsertion(Rule):
    """A completed state with a cache key is cached."""

    TO_STATES = {COMPLETED}

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        if len(proposed.detail("cache_key") or "") > LONGEST_CACHE_KEY:
            why = f"Cache key exceeded maximum allowed length of {LONGEST_CACHE_KEY} characters."
            change.reject(proposed, why)

    def after(self, change: Task, initial: State | None, validated: State) -> None:
        key = validated.detail("cache_key")
        if key and len(key) <= LONGEST_CACHE_KEY:
            cached = cached_states(change.ledger, key)
            cached.put(key, change.run.id, validated)
            change.also(cached)


class ReleaseTaskConcurrencySlots(Transform):
    """A task run that does not run gives back the slots of its tags, in whatever state it was."""

    def after(self, change: Task, initial: State | None, validated: State) -> None:
        if initial is not None and change.run.tags and validated.type not in {RUNNING, CANCELLING}:
            opened = Limits(change.ledger).opened([f"{TAG}{tag}" for tag in change.run.tags])
            change.also(*appends_to_release(opened, change.run.id))


class StampStateDetails(Transform):
    """A state names its task run and its flow run."""

    def before(self, change: Task, initial: State | None, proposed: State) -> None:
        change.detail(**ids_of_run(change.run))


ON_EVERY_MOVE: Final[Policy] = (ReleaseTaskConcurrencySlots, StorePersistedResult, StampStateDetails)
"""The end of each policy: what is part of every move that is written."""

TASK_POLICY: Final[Policy] = (
    PreventDuplicateTransitions,
    CacheRetrieval,
    HandleTaskTerminalStateTransitions,
    PreventRunningTasksFromStoppedFlows,
    SecureTaskConcurrencySlots,
    CopyScheduledTime,
    WaitForScheduledTime,
    RetryFailedTasks,
    RenameReruns,
    UpdateFlowRunTrackerOnTasks,
    CacheInsertion,
    *ON_EVERY_MOVE,
)
"""What every proposal of a client goes through."""

CLIENT_SIDE_TASK_POLICY: Final[Policy] = tuple(
    rule for rule in TASK_POLICY if rule is not SecureTaskConcurrencySlots
)
"""What proposals go through whose client has taken the slots itself."""

BACKGROUND_TASK_POLICY: Final[Policy] = (
    PreventDuplicateTransitions,
    PreventPendingTransitions,
    CacheRetrieval,
    HandleTaskTerminalStateTransitions,
    CopyScheduledTime,
    CopyTaskParametersID,
    WaitForScheduledTime,
    RetryFailedTasks,
    RenameReruns,
    UpdateFlowRunTrackerOnTasks,
    CacheInsertion,
    *ON_EVERY_MOVE,
)
"""What a deferred state goes through: one worker gets the run."""

MINIMAL_TASK_POLICY: Final[Policy] = (PreventDuplicateTransitions, PreventResultDataLoss, *ON_EVERY_MOVE)
"""What a forced move goes through: it gives back slots, and loses no result (spec W3-06)."""
