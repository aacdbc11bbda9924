"""
The user's own tables, in the database of the ledger: a row for each protein, and one for each batch.

There is no key on them that would hide a second write. That each batch is written once is the ledger's
affair, and the check at the end of a run would see it if it were not so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from docs.examples.kmers.parcel import Parcel
from docs.examples.kmers.profile import Profile

TABLES: Final = """
CREATE TABLE IF NOT EXISTS kmer_profiles
    (run uuid NOT NULL, batch text NOT NULL, nr bigint NOT NULL, name text NOT NULL, length int NOT NULL,
     words jsonb NOT NULL);
CREATE TABLE IF NOT EXISTS kmer_chance (run uuid NOT NULL, batch text NOT NULL, words jsonb NOT NULL);
CREATE INDEX IF NOT EXISTS kmer_profiles_run ON kmer_profiles (run, nr);
CREATE INDEX IF NOT EXISTS kmer_chance_run ON kmer_chance (run);
"""
BEING_MADE: Final = 7_263_154
"""Key of the advisory lock under which the tables are made: two that begin at once would collide."""

Connection = psycopg.Connection[Any]


def make_tables(connection: Connection) -> None:
    """Make the tables where they are missing; nothing is locked where they are there."""
    if connection.execute("SELECT to_regclass('kmer_chance_run')").fetchone() == (None,):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [BEING_MADE])
            connection.execute(TABLES)


def write(connection: Connection, run: str, batch: str, parcel: Parcel) -> None:
    """Add what one batch found; in the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO kmer_profiles VALUES (%s, %s, %s, %s, %s, %s)",
            [(run, batch, one.nr, one.name, one.length, Jsonb(dict(one.words))) for one in parcel.profiles],
        )
        cursor.execute(
            "INSERT INTO kmer_chance VALUES (%s, %s, %s)", [run, batch, Jsonb(dict(parcel.chance))]
        )


def profiles(connection: Connection, run: str) -> Iterator[Profile]:
    """The profiles of a run in the order of the file, a few at a time."""
    query = "SELECT nr, name, length, words FROM kmer_profiles WHERE run = %s ORDER BY nr"
    with connection.transaction(), connection.cursor("profiles_of_a_run") as cursor:
        for row in cursor.execute(query, [run]):
            yield Profile(*row)


def totals(connection: Connection, run: str) -> tuple[Counter[str], Counter[str]]:
    """All words of a run, as they are seen and by chance."""
    seen: Counter[str] = Counter()
    for one in profiles(connection, run):
        seen.update(one.words)
    chance: Counter[str] = Counter()
    for (found,) in connection.execute("SELECT words FROM kmer_chance WHERE run = %s", [run]):
        chance.update(found)
    return seen, chance


def written(connection: Connection, run: str) -> dict[str, tuple[int, int]]:
    """How many proteins, and how many rows of chance, there are of each batch."""
    query = """
        SELECT batch, coalesce(p.many, 0), coalesce(c.many, 0)
          FROM (SELECT batch, count(*) many FROM kmer_profiles WHERE run = %(run)s GROUP BY batch) p
          FULL JOIN (SELECT batch, count(*) many FROM kmer_chance WHERE run = %(run)s GROUP BY batch) c
               USING (batch)"""
    return {batch: (many, sums) for batch, many, sums in connection.execute(query, {"run": run})}
