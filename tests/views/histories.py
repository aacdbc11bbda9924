"""Events by hand, at times of their own, fed to a copy of a view in batches: for laws of cutting."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from ledger import Event
from ledger.pipelines import LSM, OCT, OpenItem, ProjectCreated
from ledger.pipelines.item import flags_of, totals_of
from projections.engine.apply import Applier
from projections.engine.copies import Copies
from projections.engine.view import View

START = datetime(2026, 2, 28, 23, 0, tzinfo=UTC)
FEED = sql.SQL("(SELECT * FROM pg_temp.fed WHERE position > %(after)s AND position <= %(upto)s)")
KINDS: tuple[type[OpenItem[Any]], ...] = (*LSM, *OCT)

# Rows of a log that was never recorded.


class Row(NamedTuple):
    position: int
    recorded_at: datetime
    version: int
    stream: str
    topic: str
    data: dict[str, Any]
    meta: dict[str, Any] | None


class Feeding:
    """A table of rows that stand for the log."""

    def __init__(self, copies: Copies, view: View) -> None:
        self.connection = copies.connection
        copy = copies.begin(view)
        self.applier = Applier(copies, view, copy, feed=FEED)
        self.tables = [sql.Identifier("ledger_views", f"{table}_{copy.number}") for table in view.table_names]
        self.connection.execute(
            "CREATE TEMPORARY TABLE IF NOT EXISTS fed (position bigint, recorded_at timestamptz,"
            ' version bigint, schema smallint DEFAULT 1, stream text COLLATE "C", topic text COLLATE "C",'
            " data jsonb, raw bytea, meta jsonb)"
        )

    def rows(self, rows: Sequence[Row]) -> None:
        """What the log is from now on."""
        self.connection.execute("TRUNCATE pg_temp.fed")
        columns = "position, recorded_at, version, stream, topic, data, meta"
        with self.connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO pg_temp.fed ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [(*row[:5], Jsonb(row.data), None if row.meta is None else Jsonb(row.meta)) for row in rows],
            )

    def fill(self, cuts: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of an empty copy that is filled in batches which end at these positions."""
        (table,) = self.tables
        self.connection.execute(sql.SQL("DELETE FROM {}").format(table))
        for after, upto in itertools.pairwise([0, *cuts]):
            with self.connection.transaction():
                self.applier.fill(after, upto)
        assert self.applier.parked == 0
        text = sql.SQL("SELECT to_jsonb(t) - 'copy' FROM {} t ORDER BY 1").format(table)
        return [row for (row,) in self.connection.execute(text)]


def cuttings(end: int) -> st.SearchStrategy[list[int]]:
    """Where batches may end, the last at the end."""
    return st.lists(st.integers(1, max(1, end)), max_size=12).map(lambda cuts: sorted({*cuts, end}))


times = st.integers(-50_000_000, 90_000_000_000).map(lambda us: START + timedelta(microseconds=us))

# Facts of items.


def some_fact(chance: Random, kind: type[OpenItem[Any]]) -> Event:
    """Any fact of a level, whether it makes sense or not; the same few flags again and again."""
    made, flags, totals = kind.FACTS, sorted(flags_of(kind.STATE))[:2], totals_of(kind.STATE)
    born: dict[str, Any] = {"under": chance.randrange(3)}
    if issubclass(made.created, ProjectCreated):
        born["project_name"] = chance.choice("Pp")
    choices: list[Callable[[], Event]] = [
        made.touched, made.started, made.completed, made.pending, made.deleted,
        lambda: made.created(**born),
        lambda: made.failed(reason=chance.choice([None, "disk", 'a "b" %', ""])),
    ]  # fmt: skip
    if flags:
        flag = chance.choice(flags)
        cleared = tuple(chance.choices(flags, k=chance.randrange(3)))
        claims: list[Callable[[], Event]] = [
            made.flags[flag],
            lambda: made.entered(milestone=flag),
            lambda: made.left(milestone=flag),
        ]
        choices += [lambda: made.reset(cleared=cleared), *claims, *claims]
    if totals:
        plan = {
            name: chance.choice([None, 0, 3, 2**62]) for name in (*totals, "of_old") if chance.random() < 0.5
        }
        choices += [lambda: made.planned(totals=plan)] * 3
    return chance.choice(choices)()


@st.composite
def item_histories(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    """Facts of two items, mixed, and where they are cut."""
    chance = Random(draw(st.integers(0, 2**32)))
    pair, versions, rows = chance.sample(KINDS, 2), [0, 0], list[Row]()
    for position in range(1, draw(st.integers(0, 50)) + 1):
        which = chance.randrange(2)
        kind = pair[which]
        versions[which] += 1
        event = some_fact(chance, kind)
        stream = kind.name_of("p%/", *range(1, len(kind.IDENT.fields())))
        at = START + timedelta(microseconds=chance.randrange(-(10**10), 10**11))
        rows.append(Row(position, at, versions[which], stream, event.topic, json.loads(event.body()), None))
    return rows, draw(cuttings(len(rows)))
