"""
Runs of flows and tasks, and the records of the server that keeps them.

    flow_run/ID         a flow run: the states that it was in, the proposals that were refused, its inputs
    task_run/ID         a task run: the same, and the states that its client reports
    cached_state/KEY    the completed states of a cache key
    run_event/ID        the events that clients send about a resource

A proposed state goes through the rules of a policy (`orchestration`, `flow_rules`, `task_rules`); it is
decided and recorded in one append. Records, such as flows, deployments and limits, are streams of their own
kinds (`records`).
"""

from ..domain.domain import Domain
from .artifacts import Artifacts
from .blocks import Blocks
from .client_events import ClientEvents
from .deployments import Deployments
from .flow_rules import FLOW_POLICY
from .flow_run import FlowRun, OpenFlowRun, RunInput, flow_run_shown
from .flow_runs import FlowRuns
from .keys import Keys
from .limit import OpenLimit
from .limits import Full, Limits
from .orchestration import Answer, Change, Rule, Transform, Verdict, orchestrate
from .policies import FlowRunPolicy, TaskRunPolicy
from .records import OpenRecord, Record, Records
from .run_event import OpenRunEvents
from .run_logs import RunLogs
from .states import TERMINAL, State, StateType
from .task_run import OpenTaskRun, TaskRun, task_run_shown
from .task_runs import TaskRuns
from .work_pools import WorkPools

DOMAIN = Domain("runs", __name__, views=["projections.runs.views"])

__all__ = [
    "Answer",
    "Artifacts",
    "Blocks",
    "Change",
    "ClientEvents",
    "Deployments",
    "FLOW_POLICY",
    "FlowRun",
    "FlowRunPolicy",
    "FlowRuns",
    "Full",
    "Keys",
    "Limits",
    "OpenFlowRun",
    "OpenLimit",
    "OpenRecord",
    "OpenRunEvents",
    "OpenTaskRun",
    "Record",
    "Records",
    "Rule",
    "RunInput",
    "RunLogs",
    "State",
    "StateType",
    "TERMINAL",
    "TaskRun",
    "TaskRunPolicy",
    "TaskRuns",
    "Transform",
    "Verdict",
    "WorkPools",
    "flow_run_shown",
    "orchestrate",
    "task_run_shown",
]
