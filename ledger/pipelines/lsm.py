"""
The LSM pipeline: project → slice → channel → strip, each a stream with the machine of item.py (spec 1.3).

    lsm.project/<project>
    lsm.slice/<project>/<slice>
    lsm.channel/<project>/<slice>/<channel>          mip_stitched ─▶ volume_stitched ─▶ volume_uploaded
    lsm.strip/<project>/<slice>/<channel>/<strip>    archived    compressed ─▶ uploaded

An arrow shows what is made from what: a flag that is cleared, by `reset_x()` or by `set_x(False)`, clears the
flags to its right (spec S0-30, W0-20). lsm.pyi, made from this declaration, has the classes with their types.
"""

from __future__ import annotations

from typing import Final

from .declaration import Every, Flag, Level, Ready, Report, Total
from .pipeline import Pipeline
from .service import service_of

LSM: Final = Pipeline(
    "lsm",
    prefix="LSM",
    help="Projects of the LSM pipeline: slices of channels of strips.",
    outside="linc.opticstream",
    levels=[
        Level("project", every=[
            Every("all_finished", "finished", "total_slices", 1),
            Every("all_succeeded", "succeeded", "total_slices", 1),
        ]),
        Level("slice", every=[
            Every("all_finished", "finished", "total_channels", 1),
            Every("all_succeeded", "succeeded", "total_channels", 1),
        ]),
        Level("channel", default=1, ready=Ready("compressed"), flags=[
            Flag("mip_stitched", clears=("volume_stitched",), short="mip"),
            Flag("volume_stitched", clears=("volume_uploaded",), short="volume"),
            Flag("volume_uploaded", short="uploaded"),
        ], every=[
            Every("all_completed", "finished", "total_strips"),
            Every("all_succeeded", "succeeded", "total_strips"),
            Every("all_compressed", "compressed", "total_strips"),
        ]),
        Level(
            "strip",
            total=Total("strips_per_slice", "How many strips a channel of each slice has.", needed=True),
            outside={"created": "ready", "completed": "processed"},
            flags=[
                Flag("compressed", clears=("uploaded",), short="compr"),
                Flag("archived", short="arch"),
                Flag("uploaded", short="upl"),
            ],
        ),
    ],
    summary=Report(
        "LSM project strip processing summary",
        "{project}-lsm-strip-progress",
        ("slice", "channel", "total", "flags", "completed", "progress"),
        done="Overall completed strip slots",
        status=False,
    ),
    listing=Report(
        "LSM slice strip status (one row per strip × channel)",
        "{project}-lsm-slice-{slice:04d}-strips",
        ("strip", "channel", "processing", "flags"),
        of="slice",
        done="Completed strips",
        status=False,
    ),
)  # fmt: skip

LSMStateService = service_of(LSM)
LSM_STATE_SERVICE: Final = LSMStateService()
"""The service with the default ledger of this process; it connects when it is first used."""
