"""The task run that stands for a subflow in its parent is always in the state of the subflow (spec 4.6)."""

from __future__ import annotations

from .flow_run import FlowRun
from .orchestration import Change, Transform, orchestrate, recorded
from .states import State
from .task_rules import MINIMAL_TASK_POLICY
from .task_run import OpenTaskRun, TaskRunProposalRefused, TaskRunStateSet


class MirrorOnParentTaskRun(Transform):
    """A subflow's state is set on its task run in the same append, so that the two cannot disagree (W3-06).

    The task run moves by the minimal policy, at the version that was read: who moves it at the same time
    conflicts, and decides again.
    """

    def after(self, change: Change[FlowRun], initial: State | None, validated: State) -> None:
        if change.run.parent_task_run_id is None:
            return
        task = change.ledger.load(OpenTaskRun, change.run.parent_task_run_id)
        if not task.is_there:
            return
        state = validated.fresh_copy().with_details(
            child_flow_run_id=change.run.id,
            flow_run_id=task.state.flow_run_id,
            task_run_id=task.state.id,
            deployment_concurrency_lease_id=None,
        )
        mirrored = Change(change.ledger, task.state, state, forced=True)
        orchestrate(mirrored, MINIMAL_TASK_POLICY)
        if recorded(task, mirrored, TaskRunStateSet, TaskRunProposalRefused):
            change.also(task, *mirrored.appends)
