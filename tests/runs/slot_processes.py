"""Processes that take slots, and that take them back from others; to be killed at any moment."""

from __future__ import annotations

import os
import random
import time

import ledger
from consumers.runs.slot_leases import SlotLeases
from ledger.runs.limits import Limits, Taken

SECONDS = 0.3
"""How long a lease lasts: so short that some run out while their holders live."""


def a_holder(dsn: str, names: list[str], seed: int) -> None:
    """Takes slots of some limits, renews them, gives them back, for ever."""
    os.setsid()
    chance = random.Random(seed)
    with ledger.connect(dsn, actor="holder") as log:
        limits = Limits(log)
        while True:
            some = chance.sample(names, chance.randint(1, len(names)))
            answer = limits.increment(some, chance.randint(1, 2), lease_seconds=SECONDS)
            if not isinstance(answer, Taken) or answer.lease is None:
                continue
            for _ in range(chance.randint(0, 3)):
                time.sleep(chance.random() * SECONDS * 1.2)
                if not limits.renew(answer.lease, SECONDS):
                    break
            limits.release(answer.lease)


def a_service(dsn: str) -> None:
    """Gives back the slots of leases that ran out, for ever."""
    os.setsid()
    with ledger.connect(dsn, actor="service") as log:
        service = SlotLeases(log)
        while True:
            service.run_once()
            time.sleep(0.02)
