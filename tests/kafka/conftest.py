"""A real broker of one node for every test of Kafka, shared by all processes of the run.

LEDGER_KAFKA names an existing cluster instead; LEDGER_KAFKA=none leaves these tests out.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from consumers.kafka.broker import Broker
from tests.kafka.keeper import ADDRESS, CLIENTS, FAILURE, START

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 300.0
"""Seconds that the broker may take: the first one on a machine is downloaded."""
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class SharedBroker:
    """A broker that other tests use at the same time: nobody kills it, and each has names of its own."""

    bootstrap: str


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """The broker of this run; topics begin with `kafka_name`. Who kills nodes takes an `own_broker`."""
    named = os.environ.get("LEDGER_KAFKA")
    if named == "none":
        pytest.skip("LEDGER_KAFKA=none leaves the tests of Kafka out")
    if named:
        yield SharedBroker(named)
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "kafka"
    folder.mkdir(exist_ok=True)
    with using(folder) as address:
        yield SharedBroker(address)


@contextmanager
def using(folder: Path) -> Iterator[str]:
    """The address of the broker that the keeper in this folder runs; it is started if it does not run."""
    with (folder / CLIENTS).open("a") as clients:
        fcntl.flock(clients, fcntl.LOCK_SH)  # waits while a keeper ends, whose last client has gone
        with (folder / START).open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            address = folder / ADDRESS
            if not address.exists():
                _start_keeper(folder)
        yield address.read_text()


def _start_keeper(folder: Path) -> None:
    with (folder / "keeper.out").open("ab") as out:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.keeper", str(folder)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + LIMIT
    while not (folder / ADDRESS).exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            failure, out_file = folder / FAILURE, folder / "keeper.out"
            pytest.fail(failure.read_text() if failure.exists() else out_file.read_text())
        time.sleep(0.02)
    # It ends by itself, after us: that is no forgotten child.
    keeper.returncode = 0


@pytest.fixture
def kafka_name() -> str:
    """A name of this test's own: the prefix of its topics, groups and transactional ids."""
    return f"t{os.getpid()}-{time.time_ns() % 10**9}-{next(_numbers)}"


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker of one node of this test's own, to be killed and frozen."""
    with Broker() as started:
        yield started
