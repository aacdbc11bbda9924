"""What a process does before it dies: `python -m tests.pipelines.doomed SIDE DSN DEED`."""

from __future__ import annotations

import os
import signal
import sys
import time

import ledger
from ledger.pipelines import LSMProjectId, LSMStripId, OCTSliceId
from tests.pipelines.sides import Origin, Ours, Side

PROJECT, STRIP, SLICE = LSMProjectId("p"), LSMStripId("p", 1, 1, 2), OCTSliceId("p", 1)


def die() -> None:
    """As of a power cut: nothing of ours runs after this."""
    os.kill(os.getpid(), signal.SIGKILL)


def made(side: str, dsn: str) -> Side:
    return Origin(dsn, die) if side == "Origin" else Ours(ledger.connect(dsn, actor="doomed"), dsn, die)


def do(side: Side, deed: str) -> None:
    """Do it. `hold` and `work` say when they are there, and wait to be killed."""
    match deed:
        case "hold":
            with side.lsm.open_item(PROJECT):
                print("there", flush=True)
                time.sleep(600)
        case "work":
            side.enter_flow(None, STRIP)
            print("there", flush=True)
            time.sleep(600)
        case "process":
            side.process_strip(STRIP)
        case "compress":
            side.compress_strip(STRIP)
        case "register":
            side.register_slice(SLICE)


if __name__ == "__main__":
    do(made(*sys.argv[1:3]), sys.argv[3])
