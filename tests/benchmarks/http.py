"""
Requests of the server that one process answers: `dev.py bench http`.

    events_per_second   GET /jobs/{id}/events, of a job with ten events, by sixteen clients that keep their
                        connections and send the next request when they have the answer
    events_p50_ms, events_p99_ms
                        from the request to the last byte of its answer
    events_cpu_ms       processor time of the server's process for each: it bounds the rate on a machine that
                        has room for PostgreSQL and the clients besides
    health_…            GET /healthz likewise: what the server costs without the ledger

The server, PostgreSQL and the clients share the machine. The clients are one process on uvloop, which only
looks for the end of an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import uvloop

import ledger
from ledger.embedded import throwaway
from ledger.jobs import Jobs
from ledger.jobs.job import OpenJob
from ledger.tokens import Role, Tokens

ROOT = Path(__file__).parents[2]
CLIENTS = 16


class Client(asyncio.Protocol):
    """A client that sends a request again as soon as it has the answer; times: of each, in seconds."""

    def __init__(self, request: bytes, until: float) -> None:
        self.request, self.until = request, until
        self.times: list[float] = []
        self.done = asyncio.get_running_loop().create_future()
        self._read = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's is none of asyncio's
        self._next()

    def _next(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        if head < 0:
            return
        start = self._read.index(b"content-length: ") + 16
        length = int(self._read[start : self._read.index(b"\r", start)])
        if len(self._read) < head + 4 + length:
            return
        assert self._read.startswith(b"HTTP/1.1 200"), bytes(self._read[:200])
        now = time.perf_counter()
        self.times.append(now - self._began)
        self._read.clear()
        if now < self.until:
            self._next()
        else:
            self._transport.close()
            self.done.set_result(None)


async def measured(url: str, path: str, token: str, seconds: float) -> list[float]:
    """The times of all requests of all clients, sorted."""
    place = urlsplit(url)
    request = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    made = [await loop.create_connection(lambda: Client(request, until), place.hostname, place.port)
            for _ in range(CLIENTS)]  # fmt: skip
    await asyncio.gather(*(client.done for _, client in made))
    return sorted(one for _, client in made for one in client.times)


@contextmanager
def server(dsn: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server on this ledger: its address, and its process."""
    command = [sys.executable, "-m", "gateway.cli.main", "--dsn", dsn, "--quiet", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def job_with_events(log: ledger.Ledger) -> str:
    """A job that was claimed, reported eight times, and is done."""
    id = Jobs(log).submit("bench", {"n": 1}, queue="bench")
    with log.open(OpenJob, id) as job:
        job.start("bench")
        for nth in range(7):
            job.report("progress", message=f"part {nth}", fields={"part": nth})
        job.succeed({"n": 1})
    return id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each is measured")
    seconds = parser.parse_args().seconds
    figures: dict[str, float] = {}
    with throwaway(durable=True) as postgres, ledger.connect(postgres.dsn(), create=True) as log:
        token, _ = Tokens(log).add("bench", Role.READER)
        path = f"/jobs/{job_with_events(log)}/events"
        with (
            server(postgres.dsn()) as (url, process),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            for name, where in (("events", path), ("health", "/healthz")):
                runner.run(measured(url, where, token, 1.0))
                before = sum(process.cpu_times()[:2])
                times = runner.run(measured(url, where, token, seconds))
                used = sum(process.cpu_times()[:2]) - before
                figures[f"{name}_cpu_ms"] = round(used / len(times) * 1000, 3)
                figures[f"{name}_per_second"] = round(len(times) / seconds, 1)
                figures[f"{name}_p50_ms"] = round(times[len(times) // 2] * 1000, 2)
                figures[f"{name}_p99_ms"] = round(times[len(times) * 99 // 100] * 1000, 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
