"""InState: which stream is in which status now and since when; and how many are in each."""

from __future__ import annotations

from ..engine.view import View, parts

_SQL = parts(__package__, "in_state")


class InState(View):
    """Who is in which state: table `in_state`, counts `in_state_counts`, function `streams_in`.

    A state is the status that an event's topic leads to, as its domain announced it (`ledger.log.announce`).
    A stream that never moved has no state and no row.
    """

    name = "in_state"
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply"],)
    forget = (_SQL["forget"],)
    reads = _SQL["reads"]
    statuses = True
    inline = True
