"""
What is counted in a project: the children of each item, by their status, as sets of `ledger.sets`.

    lsm.strip     of lsm.channel     strips_per_slice are expected
    psoct.batch   of psoct.mosaic    batches_per_mosaic are expected
    psoct.mosaic  of psoct.slice     mosaics_per_slice are expected, 2 where that is not planned

and channels of slices, slices of projects, of which nobody says how many there shall be. Done is who is
completed (spec S0-20). Flags are not looked at: that all children have a flag is for readiness.py to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ..sets import Total, UnitSet, know
from .facts import Status
from .lsm import LSM
from .psoct import OCT
from .readiness import GATES
from .views import Levels

Planned = tuple[str, int | None]
"""The total of the project that says how many children there shall be, and how many where none is planned."""


def sets_of(levels: Levels, totals: Mapping[str, Planned] | None = None) -> tuple[UnitSet, ...]:
    """The sets of a pipeline's levels: the children of each.

    totals: by the category of the children, what is expected of them. Give what comes of it to `know`.
    """
    project, made = levels[0].FACTS, []
    for above, below in pairwise(levels):
        field, otherwise = (totals or {}).get(below.CATEGORY, ("", None))
        total = Total(project.planned.topic, ("totals", field), 1, project.created.topic, otherwise)
        made.append(
            UnitSet(
                below.CATEGORY,
                above.CATEGORY,
                done=frozenset({Status.COMPLETED}),
                failed=frozenset({Status.FAILED}),
                running=frozenset({Status.RUNNING}),
                gone=frozenset({Status.DELETED}),
                life=above.FACTS.created.topic,
                death=above.FACTS.deleted.topic,
                born=below.FACTS.created.topic,
                total=total if field else None,
            )
        )
    return tuple(made)


_TOTALS: Final = {gate.levels[gate.depth].CATEGORY: (gate.total, gate.unplanned) for gate in GATES}
LSM_SETS: Final = sets_of(LSM, _TOTALS)
OCT_SETS: Final = sets_of(OCT, _TOTALS)
know(*LSM_SETS, *OCT_SETS)
