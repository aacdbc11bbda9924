"""
What flow runs and task runs have in common: the fields that follow from their states (spec 4.2, 4.6).

`entered` computes these fields, and nothing else does: a head, a view and a fold from nothing agree (W3-10).
Prefect's server computes them by its global transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.state import TREE
from .facts import ProposalRefused, StateSet
from .json_values import plain, time_text
from .states import State, StateType

R = TypeVar("R", bound="Run")
REMEMBERED: Final = 50
"""How many of the last transition ids a run remembers (spec W3-03)."""


class RunStatus(StrEnum):
    """The statuses of a run's stream: the types of its states in lower case, and deleted."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    DELETED = "deleted"


_STATES = frozenset(RunStatus) - {RunStatus.DELETED}
MOVES: Final = Moves({None: frozenset(RunStatus), **dict.fromkeys(_STATES, frozenset(RunStatus))})
"""From any state to any other: the rules of a policy decide, not the machine. Deleted is the end."""


@dataclass(frozen=True, slots=True)
class Run:
    """The fields that every run has. status: the type of its state in lower case, or deleted.

    version: of the stream; filled in when a run is read. created, updated: the database's times. start_time:
    when it first ran, or ended without running; end_time: when it was over, None while it is not.
    next_scheduled_start_time: while it is scheduled. ran: the time in RUNNING before the last time that it
    entered it, in microseconds; ran_from, ran_to: that last time. transitions: the last transition ids that
    led to a state; refused_transitions: those that did not. waits: the rules that let proposals wait since
    the state was set.
    """

    id: str = ""
    status: str | None = None
    version: int = field(default=0, metadata=TREE)
    created: datetime | None = None
    updated: datetime | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    labels: Mapping[str, Any] = field(default=FrozenDict())
    state: State | None = None
    run_count: int = 0
    expected_start_time: datetime | None = None
    next_scheduled_start_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    ran: int = 0
    ran_from: datetime | None = None
    ran_to: datetime | None = None
    transitions: tuple[str, ...] = ()
    refused_transitions: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def state_type(self) -> StateType | None:
        """The type of its state."""
        return None if self.state is None else self.state.type

    @property
    def state_name(self) -> str | None:
        """The name of its state."""
        return None if self.state is None else self.state.name

    @property
    def state_timestamp(self) -> datetime | None:
        """The time of its state."""
        return None if self.state is None else self.state.timestamp

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted."""
        return self.status == RunStatus.DELETED

    @property
    def total_run_time(self) -> timedelta:
        """The time that it spent in RUNNING and has left; never negative, whatever times clients claim."""
        last = timedelta(0)
        if self.ran_from is not None and self.ran_to is not None:
            last = max(last, self.ran_to - self.ran_from)
        return timedelta(microseconds=self.ran) + last

    def estimated_run_time(self, now: datetime | None = None) -> timedelta:
        """The total run time, with the time in RUNNING up to now."""
        total = self.total_run_time
        if self.state_type is StateType.RUNNING and self.ran_from is not None:
            total += max(timedelta(0), (now or datetime.now(UTC)) - self.ran_from)
        return total

    def estimated_start_time_delta(self, now: datetime | None = None) -> timedelta:
        """How much later than expected it started, or has not started yet."""
        expected, started = self.expected_start_time, self.start_time
        if expected is None or (started is None and self.state is not None and self.state.is_terminal):
            return timedelta(0)
        return max(timedelta(0), (started or now or datetime.now(UTC)) - expected)


def entered(run: R, state: State, *, counts: bool = True) -> R:
    """The run in a new state, with all fields that follow from it.

    counts: whether entering RUNNING counts as a run. RUNNING to RUNNING enters nothing: a client that repeats
    its proposal uses up no retry (spec W3-03).
    """
    was, now = run.state, state.timestamp
    changes: dict[str, Any] = {"state": state, "status": state.type.lower(), "waits": ()}
    is_scheduled = state.type is StateType.SCHEDULED
    if run.expected_start_time is None:
        changes["expected_start_time"] = state.scheduled_time if is_scheduled else now
    changes["next_scheduled_start_time"] = state.scheduled_time if is_scheduled else None
    was_running = was is not None and was.type is StateType.RUNNING
    is_running = state.type is StateType.RUNNING
    if is_running and not was_running:
        changes |= {"ran": _micros(run.total_run_time), "ran_from": now, "ran_to": None}
        changes["run_count"] = run.run_count + counts
    if was_running and not is_running:
        changes["ran_to"] = now
    if (is_running or state.is_terminal) and run.start_time is None:
        changes["start_time"] = now
    if not state.is_terminal:
        changes["end_time"] = None
    elif run.end_time is None:
        changes["end_time"] = now
    return changed(run, **changes)


def remembered(run: R, fact: StateSet | ProposalRefused) -> R:
    """The run with the transition id of a proposal, and with the rule that let it wait."""
    changes: dict[str, Any] = {}
    if fact.transition_id is not None:
        name = "transitions" if isinstance(fact, StateSet) else "refused_transitions"
        changes[name] = (*getattr(run, name), fact.transition_id)[-REMEMBERED:]
    if isinstance(fact, ProposalRefused) and fact.delay_seconds is not None and fact.rule not in run.waits:
        changes["waits"] = (*run.waits, fact.rule)
    return changed(run, **changes) if changes else run


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def states_shown(run: Run, now: datetime) -> dict[str, Any]:
    """The fields that follow from the states of any run, in JSON; times in seconds are numbers."""
    return {
        "state": None if run.state is None else plain(run.state.shown()),
        "state_type": run.state_type,
        "state_name": run.state_name,
        "run_count": run.run_count,
        "expected_start_time": shown_time(run.expected_start_time),
        "next_scheduled_start_time": shown_time(run.next_scheduled_start_time),
        "start_time": shown_time(run.start_time),
        "end_time": shown_time(run.end_time),
        "total_run_time": run.total_run_time.total_seconds(),
        "estimated_run_time": run.estimated_run_time(now).total_seconds(),
        "estimated_start_time_delta": run.estimated_start_time_delta(now).total_seconds(),
    }


def shown_time(at: datetime | None) -> str | None:
    """A time in JSON."""
    return None if at is None else time_text(at)
