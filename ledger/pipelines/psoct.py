"""
The PS-OCT pipeline: project → slice → mosaic → batch, each a stream with the machine of item.py (spec 1.4).

    psoct.project/<project>
    psoct.slice/<project>/<slice>                     registered ─▶ uploaded
    psoct.mosaic/<project>/<slice>/<mosaic>           enface_stitched ─▶ enface_uploaded
                                                      volume_stitched ─▶ volume_uploaded
    psoct.batch/<project>/<slice>/<mosaic>/<batch>    complexed ─▶ volume_processed, enface_processed
                                                      archived ─▶ uploaded

An arrow shows what is made from what: a flag that is cleared, by `reset_x()` or by `set_x(False)`, clears the
flags to its right (spec S0-40, W0-20). Mosaic ids are unique in a whole project; mosaics.py computes the
slice of a mosaic. psoct.pyi, made from this declaration, has the classes with their types.
"""

from __future__ import annotations

from typing import Final

from .declaration import Every, Flag, Level, Ready, Report, Total
from .mosaics import MOSAICS_PER_SLICE, slice_of_mosaic
from .pipeline import Pipeline
from .service import service_of

OCT: Final = Pipeline(
    "psoct",
    prefix="OCT",
    help="Projects of the PS-OCT pipeline: slices of mosaics of batches.",
    outside="linc.opticstream",
    levels=[
        Level("project"),
        Level("slice", ready=Ready("enface_stitched"), flags=[
            Flag("registered", clears=("uploaded",)),
            Flag("uploaded", outside=()),
        ], every=[
            Every("all_mosaics_done", "finished", default=None),
            Every("all_mosaics_succeeded", "succeeded", default=None),
            Every("all_mosaics_enface_stitched", "enface_stitched", default=None),
        ]),
        Level(
            "mosaic",
            heading="Mosaic ID",
            total=Total("mosaics_per_slice", "How many mosaics a slice has.", unplanned=MOSAICS_PER_SLICE),
            parent_of=slice_of_mosaic,
            ready=Ready(),
            flags=[
                # Automations of the original system listen to the second name, a mistake in its constants.
                Flag("enface_stitched", clears=("enface_uploaded",), title="Enface Stitched", short="enface",
                     outside=("enface_stitched", "uploaded")),
                Flag("volume_stitched", clears=("volume_uploaded",), title="3D Volume Stitched",
                     short="volume"),
                Flag("enface_uploaded", short="enface up"),
                Flag("volume_uploaded", title="3D Volume Uploaded", short="volume up"),
            ],
            every=[
                Every("all_batches_done", "finished", some=True),
                Every("all_batches_succeeded", "succeeded", some=True),
            ],
        ),
        Level(
            "batch",
            "batches",
            total=Total("batches_per_mosaic", "How many batches a mosaic has."),
            outside={"created": "ready", "completed": "processed"},
            flags=[
                Flag("complexed", clears=("volume_processed", "enface_processed"), short="cplx",
                     counted=False),
                Flag("volume_processed", short="vol", outside=(), counted=False),
                Flag("enface_processed", short="enf", outside=()),
                Flag("archived", clears=("uploaded",), short="arch"),
                Flag("uploaded", title="Batch uploaded", short="upl"),
            ],
        ),
    ],
    summary=Report(
        "All Mosaics Processing Progress",
        "{project}-all-mosaics-progress",
        ("mosaic", "total", "started", "running", "completed", "archived", "enface_processed", "flags",
         "enface_stitched", "enface_uploaded", "made"),
        shares={"enface_processed": "Batches enface-processed"},
    ),
    listing=Report(
        "Mosaic {mosaic} Processing Progress",
        "{project}-mosaic-{mosaic}-progress",
        ("batch", "processing", "enface_processed", "volume_processed", "flags"),
        of="mosaic",
        shares={"enface_processed": "Batches enface-processed"},
    ),
)  # fmt: skip

OCTStateService = service_of(OCT)
OCT_STATE_SERVICE: Final = OCTStateService()
"""The service with the default ledger of this process; it connects when it is first used."""
