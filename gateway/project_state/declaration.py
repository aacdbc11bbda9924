"""
What the two pipelines are for the command line: their levels, flags and plans, by name.

The rules are in `ledger.project_state`, which costs time to import, so the names are said here again; a test
holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.project_state import Ident, Levels


@dataclass(frozen=True, slots=True)
class Level:
    """A level below the project. plural: the field of its parent's view that holds it.

    flags: in the order of the columns, each with its short title.
    """

    name: str
    plural: str
    flags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline.

    totals: what a plan says, the one first that reports count against. parts: of what there are reports
    beside the project's. Both with the help of their options.
    """

    name: str
    help: str
    levels: tuple[Level, Level, Level]
    totals: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def kinds(self) -> Levels:
        """The classes of its levels, the project first."""
        from ledger import project_state

        kinds: Levels = {"lsm": project_state.LSM, "psoct": project_state.OCT}[self.name]
        return kinds

    @property
    def names(self) -> list[str]:
        """The names of its levels below the project."""
        return [level.name for level in self.levels]

    def ident(self, project: str, path: Mapping[str, int]) -> Ident:
        """Who the item at the end of a path is. Raises BadName."""
        return self.kinds[len(path)].IDENT(project, *path.values())


LSM: Final = Pipeline(
    "lsm",
    "Projects of the LSM pipeline: slices of channels of strips.",
    (
        Level("slice", "slices", {}),
        Level(
            "channel",
            "channels",
            {"mip_stitched": "mip", "volume_stitched": "volume", "volume_uploaded": "uploaded"},
        ),
        Level("strip", "strips", {"compressed": "compr", "archived": "arch", "uploaded": "upl"}),
    ),
    {"strips_per_slice": "How many strips a channel of each slice has."},
    {"slice": "Every strip of this slice."},
)
PSOCT: Final = Pipeline(
    "psoct",
    "Projects of the PS-OCT pipeline: slices of mosaics of batches.",
    (
        Level("slice", "slices", {"registered": "registered", "uploaded": "uploaded"}),
        Level(
            "mosaic",
            "mosaics",
            {
                "enface_stitched": "enface",
                "volume_stitched": "volume",
                "enface_uploaded": "enface up",
                "volume_uploaded": "volume up",
            },
        ),
        Level(
            "batch",
            "batches",
            {
                "complexed": "cplx",
                "volume_processed": "vol",
                "enface_processed": "enf",
                "archived": "arch",
                "uploaded": "upl",
            },
        ),
    ),
    {
        "batches_per_mosaic": "How many batches a mosaic has.",
        "mosaics_per_slice": "How many mosaics a slice has.",
    },
    {"slice": "The slice of the mosaic, where several have it.", "mosaic": "Every batch of this mosaic."},
)
PIPELINES: Final = (LSM, PSOCT)
