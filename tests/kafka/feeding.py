"""A feed into the schema `copies`, to be killed: `python -m tests.kafka.feeding DSN KAFKA PREFIX`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ledger
from consumers.kafka.cluster import Cluster
from consumers.kafka.feed import KafkaFeed
from projections.engine.projector import views_named
from tests.lamp import LampMade

assert LampMade is not None  # its statuses are announced
VIEWS = ["in_state", "progress", "activity", "lsm_items", "jobs", "work"]


@contextmanager
def feeding(dsn: str, bootstrap: str, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process, while the block runs."""
    words = [sys.executable, "-m", "tests.kafka.feeding", dsn, bootstrap, prefix]
    with subprocess.Popen(words) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    with ledger.connect(sys.argv[1], schema="copies", actor="feed") as log:
        KafkaFeed(log, views_named(VIEWS), Cluster.of(sys.argv[2]), sys.argv[3]).run(threading.Event())
