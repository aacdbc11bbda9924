"""Items: the state of every item of every pipeline, one row each; project trees in SQL."""

from __future__ import annotations

from ..engine.view import View, parts

_SQL = parts(__package__, "items")


class Items(View):
    """The items of project state: table `items`, the visible ones `shown_items`, function `project_tree`.

    A row is what `evolve` of items makes of the stream, in any pipeline whose levels are declared
    (`ledger.domain.level`). Fields that a pipeline sets in an `evolve` of its own are not in it.
    """

    name = "items"
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply"],)
    forget = (_SQL["forget"],)
    reads = _SQL["reads"]
    statuses = True  # announced levels count as statuses: streams of new ones are folded anew
