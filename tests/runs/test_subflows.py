"""Subflows: the task run that stands for one in its parent is always in its state (spec 4.6, W3-06)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import ledger
from ledger.runs import FlowRun, FlowRuns, TaskRun, Verdict, states
from ledger.runs.json_values import new_id
from ledger.runs.task_runs import TaskRuns


class Family:
    """A parent's task run, and the subflow that it stands for."""

    def __init__(self, log: ledger.Ledger) -> None:
        self.flows, self.tasks = FlowRuns(log), TaskRuns(log)
        parent, _ = self.flows.create(new_id(), state=states.running())
        task, _ = self.tasks.create("child-flow", "0", flow_run_id=parent.id, state=states.pending())
        child, _ = self.flows.create(new_id(), parent_task_run_id=task.id, state=states.pending())
        self._task, self._child = task.id, child.id

    @property
    def task(self) -> TaskRun:
        return self.tasks.get(self._task)

    @property
    def child(self) -> FlowRun:
        return self.flows.get(self._child)

    def agree(self) -> bool:
        """Whether both are in the same state."""
        task, child = self.task.state, self.child.state
        assert task is not None
        assert child is not None
        assert task.detail("child_flow_run_id") == self._child
        assert (task.detail("task_run_id"), task.detail("flow_run_id")) == (self._task, self.task.flow_run_id)
        assert child.detail("task_run_id") == self._task
        assert task.detail("transition_id") == child.detail("transition_id")
        return (task.type, task.name, task.message, task.data) == (
            child.type,
            child.name,
            child.message,
            child.data,
        )


@pytest.fixture
def family(shared: ledger.Ledger) -> Family:
    return Family(shared)


def test_the_task_run_follows_the_subflow(family: Family) -> None:
    assert family.agree()
    proposed = states.running(state_details={"transition_id": new_id()})
    for state in (proposed, states.failed(message="no"), states.running(), states.completed()):
        answer = family.flows.set_state(family.child.id, state)
        assert answer.status is Verdict.ACCEPT
        assert family.agree()
    assert family.task.run_count == family.child.run_count == 2


def test_w3_06_the_state_of_both_is_one_append(family: Family) -> None:
    log = family.flows.ledger
    family.flows.set_state(family.child.id, states.running(), force=True)
    last = log.read(f"flow_run/{family.child.id}")[-1]
    appended = {one.stream for one in log.recorded_with(last)}
    assert appended == {f"flow_run/{family.child.id}", f"task_run/{family.task.id}"}


def test_w3_06_moves_of_both_at_the_same_time_leave_them_in_one_state(family: Family) -> None:
    family.flows.set_state(family.child.id, states.running())

    def move(nth: int) -> None:
        if nth % 2:
            family.flows.set_state(family.child.id, states.running(f"Running {nth}"))
        else:
            family.tasks.change(family.task.id, name=f"name {nth}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(move, range(8)))
    assert family.agree()


def test_a_refused_proposal_leaves_the_task_run_as_it_is(family: Family) -> None:
    version = family.task.version
    assert family.flows.set_state(family.child.id, states.pending()).status is Verdict.ABORT
    assert family.task.version == version


def test_a_subflow_without_its_task_run_moves_alone(shared: ledger.Ledger) -> None:
    runs = FlowRuns(shared)
    run, _ = runs.create(new_id(), parent_task_run_id=new_id(), state=states.pending())
    assert runs.set_state(run.id, states.running()).status is Verdict.ACCEPT


def test_a_deleted_flow_run_takes_its_task_runs_with_it(family: Family) -> None:
    parent, task = family.task.flow_run_id, family.task.id
    assert parent is not None
    family.flows.delete(parent)
    with pytest.raises(ledger.RunNotFound):
        family.tasks.get(task)
    assert family.flows.set_state(family.child.id, states.running()).status is Verdict.ACCEPT
    again, is_new = family.tasks.create("child-flow", "0", flow_run_id=parent)
    assert (again.id != task, is_new) == (True, True)
