"""The rules that policies of flow runs and of task runs share (spec 4.6)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from .artifacts import Artifacts
from .json_values import plain
from .orchestration import Change, Rule, Transform
from .states import TERMINAL, State, StateType

SCHEDULED, PENDING, RUNNING = StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING
COMPLETED, FAILED, CANCELLED = StateType.COMPLETED, StateType.FAILED, StateType.CANCELLED
CRASHED, PAUSED, CANCELLING = StateType.CRASHED, StateType.PAUSED, StateType.CANCELLING
LEASE: Final = "deployment_concurrency_lease_id"


class PreventDuplicateTransitions(Rule):
    """A client that repeats a proposal, because it got no answer, gets the present state.

    It has made the transition, whatever came after it: the run remembers the ids of its last proposals, also
    of those that led to another state than the proposed one (spec W3-03).
    """

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if initial is None:
            return
        if proposed.detail("transition_id") in change.run.transitions:
            change.reject(None, "This run has already made this state transition.")


class PreventPendingTransitions(Rule):
    """Of two workers that claim a run by PENDING, one gets it.

    A worker that has it may name its progress: PENDING to PENDING with another name than "Pending".
    """

    FROM_STATES, TO_STATES = {PENDING, CANCELLING, RUNNING, CANCELLED}, {PENDING}

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if initial is None:
            return
        if initial.type is PENDING and proposed.name not in {initial.name, "Pending"}:
            kept = ("scheduled_time", LEASE)
            change.detail(**{name: initial.detail(name) for name in kept})
        else:
            change.abort(f"This run is in a {initial.type} state and cannot transition to a PENDING state.")


class LeaveTerminalState(Rule):
    """What every run that is over refuses; `decide` says what else its kind does."""

    FROM_STATES = TERMINAL

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if initial is None:
            return
        if proposed.type in {CANCELLING, PAUSED, CRASHED}:
            change.abort(f"Run is already in terminal state {initial.type}.")
        else:
            self.decide(change, initial, proposed)

    @abstractmethod
    def decide(self, change: Change[Any], initial: State, proposed: State) -> None:
        """Decide about a proposal that is none of these."""


KEEPS_RESULT: Final = (
    "Cannot overwrite a COMPLETED state that carries persisted result data with one that does not."
)


def loses_result(initial: State, proposed: State) -> bool:
    """Whether a completed run would lose its persisted result."""
    both = initial.type is COMPLETED and proposed.type is COMPLETED
    return both and initial.has_result and not proposed.has_result


class PreventResultDataLoss(Rule):
    """Not even a forced move loses the result of a completed run."""

    FROM_STATES = TO_STATES = TERMINAL

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if initial is not None and loses_result(initial, proposed):
            change.reject(None, KEEPS_RESULT)


class CopyScheduledTime(Rule):
    """A pending run keeps the time for which it was scheduled."""

    FROM_STATES, TO_STATES = {SCHEDULED}, {PENDING}

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if initial is not None and proposed.detail("scheduled_time") is None:
            change.detail(scheduled_time=initial.detail("scheduled_time"))


class WaitForScheduledTime(Rule):
    """A run does not start before its time; the seconds to wait are rounded up (spec W3-09)."""

    FROM_STATES, TO_STATES = {SCHEDULED, PENDING}, {RUNNING}

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        at = None if initial is None else initial.scheduled_time
        early = 0.0 if at is None else (at - datetime.now(UTC)).total_seconds()
        if early > 0:
            change.wait(math.ceil(early), "Scheduled time is in the future")


class StorePersistedResult(Transform):
    """A persisted result becomes an artifact too; data that were not persisted are dropped (S3-48)."""

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        if isinstance(proposed.data, Mapping) and proposed.data.get("type") == "unpersisted":
            change.drop_data()

    def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
        if validated.data is None:
            return
        data = dict(validated.data) if isinstance(validated.data, Mapping) else validated.data
        fields = {name: validated.detail(name) for name in ("flow_run_id", "task_run_id")}
        if isinstance(data, dict):
            given = {name: data.pop(f"artifact_{name}", None) for name in ("key", "type", "description")}
            fields |= {name: value for name, value in given.items() if value}
        change.also(*Artifacts(change.ledger).appends_of_create({**fields, "data": plain(data)}))
