"""
Project state: where every piece of a pipeline's data stands, as streams of facts and frozen views of them.

    from ledger.project_state import LSM_STATE_SERVICE

    with LSM_STATE_SERVICE.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
    LSM_STATE_SERVICE.read_project("brain_7").all_finished(total_slices=4)
"""

from .facts import (
    Completed,
    Created,
    Deleted,
    Failed,
    FlagSet,
    ItemFact,
    MadePending,
    ProcessingState,
    ProjectCreated,
    Reset,
    Started,
    Status,
    Touched,
)
from .ident import Ident, LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId
from .item import MOVES, Item
from .lsm import (
    LSM,
    LSMChannelState,
    LSMChannelStateView,
    LSMProjectState,
    LSMProjectStateView,
    LSMSliceState,
    LSMSliceStateView,
    LSMStripState,
    LSMStripStateView,
)
from .open_item import OpenItem
from .service import LSM_STATE_SERVICE, LSMStateService

__all__ = [
    "Completed",
    "Created",
    "Deleted",
    "Failed",
    "FlagSet",
    "Ident",
    "Item",
    "ItemFact",
    "LSM",
    "LSMChannelId",
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
    "MOVES",
    "MadePending",
    "OpenItem",
    "ProcessingState",
    "ProjectCreated",
    "Reset",
    "Started",
    "Status",
    "Touched",
]
