"""Views of projects, built without a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ledger.domain.frozen import FrozenDict
from ledger.pipelines import (
    LSMChannelStateView,
    LSMProjectStateView,
    LSMSliceStateView,
    LSMStripStateView,
    Status,
)
from ledger.pipelines.psoct import (
    OCTBatchStateView,
    OCTMosaicStateView,
    OCTProjectStateView,
    OCTSliceStateView,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATES = ("pending", "running", "completed", "failed")
Children = Mapping[tuple[int, int], Mapping[int, str]]
"""By the ids of the two levels above: by id, the status and flags of each, such as `completed archived`."""


def fields(words: str) -> dict[str, Any]:
    status, *flags = words.split()
    return {"status": Status(status), "updated_at": AT, **dict.fromkeys(flags, True)}


def lsm(channels: Children, *, name: str = "Brain_7", **project: Any) -> LSMProjectStateView:
    slices: dict[int, dict[int, LSMChannelStateView]] = {}
    for (slice_id, channel_id), strips in channels.items():
        ids: dict[str, Any] = {"slice_id": slice_id, "channel_id": channel_id}
        held = {i: LSMStripStateView(strip_id=i, **ids, **fields(words)) for i, words in strips.items()}
        slices.setdefault(slice_id, {})[channel_id] = LSMChannelStateView(strips=FrozenDict(held), **ids)
    views = {i: LSMSliceStateView(slice_id=i, channels=FrozenDict(below)) for i, below in slices.items()}
    return LSMProjectStateView(project_name=name, slices=FrozenDict(views), **project)


def psoct(
    mosaics: Children, *, flags: Mapping[int, Iterable[str]] | None = None, **project: Any
) -> OCTProjectStateView:
    """flags: those of mosaics, by id."""
    slices: dict[int, dict[int, OCTMosaicStateView]] = {}
    for (slice_id, mosaic_id), batches in mosaics.items():
        ids: dict[str, Any] = {"slice_id": slice_id, "mosaic_id": mosaic_id}
        held = {i: OCTBatchStateView(batch_id=i, **ids, **fields(words)) for i, words in batches.items()}
        own: dict[str, Any] = dict.fromkeys((flags or {}).get(mosaic_id, ()), True)
        mosaic = OCTMosaicStateView(batches=FrozenDict(held), **ids, **own)
        slices.setdefault(slice_id, {})[mosaic_id] = mosaic
    views = {i: OCTSliceStateView(slice_id=i, mosaics=FrozenDict(below)) for i, below in slices.items()}
    return OCTProjectStateView(project_name="Brain_7", slices=FrozenDict(views), **project)
