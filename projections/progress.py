"""Progress: how many units of each parent are there, are running, done, failed, and how many are expected."""

from __future__ import annotations

from .sql import view as parts
from .views.view import View

_SQL = parts("progress")


class Progress(View):
    """Done of total for each parent: view `progress`, function `progress_of`; `ledger.sets` says of what.

    The sets themselves are kept, each unit with how it counts (`progress_units`), and beside them their sizes
    (`progress_sets`), which are changed by what units did and so always equal them. There is one writer, so
    no row is hot. A parent's death and a new birth cost nothing: sizes are kept for each life, and those of
    the present life are shown.
    """

    name = "progress"
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply_totals"], _SQL["apply_parents"], _SQL["apply_units"])
    forget = (
        _SQL["forget_units"],
        _SQL["forget_parents"],
        _SQL["forget_totals"],
        _SQL["forget_sets"],
        _SQL["recount"],
    )
    reads = _SQL["reads"]
    moves = True
    sets = True
