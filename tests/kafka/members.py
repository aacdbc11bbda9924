"""
The processes of a campaign: relays and consumers that are killed and frozen.

They are forks of a server that has imported all that they need, since starting Python costs more than a life
of theirs. Clients and connections are made after the fork.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

import ledger
from consumers.kafka import Consumer, consumer
from consumers.kafka.cluster import Cluster
from consumers.kafka.relay.relay import Relay
from ledger import Recorded, ServerUnavailable

PREFIX, GROUP = "campaign", "effects"
PARTITIONS, LEASE = 3, 0.6
SESSION: Final = 1.5
"""Seconds after which a consumer that is gone is missed."""
IDLE: Final = 2.0
"""Seconds after which the server ends the transaction of a consumer that froze in it."""
EFFECT: Final = "INSERT INTO effects (position, stream, version) VALUES (%s, %s, %s)"
SETTINGS: Final[Sequence[dict[str, Any]]] = ({}, {"concurrency": 3}, {"instance": "third"})
"""What one consumer differs in from the other: one handles keys at once, one is a static member."""
FORKS = multiprocessing.get_context("forkserver")


class Member:
    """A relay or a consumer in a process, which is started again after it was killed.

    kind: `relay` or `consumer`. dsn: the ledger of a relay, the database of a consumer's effects.
    """

    def __init__(self, kind: str, number: int, dsn: str, bootstrap: str, folder: Path) -> None:
        self.kind, self.output = kind, folder / f"{kind}{number}.out"
        self._words = (kind, number, dsn, bootstrap, str(self.output))
        self._mutex = threading.Lock()
        self._start()

    def _start(self) -> None:
        FORKS.set_forkserver_preload([__name__])
        self.process = FORKS.Process(target=run, args=self._words, daemon=True)
        self.process.start()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def restart(self) -> None:
        """Kill it, and start another one."""
        with self._mutex:
            self.kill()
            self._start()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def demand_running(self) -> None:
        """No member may end by itself: each outage is to be waited for."""
        with self._mutex:
            code = self.process.exitcode
        if code is not None:
            said = self.output.read_text(errors="replace")[-3000:]
            raise AssertionError(f"a {self.kind} ended with {code}:\n{said}")


# In the process


def run(kind: str, number: int, dsn: str, bootstrap: str, output: str) -> None:
    """Be a member, until the campaign is gone."""
    with Path(output).open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    logging.basicConfig(format="%(asctime)s %(process)d %(name)s %(message)s", level=logging.WARNING)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    {"relay": _relay, "consumer": _consume}[kind](dsn, bootstrap, number)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _relay(dsn: str, bootstrap: str, _: int) -> None:
    """Blocks are small, so that a random moment is one within a block."""
    while True:  # a relay that starts while the server is away is started again by whoever watches it
        with suppress(ServerUnavailable), ledger.connect(dsn, actor="relay") as log:
            relay = Relay(
                log, Cluster(bootstrap), prefix=PREFIX, partitions=PARTITIONS, lease=LEASE, block_events=60
            )
            relay.run(threading.Event())
        time.sleep(0.2)


def _consume(dsn: str, bootstrap: str, number: int) -> None:
    @consumer(topics=[f"{PREFIX}.lamp"], group=GROUP, batch=True)
    def write_effects(events: Sequence[Recorded], transaction: psycopg.Connection[Any]) -> None:
        rows = [(event.position, event.stream, event.version) for event in events]
        transaction.cursor().executemany(EFFECT, rows)

    client = {"session_timeout_ms": int(SESSION * 1000), "heartbeat_interval_ms": 300}
    settings = SETTINGS[number % len(SETTINGS)]
    Consumer(Cluster(bootstrap), write_effects, dsn, idle=IDLE, client=client, batch=100, **settings).run()
