"""
Projections: the follower of the log, and the views built from it.

    from projections import Projector, rebuild, views_named

    with Projector(log):                                # keeps all views up to date, in a thread
        …
    rebuild(log, *views_named(["in_state"]))            # makes one anew beside the live one

The views that ship are in `in_state`, `progress`, `items` and `activity`; `views` drives them. `feeds`
tells their changes, `audit` answers questions about the past, `verify` proves what is kept, and `time_travel`
makes the whole ledger as it was.
"""

from . import shipped
from .follower import Follower
from .views.attaching import attach, detach
from .views.built import Building, Rebuilt
from .views.projector import Projector, views_named
from .views.rebuilding import rebuild, roll_back
from .views.view import Batch, Statement, View

shipped.load()

__all__ = [
    "Batch",
    "Building",
    "Follower",
    "Projector",
    "Rebuilt",
    "Statement",
    "View",
    "attach",
    "detach",
    "rebuild",
    "roll_back",
    "views_named",
]
