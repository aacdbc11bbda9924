"""InState: which stream is in which state now, since when; and how many are in each."""

from __future__ import annotations

from .sql import view as parts
from .views.view import View

_SQL = parts("in_state")


class InState(View):
    """Who is in which state: table `in_state`, counts `in_state_counts`, function `streams_in`.

    A state is what an event's topic leads to, as its domain declared it (`ledger.store.declaring`). A stream
    that never moved is in no state, and not here.
    """

    name = "in_state"
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply"],)
    forget = (_SQL["forget"],)
    reads = _SQL["reads"]
    moves = True
    inline = True
