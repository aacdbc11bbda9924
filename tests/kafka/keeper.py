"""Keeps one broker for all processes of a test run, and ends with the last of them.

    python -m tests.kafka.keeper FOLDER

A process of the run holds a shared lock on FOLDER/clients.lock while it uses the broker; the kernel drops the
lock however the process ends. FOLDER/address gets the broker's address, FOLDER/failure what went wrong.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from consumers.kafka.broker import Broker
from ledger.errors import KafkaUnavailable

CLIENTS, START, ADDRESS, FAILURE = "clients.lock", "start.lock", "address", "failure"


def main(folder: Path) -> None:
    """Start a broker, say where it is, end it when nobody holds the lock."""
    with (folder / CLIENTS).open("a") as clients:
        try:
            with Broker() as broker:
                write(folder / ADDRESS, broker.bootstrap)
                fcntl.flock(clients, fcntl.LOCK_EX)
                (folder / ADDRESS).unlink(
                    missing_ok=True
                )  # before the lock is free: nobody uses a dead broker
        except KafkaUnavailable as error:
            write(folder / FAILURE, str(error))


def write(file: Path, text: str) -> None:
    """Make the file, whole or not at all."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
