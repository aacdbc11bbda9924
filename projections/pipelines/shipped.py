"""The reports of LSM and PS-OCT under their names (spec S0-90 to S0-92)."""

from __future__ import annotations

from ledger.pipelines.lsm import LSM, LSMProjectStateView
from ledger.pipelines.psoct import OCT, OCTProjectStateView

from .report import Report, listing, report_key, summary


def lsm_project_report_key(project_name: str) -> str:
    """The key of a project's summary; two spellings of one project have the same."""
    return report_key(LSM, project_name)


def lsm_slice_report_key(project_name: str, slice_id: int) -> str:
    """The key of a slice's matrix."""
    return report_key(LSM, project_name, {"slice": slice_id})


def lsm_project_summary(view: LSMProjectStateView, strips_per_slice: int | None = None) -> Report:
    """How far each channel is, by slice and channel id (spec S0-90).

    strips_per_slice: how many strips a channel should have; by default the project's plan. Raises BadInput if
    there is no plan.
    """
    return summary(LSM, view, expected=strips_per_slice)


def lsm_slice_matrix(
    view: LSMProjectStateView, slice_id: int, strips_per_slice: int | None = None
) -> Report | None:
    """Every strip of a slice, by strip and channel id; None if there is no such slice (spec S0-91).

    Raises BadInput if the number of strips is neither given nor planned.
    """
    return listing(LSM, view, {"slice": slice_id}, expected=strips_per_slice)


def oct_mosaic_report_key(project_name: str, mosaic_id: int) -> str:
    """The key of a mosaic's batches; two spellings of one project have the same."""
    return report_key(OCT, project_name, {"mosaic": mosaic_id})


def oct_project_report_key(project_name: str) -> str:
    """The key of all mosaics of a project."""
    return report_key(OCT, project_name)


def oct_mosaic_batches(
    view: OCTProjectStateView,
    mosaic_id: int,
    *,
    slice_id: int | None = None,
    batches_per_mosaic: int | None = None,
) -> Report | None:
    """Every batch of a mosaic, by id; None if there is no such mosaic.

    slice_id: needed only if more than one slice has a mosaic of this id; without it BadInput is raised then.
    batches_per_mosaic: by default the project's plan; without one the existing batches are expected.
    """
    path = {"mosaic": mosaic_id} if slice_id is None else {"slice": slice_id, "mosaic": mosaic_id}
    return listing(OCT, view, path, expected=batches_per_mosaic)


def oct_all_mosaics(view: OCTProjectStateView, *, batches_per_mosaic: int | None = None) -> Report:
    """How far each mosaic is, by mosaic and slice id. batches_per_mosaic: as in `oct_mosaic_batches`."""
    return summary(OCT, view, expected=batches_per_mosaic)
