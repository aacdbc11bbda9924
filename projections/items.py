"""Items: what every item of every pipeline is now, one row each; and projects with all below them, in SQL."""

from __future__ import annotations

from .sql import view as parts
from .views.view import View

_SQL = parts("items")


class Items(View):
    """The items of project state: table `items`, those that show `shown_items`, function `project_tree`.

    A row is what `evolve` of items makes of the stream, in any pipeline whose levels are declared
    (`ledger.store.levels`). Fields that a pipeline sets in an `evolve` of its own are not in it.
    """

    name = "items"
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply"],)
    forget = (_SQL["forget"],)
    reads = _SQL["reads"]
    moves = True  # declared levels count as moves: streams of new ones are folded anew
