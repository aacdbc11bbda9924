"""
Heartbeats of flow runs: a run whose client has sent some, and sends no more, is nominated as crashed.

    Heartbeats(log).received({flow_run_id: occurred})

A client does not say how often it sends one. So the interval is the longest between two of a run, by the
client's own clock: neither a late delivery nor a new attempt makes it shorter. The lease of a run lasts three
intervals (spec W3-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ..log.ledger import Ledger
from .leases import SQL, LeaseKind

INTERVALS: Final = 3.0
"""How many intervals a lease of a flow run lasts."""
SHORTEST: Final = 30.0
"""Seconds: clients send no heartbeats more often (Prefect's MINIMUM_HEARTBEAT_INTERVAL)."""
UNKNOWN: Final = 600.0
"""Seconds that count as the interval until a second heartbeat has come; a client's default is 180."""


class Heartbeats:
    """The heartbeats of flow runs. Needs the writer's role."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def received(self, last: Mapping[str, datetime]) -> None:
        """Renew the leases of flow runs: the time of the last heartbeat of each, by its client's clock."""
        if last:
            self.ledger.query(
                SQL.beat,
                kind=LeaseKind.FLOW_RUN.value,
                keys=list(last),
                occurred=list(last.values()),
                first=INTERVALS * UNKNOWN,
                intervals=INTERVALS,
                shortest=SHORTEST,
            )
