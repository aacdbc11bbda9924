"""A relay for tests: publishes what the log has, or goes on in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from consumers.kafka.cluster import Cluster
from consumers.kafka.relay.relay import Relay
from ledger import Ledger

PARTITIONS = 3


def relay_all(log: Ledger, cluster: Cluster, prefix: str, **options: Any) -> Relay:
    """Publish all that the log has now."""
    relay = Relay(log, cluster, prefix=prefix, **{"partitions": PARTITIONS, **options})
    relay.run(threading.Event(), until=log.bound())
    return relay


@contextmanager
def relaying(log: Ledger, cluster: Cluster, prefix: str, **options: Any) -> Iterator[Relay]:
    """A relay that runs while the block does."""
    relay, stop = (
        Relay(log, cluster, prefix=prefix, **{"partitions": PARTITIONS, **options}),
        threading.Event(),
    )
    failed: list[BaseException] = []

    def run() -> None:
        try:
            relay.run(stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
    assert not failed
