"""
A consumer of state changes to be killed: `python -m tests.views.feed_consumer DSN`.

It writes each change it is told of into a table of its own, with the cursor in the same transaction.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import psycopg

import ledger
from projections.feeds import StateChanges

TABLES = (
    "CREATE TABLE told (number bigserial, position bigint, stream text, before text, status text);"
    "CREATE TABLE place (single boolean PRIMARY KEY DEFAULT true, cursor text)"
)


def consume(dsn: str) -> None:
    """Follow for ever, a few changes at a time."""
    with ledger.connect(dsn, actor="consumer") as log, psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT cursor FROM place").fetchone()
        connection.commit()
        feed = StateChanges(log, after=ledger.Cursor.parse(row[0]) if row else 0, batch=3)
        for changes in feed.batches():
            for change in changes:
                connection.execute(
                    "INSERT INTO told (position, stream, before, status) VALUES (%s, %s, %s, %s)",
                    [change.position, change.stream, change.before, change.status],
                )
            connection.execute(
                "INSERT INTO place (cursor) VALUES (%(c)s) ON CONFLICT (single) DO UPDATE SET cursor = %(c)s",
                {"c": str(feed.cursor)},
            )
            connection.commit()


class consumer:
    """The consumer of `feeding`, as a process; killed at the end."""

    def __init__(self, dsn: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "tests.views.feed_consumer", dsn])

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


if __name__ == "__main__":
    consume(sys.argv[1])
