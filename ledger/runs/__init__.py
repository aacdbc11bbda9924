"""
Runs of flows and tasks, and the records of the server that keeps them.

    flow_run/ID     a flow run: the states that it was in, the proposals that were refused, its inputs
    task_run/ID     a task run

A proposed state goes through the rules of a policy (`orchestration`, `flow_rules`); it is decided and
recorded in one append. Records, such as flows, deployments and limits, are streams of their own
kinds (`records`).
"""

from ..domain.domain import Domain
from .flow_run import FlowRun, OpenFlowRun, RunInput, flow_run_shown
from .flow_runs import FlowRuns
from .orchestration import Answer, Change, Rule, Transform, Verdict, orchestrate
from .policies import FlowRunPolicy, TaskRunPolicy
from .states import TERMINAL, State, StateType

DOMAIN = Domain("runs", __name__, views=["projections.runs.views"])

__all__ = [
    "TERMINAL",
    "Answer",
    "Change",
    "FlowRun",
    "FlowRunPolicy",
    "FlowRuns",
    "OpenFlowRun",
    "Rule",
    "RunInput",
    "State",
    "StateType",
    "TaskRunPolicy",
    "Transform",
    "Verdict",
    "flow_run_shown",
    "orchestrate",
]
