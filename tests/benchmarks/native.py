"""The server's side of an append alone: pgbench, prepared, a client that costs next to nothing.

    raw      INSERT of the finished row
    native   append_one at an exact version, with a head row and a status
    any      append_one without expectation, with a head row and a status

Each turn of a client begins a new stream. pgbench is that of the server's own binaries.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

RAW = """
INSERT INTO raw_events (version, schema, stream, topic, data, meta)
VALUES (:v + 1, 1, 'raw/' || :turn || '/' || :client_id, {topic}, {body}, {meta})
RETURNING position, recorded_at;
"""
ONE = """
SELECT ledger.append_one({way} || :turn || '/' || :client_id, {expected}, {topic}, 1::smallint, {body}, NULL,
                         {meta}, true, 'running');
"""


def pgbench_of(admin_dsn: str) -> Path | None:
    """The server's own pgbench, if it has one."""
    with psycopg.connect(admin_dsn) as connection:
        (folder,) = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone() or (
            "",
        )
    found = Path(folder) / "pgbench"
    return found if found.exists() else None


def scripts(topic: str, body: Mapping[str, object], meta: Mapping[str, object]) -> dict[str, str]:
    """What each way runs, once a transaction."""
    values = {name: f"'{text}'" for name, text in
              {"topic": topic, "body": json.dumps(body), "meta": json.dumps(meta)}.items()}  # fmt: skip
    ways = {
        "raw": RAW.format(**values),
        "native": ONE.format(way="'native/'", expected=":v", **values),
        "any": ONE.format(way="'any/'", expected="-1", **values),
    }
    return {way: "\\set v :v + 1\n" + " ".join(sql.split()) + "\n" for way, sql in ways.items()}


def native(
    pgbench: Path, dsn: str, ways: Mapping[str, str], writers: int, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Transactions a second of each way in each round; the first round warms up."""
    known = conninfo_to_dict(dsn)
    names = {
        "host": "PGHOST",
        "port": "PGPORT",
        "user": "PGUSER",
        "password": "PGPASSWORD",
        "dbname": "PGDATABASE",
    }
    environment = os.environ | {names[key]: str(value) for key, value in known.items() if key in names}
    found: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            for way, script in ways.items():
                file = Path(folder) / f"{way}.sql"
                file.write_text(script)
                done = subprocess.run(
                    [pgbench, "-n", "-M", "prepared", "-c", str(writers), "-j", "2",
                     "-T", str(max(1, round(seconds))),
                     "-f", file, "-D", "v=-1", "-D", f"turn={turn}"],
                    env=environment, capture_output=True, text=True, check=True,
                )  # fmt: skip
                rate = re.search(r"tps = ([0-9.]+)", done.stdout)
                assert rate is not None
                if turn:
                    found[way].append(float(rate[1]))
    return found
