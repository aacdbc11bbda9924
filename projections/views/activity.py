"""Activity: who recorded how many events on which day, by category."""

from __future__ import annotations

from ..engine.view import View, parts

_SQL = parts(__package__, "activity")


class Activity(View):
    """Events by actor, day and category: table `activity`.

    The day is that of the time of recording, in UTC; a claimed time is not looked at. Rows sum over streams,
    so the view cannot be rebuilt in part.
    """

    name = "activity"
    tables = _SQL["tables"]
    statements = (_SQL["apply"],)
