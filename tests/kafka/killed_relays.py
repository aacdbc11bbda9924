"""Relays in processes of their own, which are killed and frozen.

    python -m tests.kafka.killed_relays DSN BOOTSTRAP PREFIX UNTIL KILLS SEED

forks a relay, kills it after a random time, KILLS times, and lets the next one publish up to UNTIL. They are
forked, since starting Python costs more than a relay's life here.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import ledger
from consumers.kafka.cluster import Cluster
from consumers.kafka.relay.relay import Relay

LEASE = 0.4


def publish(dsn: str, bootstrap: str, prefix: str, until: int) -> None:
    """A relay in this process, with small blocks, so that a random moment is one within a block."""
    with ledger.connect(dsn) as log:
        relay = Relay(log, Cluster.of(bootstrap), prefix=prefix, partitions=3, block_events=60, lease=LEASE)
        relay.run(threading.Event(), until)


def forked(dsn: str, bootstrap: str, prefix: str, until: int) -> int:
    """The pid of a child that publishes; clients are made after the fork."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        publish(dsn, bootstrap, prefix, until)
        code = 0
    finally:
        os._exit(code)


def ended(pid: int) -> bool:
    """Whether a child is over; an error where it failed."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found and os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "a relay failed"
    return bool(found)


def main() -> None:
    dsn, bootstrap, prefix, until, kills, seed = sys.argv[1:]
    chance, killed = random.Random(int(seed)), 0
    while killed < int(kills):
        pid = forked(dsn, bootstrap, prefix, int(until))
        time.sleep(chance.uniform(0.2, 1.2))
        if ended(pid):
            break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        killed += 1
    else:
        pid = forked(dsn, bootstrap, prefix, int(until))
        assert os.waitpid(pid, 0)[1] == 0, "the last relay failed"
    print(killed)


if __name__ == "__main__":
    main()
