"""A view of the user's own, as one would write it in one file: two tables, Python, a function for readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from projections.engine.view import Batch, Statement, View
from tests.lamp import LampBroke


class Failures(View):
    name = "failures"
    topics = ("lamp.broke",)
    tables = """
        CREATE TABLE {failures} (stream text PRIMARY KEY, many bigint NOT NULL);
        CREATE TABLE {failure_words} (word text PRIMARY KEY, many bigint NOT NULL)"""
    indexes = "CREATE INDEX ON {failure_words} (many)"
    reads = """
        CREATE OR REPLACE FUNCTION {views}.failed_often(times bigint) RETURNS SETOF text
        LANGUAGE sql STABLE AS $$SELECT stream FROM {failures} WHERE many >= times ORDER BY stream$$;
        GRANT EXECUTE ON FUNCTION {views}.failed_often TO {reader}"""

    def apply(self, batch: Batch) -> Iterator[Statement]:
        words = Counter[str]()
        for event in batch.events:
            fact = event.event
            if not isinstance(fact, LampBroke) or not fact.reason:
                raise ValueError("a failure has a reason")
            words.update(fact.reason.lower().split())
        yield Statement(
            "INSERT INTO {failures} AS f SELECT stream, count(*) FROM {batch} b GROUP BY stream "
            "ON CONFLICT (stream) DO UPDATE SET many = f.many + excluded.many"
        )
        yield Statement(
            "INSERT INTO {failure_words} AS w SELECT * FROM unnest(%(words)s::text[], %(many)s::bigint[]) "
            "ON CONFLICT (word) DO UPDATE SET many = w.many + excluded.many",
            {"words": list(words), "many": list(words.values())},
        )
