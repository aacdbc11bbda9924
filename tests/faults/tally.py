"""A view that would show it if an event was applied twice or skipped: it counts the events of each stream."""

from __future__ import annotations

from projections.views.view import View


class Tally(View):
    """How many events each stream has, and the sum of their positions."""

    name = "tally"
    tables = """
        CREATE TABLE {tally} (
            stream text COLLATE "C" PRIMARY KEY, events bigint NOT NULL, positions numeric NOT NULL)
    """
    statements = (
        "INSERT INTO {tally} AS t SELECT b.stream, count(*), sum(b.position) FROM {batch} b "
        "GROUP BY b.stream ON CONFLICT (stream) DO UPDATE SET events = t.events + excluded.events, "
        "positions = t.positions + excluded.positions",
    )
