"""
Project state: the state of every item of a pipeline's projects, as streams of facts and frozen views.

    from ledger.pipelines import LSM_STATE_SERVICE

    with LSM_STATE_SERVICE.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
    LSM_STATE_SERVICE.read_project("brain_7").all_finished(total_slices=4)

A process knows a pipeline, and its events, once it has imported the module that declares it:
`ledger.pipelines.lsm`, `ledger.pipelines.psoct`, or one of yours. Its names here import it.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily
from .declaration import Every, Flag, Level, Ready, Report, Total
from .facts import (
    Completed,
    Created,
    Deleted,
    Entered,
    Failed,
    FlagSet,
    ItemFact,
    Left,
    MadePending,
    Planned,
    ProcessingState,
    ProjectCreated,
    Reset,
    Started,
    Status,
    Touched,
)
from .ident import Ident, ident_of, missing_required_fields, parse_run_name
from .item import MOVES, Claim, Item, OpenItem, evolve
from .pipeline import PIPELINES, Pipeline
from .readiness import BecameReady, OpenReadiness, Readiness
from .service import ProjectStore, StateService, service_of

if TYPE_CHECKING:
    from .external import (
        ExternalEvent,
        all_external_names,
        external_event,
        external_events,
        external_names,
        provenance,
        topic_of,
    )
    from .lsm import (
        LSM,
        LSM_STATE_SERVICE,
        LSMChannelId,
        LSMChannelReadiness,
        LSMChannelReady,
        LSMChannelState,
        LSMChannelStateView,
        LSMProjectId,
        LSMProjectState,
        LSMProjectStateView,
        LSMSliceId,
        LSMSliceState,
        LSMSliceStateView,
        LSMStateService,
        LSMStripId,
        LSMStripState,
        LSMStripStateView,
    )
    from .milestones import milestone
    from .mosaics import (
        first_mosaic_for_slice,
        logical_mosaic,
        logical_slice,
        position_in_slice,
        slice_of_mosaic,
    )
    from .psoct import (
        OCT,
        OCT_STATE_SERVICE,
        OCTBatchId,
        OCTBatchState,
        OCTBatchStateView,
        OCTMosaicId,
        OCTMosaicReadiness,
        OCTMosaicReady,
        OCTMosaicState,
        OCTMosaicStateView,
        OCTProjectId,
        OCTProjectState,
        OCTProjectStateView,
        OCTSliceId,
        OCTSliceReadiness,
        OCTSliceReady,
        OCTSliceState,
        OCTSliceStateView,
        OCTStateService,
    )
    from .stages import (
        Entry,
        RunDecision,
        claim_flow,
        claim_milestone,
        complete_stage,
        enter_flow_stage,
        enter_milestone_stage,
        fail_stage,
        flow_decision,
        flow_stage,
        force_rerun_from_payload,
        milestone_decision,
        should_skip_run,
    )
else:  # a command of one pipeline loads no other
    __getattr__ = lazily(
        __name__,
        {
            "external": (
                "ExternalEvent all_external_names external_event external_events external_names "
                "provenance topic_of"
            ),
            "lsm": (
                "LSM LSM_STATE_SERVICE LSMChannelId LSMChannelReadiness LSMChannelReady LSMChannelState "
                "LSMChannelStateView LSMProjectId LSMProjectState LSMProjectStateView LSMSliceId "
                "LSMSliceState LSMSliceStateView LSMStateService LSMStripId LSMStripState "
                "LSMStripStateView"
            ),
            "milestones": "milestone",
            "mosaics": (
                "first_mosaic_for_slice logical_mosaic logical_slice position_in_slice slice_of_mosaic"
            ),
            "psoct": (
                "OCT OCT_STATE_SERVICE OCTBatchId OCTBatchState OCTBatchStateView OCTMosaicId "
                "OCTMosaicReadiness OCTMosaicReady OCTMosaicState OCTMosaicStateView OCTProjectId "
                "OCTProjectState OCTProjectStateView OCTSliceId OCTSliceReadiness OCTSliceReady "
                "OCTSliceState OCTSliceStateView OCTStateService"
            ),
            "stages": (
                "Entry RunDecision claim_flow claim_milestone complete_stage enter_flow_stage "
                "enter_milestone_stage fail_stage flow_decision flow_stage force_rerun_from_payload "
                "milestone_decision should_skip_run"
            ),
        },
    )

__all__ = [
    "BecameReady",
    "Claim",
    "Completed",
    "Created",
    "Deleted",
    "Entered",
    "Entry",
    "Every",
    "ExternalEvent",
    "Failed",
    "Flag",
    "FlagSet",
    "Ident",
    "Item",
    "ItemFact",
    "LSM",
    "LSMChannelId",
    "LSMChannelReadiness",
    "LSMChannelReady",
    "LSMChannelState",
    "LSMChannelStateView",
    "LSMProjectId",
    "LSMProjectState",
    "LSMProjectStateView",
    "LSMSliceId",
    "LSMSliceState",
    "LSMSliceStateView",
    "LSMStateService",
    "LSMStripId",
    "LSMStripState",
    "LSMStripStateView",
    "LSM_STATE_SERVICE",
    "Left",
    "Level",
    "MOVES",
    "MadePending",
    "OCT",
    "OCTBatchId",
    "OCTBatchState",
    "OCTBatchStateView",
    "OCTMosaicId",
    "OCTMosaicReadiness",
    "OCTMosaicReady",
    "OCTMosaicState",
    "OCTMosaicStateView",
    "OCTProjectId",
    "OCTProjectState",
    "OCTProjectStateView",
    "OCTSliceId",
    "OCTSliceReadiness",
    "OCTSliceReady",
    "OCTSliceState",
    "OCTSliceStateView",
    "OCTStateService",
    "OCT_STATE_SERVICE",
    "OpenItem",
    "OpenReadiness",
    "PIPELINES",
    "Pipeline",
    "Planned",
    "ProcessingState",
    "ProjectCreated",
    "ProjectStore",
    "Readiness",
    "Ready",
    "Report",
    "Reset",
    "RunDecision",
    "Started",
    "StateService",
    "Status",
    "Total",
    "Touched",
    "all_external_names",
    "claim_flow",
    "claim_milestone",
    "complete_stage",
    "enter_flow_stage",
    "enter_milestone_stage",
    "evolve",
    "external_event",
    "external_events",
    "external_names",
    "fail_stage",
    "first_mosaic_for_slice",
    "flow_decision",
    "flow_stage",
    "force_rerun_from_payload",
    "ident_of",
    "logical_mosaic",
    "logical_slice",
    "milestone",
    "milestone_decision",
    "missing_required_fields",
    "parse_run_name",
    "position_in_slice",
    "provenance",
    "service_of",
    "should_skip_run",
    "slice_of_mosaic",
    "topic_of",
]
