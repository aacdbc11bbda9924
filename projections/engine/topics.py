"""Topics that a view wants but that occur nowhere: usually typing errors."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import psycopg

from ledger.domain.known import KNOWN
from ledger.log.sql import Statements, run

from .view import View

SQL = Statements(__package__, "topics")


def unknown_topics(
    connection: psycopg.Connection[tuple[object, ...]], schema: str, view: View
) -> tuple[str, ...]:
    """Topics of a view that no class of this process, no announced domain and no event of the log has.

    If a topic is unknown, the whole log is searched.
    """
    asked = sorted(topic for topic in view.topics or () if topic not in KNOWN.events)
    if not asked:
        return ()
    return tuple(topic for (topic,) in run(connection, schema, SQL.unknown_topics, topics=asked))


def warning(view: str, topics: Iterable[str]) -> str:
    """The warning about unknown topics of a view, with similar topics."""
    parts = []
    for topic in topics:
        near = get_close_matches(topic, KNOWN.events, 1, 0.8)
        parts.append(f"{topic!r} (did you mean {near[0]!r}?)" if near else repr(topic))
    return (
        f"warning: view {view} wants {', '.join(parts)}, which no event and no imported class has: correct "
        "the topic, or name its domain with --domain"
    )
