"""Processes that keep views: `python -m tests.faults.view_processes projector|rebuilder DSN`."""

from __future__ import annotations

import random
import sys
import time

import ledger
from ledger import BeingBuilt, ServerUnavailable
from projections.engine.projector import Projector
from projections.engine.rebuild import rebuild
from tests.faults.tally import watched


def main() -> None:
    """Do one of the two for ever; a server that is away is waited for."""
    work = {"projector": project, "rebuilder": build}[sys.argv[1]]
    while True:
        try:
            with ledger.connect(sys.argv[2], create=False, timeout=5) as log:
                print("ready", flush=True)
                work(log)
        except ServerUnavailable:
            time.sleep(0.05)


def project(log: ledger.Ledger) -> None:
    """Follow with all views, in batches small enough to be killed between any two."""
    Projector(log, watched(), batch=200).run()


def build(log: ledger.Ledger) -> None:
    """Rebuild one view after the other."""
    while True:
        view = random.choice(watched())
        try:
            rebuild(log, view, batch=random.choice((7, 60, 5000)))
        except BeingBuilt:  # the server has not seen yet that the one before was killed
            time.sleep(0.05)


if __name__ == "__main__":
    main()
