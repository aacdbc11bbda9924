"""
Projections: the follower of the log, and the views built from it.

    from projections import Projector, rebuild, views_named

    with Projector(log):                                # keeps all views up to date, in a thread
        …
    rebuild(log, *views_named(["in_state"]))            # makes one anew beside the live one

The shipped views are `in_state`, `progress`, `items`, `activity`, `jobs`, `work`, `build_stages` and
`build_runs`; `engine` drives them.
`feeds` delivers their changes, `audit` queries the past, `verify` checks the stored state against the events,
and `time_travel` makes the whole ledger as of a past position.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .engine.attach import attach, detach
    from .engine.feed import Feed
    from .engine.follower import Follower
    from .engine.projector import Projector, views_named
    from .engine.rebuild import Building, Rebuilt, rebuild, roll_back
    from .engine.state_view import StateView
    from .engine.view import Batch, Statement, View
    from .feeds import ProgressChanges, StateChanges
else:
    _part = lazily(
        __name__,
        {
            "engine.attach": "attach detach",
            "engine.feed": "Feed",
            "engine.follower": "Follower",
            "engine.projector": "Projector views_named",
            "engine.rebuild": "Building Rebuilt rebuild roll_back",
            "engine.state_view": "StateView",
            "engine.view": "Batch Statement View",
            "feeds": "ProgressChanges StateChanges",
        },
    )

    def __getattr__(name):
        # A view of a user may not have the name or a table of a shipped one.
        if name in ("View", "StateView"):
            import_module(f"{__name__}.shipped").load()
        return _part(name)


__all__ = [
    "Batch",
    "Building",
    "Feed",
    "Follower",
    "ProgressChanges",
    "Projector",
    "Rebuilt",
    "StateChanges",
    "StateView",
    "Statement",
    "View",
    "attach",
    "detach",
    "rebuild",
    "roll_back",
    "views_named",
]
