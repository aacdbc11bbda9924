"""
What an append costs beside the least that PostgreSQL can do: `dev.py bench append`.

One event a transaction, durable commits, writers as processes, the same row in all of them:

    raw       psycopg, autocommit, prepared: INSERT of the finished row into a table with the same indexes
    lean      our append without heads
    heads     our append with head row: version, status, JSONB state
    any       log.append as it is by default: no expectation, with a head row
    stock     the PostgreSQL recorder of the `eventsourcing` library

the server's side of it alone, by pgbench (`native.py`): raw, and our functions with head and status;

the one call of an append in three clients (`--only calls`), which differ in nothing else:

    call      ours: libpq's own words, waiting and reading by psycopg, every result judged
    cursor    psycopg's cursor, prepared, binary results
    blocking  libpq's own blocking call, which no signal interrupts: the least a client can cost

and bulk appends of 1000 events beside binary COPY of the same rows, opening streams, and how soon a follower
sees a commit while an unrelated write transaction stays open.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import pq

import ledger
from ledger import Append, Body, Exact, acting
from ledger.embedded import Embedded, throwaway
from ledger.log.appender import ONE_FORMATS
from ledger.log.appender import SQL as APPEND
from ledger.log.connection import CallingConnection
from ledger.log.install import init
from tests.benchmarks.native import native, pgbench_of, scripts
from tests.benchmarks.rounds import Turn, median, rates, ratio
from tests.benchmarks.visibility import visibility
from tests.lamp import OpenLamp

BODY = {
    "message": "strip compressed",
    "done": 17,
    "total": 40,
    "path": "archive/slice-1/strip-17.tif",
    "ok": True,
}
META = {"actor": "worker-3@host", "correlation": "0193b0a2-7b1e-7c11-9c1b-2f1a3b4c5d6e", "causation": 17}
STATE = {
    "status": "running", "slice_id": 1, "channel_id": 0, "strip_id": 17, "archived": False,
    "compressed": True, "uploaded": False, "attempt": 1,
    "created_at": "2026-01-01T00:00:00.000000Z", "updated_at": "2026-01-01T00:00:00.000000Z",
}  # fmt: skip
TOPIC = "strip.reported"
STREAMS = 20
RAW = """
INSERT INTO raw_events (version, schema, stream, topic, data, meta) VALUES (%s, %s, %s, %s, %s, %s)
RETURNING position, recorded_at
"""
TAKE_BLOCK = "SELECT setval('raw_positions', nextval('raw_positions') + 999)"
COPY = """
COPY raw_events (position, recorded_at, version, schema, stream, topic, data, meta) FROM STDIN (FORMAT binary)
"""
CALLS = ("call", "cursor", "blocking")
WAYS = ("raw", "lean", "heads", "any", "stock")


@dataclass(frozen=True)
class AppendCrew:
    """The ways of appending one event, each with streams of its own."""

    dsn: str
    mark: str

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        lean, heads = self.ours(writer, head=False), self.ours(writer, head=True)
        return {"raw": self.raw(writer), "lean": lean, "heads": heads, "any": self.any(writer),
                "stock": self.stock(writer)}  # fmt: skip

    def any(self, writer: int) -> Turn:
        log = ledger.connect(self.dsn, create=False)
        body = Body(TOPIC, 1, json.dumps(BODY))

        def turn(number: int) -> int:
            log.append(f"any/{self.mark}/{writer}/{number % STREAMS}", body)
            return 1

        return turn

    def raw(self, writer: int) -> Turn:
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor(binary=True)
        data, meta = json.dumps(BODY), json.dumps(META)

        def turn(number: int) -> int:
            stream = f"raw/{self.mark}/{writer}/{number % STREAMS}"
            cursor.execute(RAW, (number // STREAMS + 1, 1, stream, TOPIC, data, meta), prepare=True)
            cursor.fetchone()
            return 1

        return turn

    def ours(self, writer: int, *, head: bool) -> Turn:
        log = ledger.connect(self.dsn, create=False)
        bodies, state = [Body(TOPIC, 1, json.dumps(BODY))], json.dumps(STATE) if head else None
        status = "running" if head else None
        acting(**META).__enter__()  # for the life of this process, as a worker does

        def turn(number: int) -> int:
            version = number // STREAMS
            stream = f"strip/{self.mark}/{head}/{writer}/{number % STREAMS}"
            log.append_all(
                [
                    Append(
                        stream,
                        bodies,
                        Exact(version),
                        status=status,
                        state=state,
                        base=version,
                        state_schema=1,
                        head=head,
                    )
                ]
            )
            return 1

        return turn

    def stock(self, writer: int) -> Turn:
        from eventsourcing.persistence import StoredEvent

        recorder = stock_recorder(self.dsn)
        streams, state = [uuid4() for _ in range(STREAMS)], json.dumps(BODY).encode()

        def turn(number: int) -> int:
            recorder.insert_events(
                [StoredEvent(streams[number % STREAMS], number // STREAMS + 1, TOPIC, state)]
            )
            return 1

        return turn


@dataclass(frozen=True)
class CallCrew:
    """The call that appends one event, on a connection of our own, of psycopg's, and of libpq's."""

    dsn: str
    mark: str

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        name, statement = APPEND.append_one.prepared("ledger")
        line = CallingConnection.connect(self.dsn, autocommit=True)
        cursor = psycopg.connect(self.dsn, autocommit=True).cursor(binary=True)
        blocking = psycopg.connect(self.dsn, autocommit=True).pgconn
        blocking.prepare(name, statement)
        text = APPEND.append_one.text("ledger")

        def call(number: int) -> int:
            line.call(name, statement, self.values("call", writer, number), ONE_FORMATS)
            return 1

        def blocked(number: int) -> int:
            values = self.values("blocking", writer, number)
            result = blocking.exec_prepared(name, values, ONE_FORMATS, pq.Format.BINARY)
            assert result.status == pq.ExecStatus.TUPLES_OK
            return 1

        def by_cursor(number: int) -> int:
            values = [v if v is None else v.decode() for v in self.values("cursor", writer, number)]
            assert cursor.execute(text, values, prepare=True).fetchone()
            return 1

        return {"call": call, "cursor": by_cursor, "blocking": blocked}

    def values(self, way: str, writer: int, number: int) -> list[bytes | None]:
        stream = f"{way}/{self.mark}/{writer}/{number % STREAMS}".encode()
        body, meta = json.dumps(BODY).encode(), json.dumps(META).encode()
        head = [stream, b"%d" % (number // STREAMS), TOPIC.encode(), b"1", body, None, meta, b"f"]
        return [*head, None, None, None, None, None]


def stock_recorder(dsn: str) -> Any:
    """The library's own recorder."""
    from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    datastore = PostgresDatastore(
        parts["dbname"],
        parts["host"],
        parts.get("port", "5432"),
        parts["user"],
        parts.get("password", ""),
        pool_size=1,
    )
    return PostgresApplicationRecorder(datastore, events_table_name="stock_events")


