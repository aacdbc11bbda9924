"""
Reports of project state, as pure functions over its views.

    from ledger.project_state import LSM_STATE_SERVICE
    from projections.project_state import lsm_project_summary, markdown

    print(markdown(lsm_project_summary(LSM_STATE_SERVICE.peek_project("brain_7"), strips_per_slice=4)))
"""

from .lsm_reports import (
    LSMChannelRow,
    LSMProjectSummary,
    LSMSliceMatrix,
    LSMStripRow,
    lsm_project_report_key,
    lsm_project_summary,
    lsm_slice_matrix,
    lsm_slice_report_key,
)
from .psoct_reports import (
    OCTAllMosaics,
    OCTBatchRow,
    OCTMosaicBatches,
    OCTMosaicRow,
    oct_all_mosaics,
    oct_mosaic_batches,
    oct_mosaic_report_key,
    oct_project_report_key,
)
from .report import Milestone, Report, Row, description, markdown, milestones, percent, percent_text

__all__ = [
    "LSMChannelRow",
    "LSMProjectSummary",
    "LSMSliceMatrix",
    "LSMStripRow",
    "Milestone",
    "OCTAllMosaics",
    "OCTBatchRow",
    "OCTMosaicBatches",
    "OCTMosaicRow",
    "Report",
    "Row",
    "description",
    "lsm_project_report_key",
    "lsm_project_summary",
    "lsm_slice_matrix",
    "lsm_slice_report_key",
    "markdown",
    "milestones",
    "oct_all_mosaics",
    "oct_mosaic_batches",
    "oct_mosaic_report_key",
    "oct_project_report_key",
    "percent",
    "percent_text",
]
