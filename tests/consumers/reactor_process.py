"""The readiness reactor as a process: `python -m tests.consumers.reactor_process DSN`, until it is killed."""

from __future__ import annotations

import logging
import sys

import ledger
from consumers.pipelines import readiness

if __name__ == "__main__":
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    with ledger.connect(sys.argv[1], actor="reacting") as log:
        reactor = readiness(log)
        with reactor:
            print("ready", flush=True)
            assert reactor._thread is not None
            while reactor._thread.is_alive():
                reactor._thread.join(1)
