"""
One table for the log, or one partition for each range of positions? `dev.py bench layout`.

Fills both layouts with the same events and measures, side by side, appends (the INSERT of an append, with a
head row that carries the version), the tail page of a follower, opening a stream by its last events, reading
a whole old stream, and bytes per event in table and indexes. Ten million events take about five minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from ledger.embedded import throwaway

Connection = psycopg.Connection[Any]
LAYOUTS = ("one", "ranges")
STREAM_EVENTS = 20

COLUMNS = """
    position bigint NOT NULL, recorded_at timestamptz NOT NULL, version bigint NOT NULL,
    schema smallint NOT NULL,
    stream text COLLATE "C" NOT NULL, topic text COLLATE "C" NOT NULL, data jsonb, raw bytea, meta jsonb
"""
ROWS = """
SELECT i, now() + i * interval '1 millisecond', (i / {streams}) + 1, 1, 'lsm.strip/project/' || i % {streams},
       'lsm.strip.compressed',
       jsonb_build_object('value', true, 'seconds', i % 97, 'path', 'archive/strip-' || i % 1000 || '.z'),
       NULL::bytea,
       '{{"actor": "worker-3@host", "correlation": "0193b0a2-7b1e-7c11-9c1b-2f1a3b4c5d6e"}}'::jsonb
  FROM generate_series({first}, {last}) i
"""
INSERT = "INSERT INTO {layout} SELECT * FROM ({rows}) r"


def make(connection: Connection, events: int, partition: int) -> None:
    """Both tables, their partitions and a head table."""
    connection.execute(f"CREATE TABLE one ({COLUMNS}, PRIMARY KEY (position), UNIQUE (stream, version))")
    connection.execute(
        f"CREATE TABLE ranges ({COLUMNS}, PRIMARY KEY (position)) PARTITION BY RANGE (position)"
    )
    connection.execute("CREATE INDEX ON ranges (stream, version)")
    for start in range(0, events + 2 * partition, partition):
        connection.execute(
            f"CREATE TABLE ranges_{start} PARTITION OF ranges"
            f" FOR VALUES FROM ({start}) TO ({start + partition})"
        )


def fill(connection: Connection, layout: str, events: int, streams: int) -> float:
    """Events per second of filling a layout."""
    begin, step = time.perf_counter(), 200_000
    for first in range(1, events + 1, step):
        rows = ROWS.format(streams=streams, first=first, last=min(events, first + step - 1))
        connection.execute(INSERT.format(layout=layout, rows=rows))
        print(
            f"\r{layout}: {min(events, first + step - 1):,} of {events:,}",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    connection.execute(f"VACUUM ANALYZE {layout}")
    return events / (time.perf_counter() - begin)


def timed(turn: Callable[[int], object], times: int) -> float:
    """Median milliseconds of one turn."""
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        turn(number)
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


def measure(connection: Connection, layout: str, events: int, streams: int, start: int) -> dict[str, float]:
    """Milliseconds of the work that a ledger does on a filled layout."""

    def append(number: int) -> None:
        position, name = events + start + number + 1, f"lsm.strip/new/{start}/{number}"
        connection.execute(
            f"INSERT INTO {layout} VALUES"
            " (%s, clock_timestamp(), 1, 1, %s, 'lsm.strip.started', '{}', NULL, '{}')",
            (position, name), prepare=True,
        )  # fmt: skip

    def stream(number: int) -> str:
        chosen = (number * 7919) % streams
        return f"lsm.strip/project/{chosen}"

    def run(text: str, *values: object) -> Sequence[Any]:
        return connection.execute(text, values, prepare=True).fetchall()

    tail, name = (
        f"SELECT * FROM {layout} WHERE position > %s AND position <= %s ORDER BY position LIMIT 500",
        stream,
    )
    return {
        "append_ms": timed(append, 400),
        "tail_ms": timed(lambda n: run(tail, events - 5000 + n, events), 60),
        "open_ms": timed(
            lambda n: run(
                f"SELECT * FROM {layout} WHERE stream = %s AND version > %s ORDER BY version",
                name(n),
                STREAM_EVENTS - 2,
            ),
            60,
        ),
        "whole_stream_ms": timed(
            lambda n: run(f"SELECT * FROM {layout} WHERE stream = %s ORDER BY version", name(n)), 60
        ),
    }


def sizes(connection: Connection, layout: str, events: int) -> dict[str, float]:
    """Bytes per event in the table and in each of its indexes, over all partitions."""
    row = connection.execute(
        "SELECT sum(pg_relation_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class"
        " WHERE relkind = 'r' AND relname ~ %s",
        (f"^{layout}(_[0-9]+)?$",),
    ).fetchone() or (0, 0)
    return {
        "table_bytes_per_event": round(float(row[0]) / events, 1),
        "index_bytes_per_event": round(float(row[1]) / events, 1),
    }


def main() -> None:
    """Fill, measure in turns, print."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench layout", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--partition", type=int, default=1_000_000, help="positions in a partition")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, Any] = {"events": options.events, "partition": options.partition}
    streams = max(1, options.events // STREAM_EVENTS)
    with throwaway(durable=True) as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        make(connection, options.events, options.partition)
        for layout in LAYOUTS:
            figures[f"{layout}_fill_per_s"] = round(fill(connection, layout, options.events, streams))
            figures |= {
                f"{layout}_{name}": value for name, value in sizes(connection, layout, options.events).items()
            }
        found: dict[str, list[dict[str, float]]] = {layout: [] for layout in LAYOUTS}
        for number in range(options.rounds):
            for layout in LAYOUTS:
                found[layout].append(measure(connection, layout, options.events, streams, number * 1000))
    ratios = {}
    for name in found["one"][0]:
        middle = {layout: statistics.median(each[name] for each in found[layout]) for layout in LAYOUTS}
        figures |= {f"{layout}_{name}": round(value, 4) for layout, value in middle.items()}
        ratios[f"one_vs_ranges_{name.removesuffix('_ms')}"] = round(middle["one"] / middle["ranges"], 3)
    for key, value in (ratios | figures).items():
        print(f"{key:32} {value:>14}", file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
