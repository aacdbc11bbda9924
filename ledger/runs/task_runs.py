"""
Task runs: create, read, move from state to state, change, delete.

    runs = TaskRuns(log)
    run, is_new = runs.create("sum-1f2", "0", flow_run_id=flow_run.id, state=pending())
    answer = runs.set_state(run.id, running())

Clients orchestrate most task runs themselves and report the states (`client_events`); the API sets those of
background tasks and of subflows. A proposed state is decided and recorded in one append, at the version of
the run that was read: a report that comes between makes the proposal be decided again (spec W3-06).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..domain.frozen import changed
from ..errors import GuardFailed, RunNotFound, StreamConflict
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .flow_run import OpenFlowRun
from .json_values import checked_uuid, new_id
from .names import OpenName
from .orchestration import Answer, Change, Policy, answered, committed, orchestrate, recorded
from .slugs import new_name
from .states import State
from .task_rules import BACKGROUND_TASK_POLICY, MINIMAL_TASK_POLICY, TASK_POLICY
from .task_run import (
    OpenTaskRun,
    TaskRun,
    TaskRunProposalRefused,
    TaskRunStateCameLate,
    TaskRunStateSet,
    key_of,
)


class TaskRuns:
    """The task runs of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def create(
        self,
        task_key: str,
        dynamic_key: str,
        *,
        id: str | None = None,
        flow_run_id: str | None = None,
        state: State | None = None,
        name: str | None = None,
        **fields: Any,
    ) -> tuple[TaskRun, bool]:
        """Create a run, in a state if one is given; returns it, and whether it is new.

        A flow run has one task run of a task_key and dynamic_key: the first is returned, as is a run with
        this id. fields: further ones of spec 4.2. Raises BadInput, RunNotFound for the id of a run that was
        deleted.
        """
        id = checked_uuid(id or new_id())
        given: dict[str, Any] = {**fields, "name": name or new_name(), "flow_run_id": flow_run_id}
        key = key_of(flow_run_id, task_key, dynamic_key)
        opened = OpenTaskRun(id)
        opened.create(task_key=task_key, dynamic_key=dynamic_key, **self._labelled(given))
        try:  # mostly it is new: nothing is read before
            return self._created(opened, state, key), True
        except StreamConflict:
            return retry_conflicts(lambda: self._created_unless(opened, state, key))

    def _labelled(self, given: dict[str, Any]) -> dict[str, Any]:
        """The fields with the labels that a task run has from its flow run."""
        if given["flow_run_id"] is None:
            return given
        id = checked_uuid(given["flow_run_id"])
        of_flow_run = self.ledger.load(OpenFlowRun, id).state.labels
        labels = {**of_flow_run, "prefect.flow-run.id": id, **(given.get("labels") or {})}
        return {**given, "labels": labels}

    def _created_unless(
        self, wanted: OpenTaskRun, state: State | None, key: OpenName
    ) -> tuple[TaskRun, bool]:
        """Create it, unless a run has its id or its key: then that one."""
        held = self.ledger.load(OpenName, *key.key)
        for holder in (wanted.state.id, held.holder):
            if holder is not None and (found := self.ledger.load(OpenTaskRun, holder)).version:
                return self.get(found.state.id), False
        again = OpenTaskRun(wanted.state.id)
        again.record(wanted.news[0])
        return self._created(again, state, held), True

    def _created(self, opened: OpenTaskRun, state: State | None, key: OpenName) -> TaskRun:
        key.take(opened.state.id)
        change = None
        if state is not None:
            change = Change(self.ledger, opened.state, state, forced=True)
            orchestrate(change, MINIMAL_TASK_POLICY)
            recorded(opened, change, TaskRunStateSet, TaskRunProposalRefused)
        committed(self.ledger, opened, change, key)
        return _read(opened)

    def get(self, id: str) -> TaskRun:
        """The run as it is now. Raises RunNotFound."""
        return _read(self._open(id))

    def states(self, id: str) -> list[State]:
        """All states that it was in, the oldest first; those that were reported late in the order of their
        claimed times among the others. Raises RunNotFound."""
        self._open(id)
        events = self.ledger.read(OpenTaskRun.name_of(checked_uuid(id)))
        found = [(one.event, one.recorded_at) for one in events]
        states: list[State] = []
        for event, at in found:
            if isinstance(event, TaskRunStateSet):
                states.append(State.of(event.state, at))
            elif isinstance(event, TaskRunStateCameLate):
                late = State.of(event.state, at)
                later = (nth for nth, one in enumerate(states) if one.timestamp > late.timestamp)
                states.insert(next(later, len(states)), late)
        return states

    # States

    def set_state(
        self, id: str, proposed: State, *, force: bool = False, expected: int | None = None
    ) -> Answer[TaskRun]:
        """Propose a state; the rules decide what becomes of it.

        force: only the minimal policy applies. A deferred state goes through the policy of background tasks.
        expected: the version at which the proposal makes sense; at another one StreamConflict is raised.
        Raises RunNotFound, also for its flow run, BadInput, ServerUnavailable.
        """
        policy = TASK_POLICY
        if proposed.detail("deferred"):
            policy = BACKGROUND_TASK_POLICY
        elif force:
            policy = MINIMAL_TASK_POLICY

        def attempt() -> Answer[TaskRun]:
            return self._decide(self._open(id, expected), proposed, policy, forced=force)

        return attempt() if expected is not None else retry_conflicts(attempt)

    def _decide(
        self, opened: OpenTaskRun, proposed: State, policy: Policy, *, forced: bool
    ) -> Answer[TaskRun]:
        change = Change(self.ledger, opened.state, proposed, forced=forced)
        orchestrate(change, policy)
        if isinstance(change.error, RunNotFound):
            raise change.error
        if recorded(opened, change, TaskRunStateSet, TaskRunProposalRefused):
            try:
                committed(self.ledger, opened, change)
            except GuardFailed as failed:  # the flow run has just left the state in which tasks may run
                head = self.ledger.head(failed.stream)
                found = 0 if head is None else head.version
                raise StreamConflict(failed.stream, failed.wanted, found) from failed
        return answered(change, _read(opened))

    # Fields

    def change(self, id: str, **fields: Any) -> TaskRun:
        """Change some of its fields. Raises RunNotFound, BadInput."""
        return self._changed(id, lambda opened: opened.change(**fields))

    def delete(self, id: str) -> None:
        """Delete it, and free its key; its history stays. Raises RunNotFound."""

        def attempt() -> None:
            opened = self._open(id)
            run = opened.state
            key = key_of(run.flow_run_id, run.task_key, run.dynamic_key)
            held = self.ledger.load(OpenName, *key.key)
            opened.delete()
            if held.holder == run.id:
                held.free()
            self.ledger.commit(opened, held)

        retry_conflicts(attempt)

    def _changed(self, id: str, change: Callable[[OpenTaskRun], Any]) -> TaskRun:
        def attempt() -> TaskRun:
            opened = self._open(id)
            change(opened)
            self.ledger.commit(opened)
            return _read(opened)

        return retry_conflicts(attempt)

    def _open(self, id: str, expected: int | None = None) -> OpenTaskRun:
        opened = self.ledger.load(OpenTaskRun, checked_uuid(id))
        if not opened.is_there:
            raise RunNotFound("task run", id)
        if expected is not None and opened.version != expected:
            raise StreamConflict(opened.name, f"version {expected}", opened.version)
        return opened


def _read(opened: OpenTaskRun) -> TaskRun:
    return changed(opened.state, version=opened.version)
