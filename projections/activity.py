"""Activity: who recorded how many events on which day, by category."""

from __future__ import annotations

from .sql import view as parts
from .views.view import View

_SQL = parts("activity")


class Activity(View):
    """Events by actor, day and category: table `activity`.

    The day is that of the time of recording, in UTC; a claimed time is not looked at. Rows sum over streams,
    so a part of it cannot be rebuilt.
    """

    name = "activity"
    tables = _SQL["tables"]
    statements = (_SQL["apply"],)
