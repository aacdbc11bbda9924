"""Progress: how many units of each parent exist, run, are done, failed, and are expected."""

from __future__ import annotations

from ..engine.view import View, parts

_SQL = parts(__package__, "progress")


class Progress(View):
    """Done of total for each parent: view `progress`, function `progress_of`; declared by
    `ledger.domain.sets`.

    The view stores each unit with how it counts (`progress_units`), and the sizes of the sets
    (`progress_sets`), which change with the units and so always equal them. There is one writer, so no row is
    contended. A parent's death and new birth cost nothing: sizes are stored for each life, and those of the
    present life are shown.
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
    statuses = True
    sets = True
