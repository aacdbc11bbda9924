"""
Reports of project state, as pure functions over its views.

    from ledger.pipelines import LSM_STATE_SERVICE
    from projections.pipelines import lsm_project_summary, markdown

    print(markdown(lsm_project_summary(LSM_STATE_SERVICE.peek_project("brain_7"), strips_per_slice=4)))

For any pipeline: `summary(PIPELINE, view)` and `listing(PIPELINE, view, {"scene": 3})`.
"""

from .report import (
    Milestone,
    Report,
    Row,
    description,
    listing,
    markdown,
    milestones,
    percent,
    percent_text,
    report_key,
    summary,
)
from .shipped import (
    lsm_project_report_key,
    lsm_project_summary,
    lsm_slice_matrix,
    lsm_slice_report_key,
    oct_all_mosaics,
    oct_mosaic_batches,
    oct_mosaic_report_key,
    oct_project_report_key,
)

__all__ = [
    "Milestone",
    "Report",
    "Row",
    "description",
    "listing",
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
    "report_key",
    "summary",
]
