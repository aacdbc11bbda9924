"""SIGKILL of the server right after a receipt: every frame before it is in the log."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from tests.runs.raw_socket import RawSocket
from tests.runs.sockets.conftest import Served
from tests.runs.sockets.events_server import main

FRAMES = 150
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.runs.sockets.events_server"])


@contextmanager
def server(dsn: str, manner: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server as a process: its address, and what kills it. eager: it answers when a question arrives."""
    told, tell = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=main, args=(dsn, manner, tell))
    process.start()
    try:
        yield told.recv(), process.kill
    finally:
        process.kill()
        process.join()
        process.close()
        told.close()
        tell.close()


def recorded(served: Served, manner: str, lamp: str) -> list[int]:
    """How many frames are in the log of a client that pinged, and of one that closed.

    The server is killed as soon as both have their receipts.
    """
    questions = [Ping(payload=b"all?"), CloseConnection(code=1000)]
    with server(served.log.address.conninfo, manner) as (url, kill):
        sockets = [RawSocket(url, "/events/in") for _ in questions]
        for nth, one in enumerate(sockets):
            one.log_in()
            readings = [json.dumps({"lamp": f"{lamp}-{nth}", "value": n}) for n in range(FRAMES)]
            one.put(*[TextMessage(data=text) for text in readings], questions[nth])
        receipts = [one.event() for one in sockets]
        kill()
    assert [type(one) for one in receipts] == [Pong, CloseConnection]
    return [len(served.read(f"{lamp}-{nth}")) for nth in range(len(questions))]


def test_what_has_a_receipt_survives(served: Served, lamp: str) -> None:
    assert recorded(served, "ordered", lamp) == [FRAMES, FRAMES]


def test_control_a_server_that_answers_at_once_loses_what_has_a_receipt(served: Served, lamp: str) -> None:
    assert sum(recorded(served, "eager", lamp)) < 2 * FRAMES
