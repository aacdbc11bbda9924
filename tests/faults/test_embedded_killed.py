"""An embedded server that was killed is started again by clients that run; one that was stopped is not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import ledger
from ledger import Body, Ledger, ServerUnavailable
from ledger.embedded import Embedded
from tests.faults.conftest import eventually, is_free


@pytest.fixture
def server(home: Path) -> Iterator[Embedded]:
    server = Embedded(home)
    yield server
    server.stop(immediate=True)


def killed(server: Embedded) -> int:
    """Kill its first process, as nobody would who wants it to end, and wait until the others followed.

    Until then a backend still answers whoever is connected to it, and nobody misses the server.
    """
    pid = server.postmaster_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_free(server.home / "server.lock"))
    return pid


def appended(log: Ledger) -> None:
    """Append one event, under a command id: an append whose answer was lost is repeated, and stored once.

    Every connection that was open may be lost in its turn, so one repetition by hand would not be enough.
    """
    log.append("killed/1", Body("killed.again", 1, "{}"), command=str(uuid4()))


def test_a_client_that_runs_starts_it_again(server: Embedded) -> None:
    """Several threads at once, with connections that were open and with new ones; again and again."""
    with ledger.connect(server.printable, actor="x") as log:
        appended(log)
        for _ in range(2):
            before = killed(server)
            threads = [threading.Thread(target=appended, args=[log]) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(90)
            assert server.postmaster_pid() not in (None, before)
        assert log.head("killed/1").version == 7  # type: ignore[union-attr]


def test_one_that_was_stopped_stays_so(server: Embedded) -> None:
    with ledger.connect(server.printable, actor="x", timeout=0.5) as log:
        appended(log)
        server.stop()
        with pytest.raises(ServerUnavailable):
            log.head("killed/1")
        assert server.postmaster_pid() is None
        assert not server.start_again()
        server.acquire()
        appended(log)
