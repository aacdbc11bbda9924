"""A view that would show it if an event was applied twice or skipped: it counts the events of each stream."""

from __future__ import annotations

from ledger.domain.known import KNOWN
from projections.engine.projector import views_named
from projections.engine.view import View
from projections.shipped import load

load()


class Tally(View):
    """How many events each stream has, and the sum of their positions."""

    name = "seen_once"
    tables = """
        CREATE TABLE {seen_once} (
            stream text COLLATE "C" PRIMARY KEY, events bigint NOT NULL, positions numeric NOT NULL)
    """
    statements = (
        "INSERT INTO {seen_once} AS t SELECT b.stream, count(*), sum(b.position) FROM {batch} b "
        "GROUP BY b.stream ON CONFLICT (stream) DO UPDATE SET events = t.events + excluded.events, "
        "positions = t.positions + excluded.positions",
    )


SEEN_ONCE = KNOWN.views.pop("seen_once")
"""Not among those that this process knows: other tests look at all of these."""


def watched() -> list[View]:
    """The views that are kept while this and that is killed."""
    return [*views_named(("activity", "in_state", "lsm_items", "progress")), SEEN_ONCE]
