"""The two pipelines as their tests see them: written down once more by hand, from the spec's tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from ledger.pipelines import LSM, OCT, Ident, LSMStateService, OCTStateService, OpenItem, StateService

Cascades = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Pipeline:
    """Its levels from the project down. flags: each flag of a level with all that a reset of it clears."""

    name: str
    prefix: str
    kinds: tuple[type[OpenItem[Any]], ...]
    service: type[StateService]
    levels: tuple[str, ...]
    children: tuple[str | None, ...]
    flags: tuple[Cascades, ...]
    totals: tuple[str, ...]
    planned: dict[str, int]
    leaf: tuple[int, ...] = (1, 3, 2)

    def ids(self, depth: int, *parts: int) -> dict[str, int]:
        """The ids of the item at a depth (the project is 0) by name."""
        named = [f"{level}_id" for level in self.levels[1 : depth + 1]]
        return dict(zip(named, (parts or self.leaf)[:depth], strict=True))

    def ident(self, depth: int, name: str = "p", *parts: int) -> Ident:
        return self.kinds[depth].IDENT(name, **self.ids(depth, *parts))

    def key(self, depth: int) -> tuple[str | int, ...]:
        return ("p", *self.leaf[:depth])


LSM_PIPELINE = Pipeline(
    name="lsm",
    prefix="LSM",
    kinds=tuple(LSM),
    service=LSMStateService,
    levels=("project", "slice", "channel", "strip"),
    children=("slices", "channels", "strips", None),
    flags=(
        {},
        {},
        {
            "mip_stitched": ("mip_stitched", "volume_stitched", "volume_uploaded"),
            "volume_stitched": ("volume_stitched", "volume_uploaded"),
            "volume_uploaded": ("volume_uploaded",),
        },
        {"archived": ("archived",), "compressed": ("compressed", "uploaded"), "uploaded": ("uploaded",)},
    ),
    totals=("strips_per_slice",),
    planned={"strips_per_slice": 4},
)

OCT_PIPELINE = Pipeline(
    name="psoct",
    prefix="OCT",
    kinds=tuple(OCT),
    service=OCTStateService,
    levels=("project", "slice", "mosaic", "batch"),
    children=("slices", "mosaics", "batches", None),
    flags=(
        {},
        {"registered": ("registered", "uploaded"), "uploaded": ("uploaded",)},
        {
            "enface_stitched": ("enface_stitched", "enface_uploaded"),
            "volume_stitched": ("volume_stitched", "volume_uploaded"),
            "enface_uploaded": ("enface_uploaded",),
            "volume_uploaded": ("volume_uploaded",),
        },
        {
            "complexed": ("complexed", "volume_processed", "enface_processed"),
            "volume_processed": ("volume_processed",),
            "enface_processed": ("enface_processed",),
            "uploaded": ("uploaded",),
            "archived": ("archived", "uploaded"),
        },
    ),
    totals=("batches_per_mosaic", "mosaics_per_slice"),
    planned={"batches_per_mosaic": 30, "mosaics_per_slice": 2},
)

PIPELINES = (LSM_PIPELINE, OCT_PIPELINE)


def levels_of(pipeline: Pipeline) -> Iterator[Any]:
    for depth, level in enumerate(pipeline.levels):
        yield pytest.param(pipeline, depth, id=f"{pipeline.name}.{level}")


each_pipeline = pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
each_level = pytest.mark.parametrize(
    ("pipeline", "depth"), [level for pipeline in PIPELINES for level in levels_of(pipeline)]
)
each_flag = pytest.mark.parametrize(
    ("pipeline", "depth", "flag"),
    [
        pytest.param(pipeline, depth, flag, id=f"{pipeline.name}.{pipeline.levels[depth]}.{flag}")
        for pipeline in PIPELINES
        for depth, flags in enumerate(pipeline.flags)
        for flag in flags
    ],
)


def grow(pipeline: Pipeline, service: Any, name: str = "p") -> None:
    """Two slices, with two children each, with two leaves each, all flags of them set."""
    with service.open_project(name) as project:
        for ids in product((1, 2), repeat=3):
            leaf = project.find_or_create(pipeline.ident(3, name, *ids))
            for flag in pipeline.flags[3]:
                leaf.set_flag(flag)