def binary_rows(first: int, stream: bytes) -> bytes:
    """A thousand finished rows in the format of binary COPY, as cheaply as Python can make them."""

    def field(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    now = int((time.time() - 946_684_800) * 1e6)
    texts = field(stream) + field(TOPIC.encode())
    rest = b"".join(field(b"\x01" + json.dumps(value).encode()) for value in (BODY, META))
    head = struct.Struct(">hiqiqiqih")
    rows = [head.pack(8, 8, first + i, 8, now, 8, i + 1, 2, 1) + texts + rest for i in range(1000)]
    return b"PGCOPY\n\xff\r\n\x00" + bytes(8) + b"".join(rows) + b"\xff\xff"


@dataclass(frozen=True)
class BulkCrew:
    """A thousand events a transaction: our bulk append, and binary COPY of the same rows."""

    dsn: str
    mark: str

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        log = ledger.connect(self.dsn, create=False)
        bodies = [Body(TOPIC, 1, json.dumps(BODY))] * 1000
        connection = psycopg.connect(self.dsn)

        def bulk(number: int) -> int:
            log.append_all(
                [Append(f"bulk/{self.mark}/{writer}/{number}", bodies, Exact(0), head=False)], **META
            )
            return len(bodies)

        def copy(number: int) -> int:
            stream = f"copy/{self.mark}/{writer}/{number}".encode()
            with connection.cursor() as cursor:
                (last,) = cursor.execute(TAKE_BLOCK).fetchone() or (0,)
                with cursor.copy(COPY) as rows:
                    rows.write(binary_rows(last - 999, stream))
            connection.commit()
            return 1000

        return {"bulk": bulk, "copy": copy}


def prepare(server: Embedded) -> str:
    """A database with a ledger, and a table like its events for the raw ways."""
    with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
        connection.execute("CREATE DATABASE bench OWNER pledger")
    with psycopg.connect(server.dsn("bench"), autocommit=True) as connection:
        init(connection)
    with psycopg.connect(server.dsn("bench"), autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE raw_positions")
        connection.execute("CREATE TABLE raw_events (LIKE ledger.events INCLUDING ALL)")
        connection.execute(
            "ALTER TABLE raw_events ALTER position SET DEFAULT nextval('raw_positions'),"
            " ALTER recorded_at SET DEFAULT clock_timestamp()"
        )
    return server.dsn("bench")


def appends(dsn: str, writers: int, rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Ratios and figures of one-event appends with this many writers."""
    stock_recorder(dsn).create_table()
    found = rates(AppendCrew(dsn, uuid4().hex[:6]), WAYS, writers, rounds, seconds)
    return {
        f"append_vs_raw_{writers}": ratio(found, "lean", "raw"),
        f"append_heads_vs_raw_{writers}": ratio(found, "heads", "raw"),
        f"append_any_vs_raw_{writers}": ratio(found, "any", "raw"),
        f"append_heads_vs_stock_{writers}": ratio(found, "heads", "stock"),
    }, {f"{way}_{writers}_per_s": median(found[way]) for way in WAYS}


def natives(
    server: Embedded, dsn: str, writers: int, rounds: int, seconds: float
) -> tuple[dict[str, float], dict[str, float]]:
    """The server's side alone; nothing where the server has no pgbench."""
    pgbench = pgbench_of(server.admin_dsn("bench"))
    if pgbench is None:
        return {}, {}
    found = native(pgbench, dsn, scripts(TOPIC, BODY, META), writers, rounds, seconds)
    return {
        f"append_native_vs_raw_{writers}": ratio(found, "native", "raw"),
        f"append_any_native_vs_raw_{writers}": ratio(found, "any", "raw"),
    }, {f"{way}_native_{writers}_per_s": median(rates) for way, rates in found.items()}


def calls(dsn: str, writers: int, rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """The same append called in three clients."""
    found = rates(CallCrew(dsn, uuid4().hex[:6]), CALLS, writers, rounds, seconds)
    return {
        f"call_vs_cursor_{writers}": ratio(found, "call", "cursor"),
        f"call_vs_blocking_{writers}": ratio(found, "call", "blocking"),
    }, {f"{way}_{writers}_per_s": median(found[way]) for way in CALLS}


def bulk(dsn: str, rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Bulk appends beside COPY."""
    found = rates(BulkCrew(dsn, uuid4().hex[:6]), ("copy", "bulk"), 1, rounds, seconds)
    return {"bulk_vs_copy": ratio(found, "bulk", "copy")}, {
        "bulk_per_s": median(found["bulk"]),
        "copy_per_s": median(found["copy"]),
    }


def opening(dsn: str, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Opening a stream of 10,000 events beside one of 10."""
    with ledger.connect(dsn, create=False) as log:
        for name, length in (("long", 10_000), ("short", 10)):
            with log.open(OpenLamp, name) as lamp:
                lamp.make()
                for i in range(length - 1):
                    lamp.read(i)
        times: dict[str, list[float]] = {"long": [], "short": []}
        for _ in range(rounds * 40):
            for name, taken in times.items():
                begin = time.perf_counter()
                log.load(OpenLamp, name)
                taken.append(time.perf_counter() - begin)
    long, short = (statistics.median(times[name]) for name in ("long", "short"))
    return {"open_10000_vs_10": round(long / short, 3)}, {
        "open_10000_ms": round(long * 1e3, 3),
        "open_10_ms": round(short * 1e3, 3),
    }


def main() -> None:
    """Run it all and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench append", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--only", nargs="*", default=["append", "native", "bulk", "open", "visible"])
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server:
        parts = []
        if "append" in options.only:
            parts += [
                lambda w=w: appends(prepare(server), w, options.rounds, options.seconds)
                for w in options.writers
            ]
        if "native" in options.only:
            parts.append(
                lambda: natives(
                    server, prepare(server), max(options.writers), options.rounds, options.seconds
                )
            )
        if "calls" in options.only:
            parts += [
                lambda w=w: calls(prepare(server), w, options.rounds, options.seconds)
                for w in options.writers
            ]
        if "bulk" in options.only:
            parts.append(lambda: bulk(prepare(server), options.rounds, options.seconds))
        if "open" in options.only:
            parts.append(lambda: opening(prepare(server), options.rounds))
        if "visible" in options.only:
            parts.append(lambda: visibility(prepare(server), options.rounds * options.seconds))
        for part in parts:
            found, absolute = part()
            ratios |= found
            figures |= absolute
            for name, value in (found | absolute).items():
                print(f"{name:28} {value:>12}", file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
