"""
A process with a scope of project state open: to be killed, interrupted, or to work at random.

    python -m tests.faults.scopers DSN hold STRIP      opens a strip of project p (0: all of it), stays
    python -m tests.faults.scopers DSN fork STRIP      the same, with a fork that stays too
    python -m tests.faults.scopers DSN work SEED       opens at random until its stdin is closed, with locks
    python -m tests.faults.scopers DSN rush SEED       the same without locks

A worker writes a line for each scope: `stored` or `conflict`.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from typing import Any

import ledger
from ledger import NO_LOCKS, StreamConflict
from ledger.pipelines import LSMStateService


def hold(service: LSMStateService, what: str, strip: int) -> None:
    """Open, change and stay; a fork stays beside it, and says its pid."""
    print("opens", flush=True)
    with (
        service.open_project("p")
        if strip == 0
        else service.open_strip("p", slice_id=1, strip_id=strip) as item
    ):
        item.mark_started()
        child = os.fork() if what == "fork" else None
        if child != 0:
            print("inside", child or "", flush=True)
        time.sleep(600)


def work(service: LSMStateService, dice: random.Random) -> None:
    """Scopes on all levels of one small project."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        scopes: list[Any] = [service.open_strip("p", slice_id=dice.randrange(2), strip_id=1)] * 3
        scopes += [service.open_slice("p", slice_id=dice.randrange(2)), service.open_project("p")]
        try:
            with dice.choice(scopes) as item:
                item.mark_started()
                if dice.random() < 0.3:
                    time.sleep(dice.random() * 0.02)
        except StreamConflict:
            print("conflict", flush=True)
        else:
            print("stored", flush=True)


def main() -> None:
    """As the arguments say."""
    dsn, what, number = sys.argv[1:]
    with ledger.connect(dsn, actor=f"scoper {number}") as log:
        service = LSMStateService(log, locks=NO_LOCKS if what == "rush" else None)
        if what in ("hold", "fork"):
            hold(service, what, int(number))
        else:
            work(service, random.Random(int(number)))


if __name__ == "__main__":
    main()
