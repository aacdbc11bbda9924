"""
Runs on the ledger beside Prefect's own server, on one PostgreSQL: `dev.py bench runs`.

    set_state_vs_prefect   set_state requests a second by eight connections, to RUNNING and to COMPLETED: ours
                           by Prefect's
    events_in_vs_prefect   events a second over four sockets of /events/in, from the first frame until all are
                           in the database: ours are when the close is answered; of Prefect's server, which
                           answers before, the rows of its states are counted
    flow_runs_vs_prefect   flow runs of five tasks a second by two processes of the real client
    memory_vs_prefect      memory after all that (the proportional set size of the server's processes)
    set_state_p50_ms, set_state_p99_ms, prefect_set_state_p50_ms, …
                           from a request to the end of its answer

The servers take turns in each round; a ratio is the median of the rounds'. Prefect's server needs pg_trgm,
which the binaries of the embedded server lack: an installed PostgreSQL that has it is used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psutil
import psycopg
import uvloop

from ledger.log.install import init
from tests.prefect import servers
from tests.prefect.clients import PROGRAMS, VERSIONS, python_of, told
from tests.runs.given_frames import Client
from tests.runs.raw_socket import raw_socket

CONNECTIONS, SOCKETS, PROCESSES = 8, 4, 2
OURS, PREFECT = "ledger", "prefect"
QUIET = {"PREFECT_LOGGING_LEVEL": "ERROR"}
PROGRAM = PROGRAMS / "five_tasks.py"


class Side:
    """One of the two servers, and how it is loaded."""

    def __init__(self, server: servers.Server, dsn: str, recorded: str) -> None:
        self._server, self._dsn, self._recorded = server, dsn, recorded
        self._api = httpx.Client(base_url=server.url, timeout=60)
        self.flow = self._made("flows", {"name": "bench"})

    def _made(self, kind: str, body: dict[str, Any]) -> str:
        answer = self._api.post(f"/{kind}/", json=body)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def run(self) -> str:
        """A new flow run that waits to begin: its id."""
        return self._made("flow_runs", {"flow_id": self.flow, "state": {"type": "PENDING"}})

    def set_states(self, many: int) -> tuple[float, list[float]]:
        """Requests a second, and the seconds of each."""
        runs = [self.run() for _ in range(many)]
        return uvloop.run(_set_states(self._server.url, runs))

    def events_in(self, tasks: int) -> float:
        """Events a second until all are in the database, of so many tasks on each socket."""
        run = self.run()
        messages = [_frames(run, tasks) for _ in range(SOCKETS)]
        before, many = self._count(), sum(map(len, messages))
        writers = [threading.Thread(target=self._write, args=[one]) for one in messages]
        begin = time.perf_counter()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        while (found := self._count() - before) < many:
            assert time.perf_counter() - begin < 120, f"{found} of {many} events were recorded"
            time.sleep(0.02)
        return many / (time.perf_counter() - begin)

    def _write(self, messages: list[str]) -> None:
        with raw_socket(self._server.url, "/api/events/in", seconds=120) as one:
            one.log_in()
            for at in range(0, len(messages), 50):
                one.send(*messages[at : at + 50])
            one.close()

    def _count(self) -> int:
        with psycopg.connect(self._dsn) as connection:
            (found,) = connection.execute(self._recorded).fetchone() or (0,)  # type: ignore[call-overload]
        return int(found)

    def flow_runs(self, many: int) -> float:
        """Flow runs a second of several processes of the real client."""
        with tempfile.TemporaryDirectory() as folder:
            running = [
                subprocess.Popen(
                    [python_of(VERSIONS[0]), PROGRAM, str(many)], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env=told(Path(folder, str(number)), self._server.url) | QUIET,
                )
                for number in range(PROCESSES)
            ]  # fmt: skip
            ended = [process.communicate(timeout=300) for process in running]
        assert not any(process.returncode for process in running), ended
        return sum(many / float(said) for said, _ in ended)

    def memory(self) -> float:
        """MiB that its processes keep."""
        first = psutil.Process(self._server.pid)
        return sum(one.memory_full_info().pss for one in (first, *first.children(recursive=True))) / 2**20


def _frames(run: str, tasks: int) -> list[str]:
    """What a client says of so many tasks that begin and end."""
    made: list[str] = []
    for number in range(tasks):
        client = Client(flow_run_id=run, start=datetime.now(UTC), name=f"double-{number}")
        made += map(json.dumps, client.reports("Pending", "Running", "Completed"))
    return made


async def _set_states(url: str, runs: list[str]) -> tuple[float, list[float]]:
    """Move every run to RUNNING and COMPLETED over several connections, each with one request at a time."""
    place, times = urlsplit(url), list[float]()

    async def work(mine: list[str]) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for run in mine:
            for name in ("RUNNING", "COMPLETED"):
                request = _request(place.netloc, f"{place.path}/flow_runs/{run}/set_state", name)
                begin = time.perf_counter()
                writer.write(request)
                await _answered(reader)
                times.append(time.perf_counter() - begin)
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(work(runs[number::CONNECTIONS]) for number in range(CONNECTIONS)))
    return len(times) / (time.perf_counter() - begin), times


def _request(host: str, path: str, name: str) -> bytes:
    details = {"transition_id": str(uuid4())}
    state = {"type": name, "name": name.capitalize(), "state_details": details}
    body = json.dumps({"state": state, "force": False}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answered(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    assert head.startswith(b"HTTP/1.1 201"), head + body


@contextmanager
def both() -> Iterator[dict[str, Side]]:
    """The two servers on one PostgreSQL, each with a database of its own."""
    folder = tempfile.TemporaryDirectory()
    with folder as place, servers.postgres_for_prefect(durable=True) as postgres:
        with servers.database(postgres) as ours, servers.database(postgres) as theirs:
            with psycopg.connect(ours, autocommit=True) as connection:
                init(connection)
            with (
                servers.ours(ours, Path(place, "ours")) as here,
                servers.own(VERSIONS[0], theirs, Path(place, "own")) as there,
            ):
                yield {
                    OURS: Side(here, ours, RECORDED_HERE),
                    PREFECT: Side(there, theirs, "SELECT count(*) FROM task_run_state"),
                }


RECORDED_HERE = "SELECT count(*) FROM ledger.events WHERE topic LIKE 'task\\_run.state%'"


def in_turns(sides: dict[str, Side], rounds: int, work: Callable[[Side], float]) -> dict[str, list[float]]:
    """The rates of both sides in each round; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            rate = work(side)
            if number:
                found[name].append(rate)
    return found


def figures_of(name: str, rates: dict[str, list[float]]) -> dict[str, float]:
    """The medians of both sides, and of their ratio."""
    ratios = [ours / theirs for ours, theirs in zip(rates[OURS], rates[PREFECT], strict=True)]
    return {
        f"{name}_per_second": round(statistics.median(rates[OURS]), 1),
        f"prefect_{name}_per_second": round(statistics.median(rates[PREFECT]), 1),
        f"{name}_vs_prefect": round(statistics.median(ratios), 2),
    }


def measured(sides: dict[str, Side], parts: set[str], rounds: int, size: float) -> dict[str, float]:
    """All figures of these parts."""
    figures: dict[str, float] = {}
    times: dict[str, list[float]] = {name: [] for name in sides}

    def set_states(side: Side) -> float:
        rate, took = side.set_states(round(160 * size))
        times[OURS if side is sides[OURS] else PREFECT] += took
        return rate

    works: dict[str, Callable[[Side], float]] = {
        "set_state": set_states,
        "events_in": lambda side: side.events_in(round(100 * size)),
        "flow_runs": lambda side: side.flow_runs(round(8 * size)),
    }
    for name, work in works.items():
        if name in parts:
            figures |= figures_of(name, in_turns(sides, rounds, work))
            print(name, figures, file=sys.stderr)
    for name, took in times.items():
        for share in (50, 99) if took else ():
            label = f"set_state_p{share}_ms" if name == OURS else f"prefect_set_state_p{share}_ms"
            figures[label] = round(sorted(took)[len(took) * share // 100] * 1000, 2)
    kept = {name: side.memory() for name, side in sides.items()}
    figures |= {"memory_mib": round(kept[OURS], 1), "prefect_memory_mib": round(kept[PREFECT], 1)}
    return figures | {"memory_vs_prefect": round(kept[OURS] / kept[PREFECT], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="set_state, events_in, flow_runs; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=float, default=1.0, help="a factor of the work in each round")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    chosen = parser.parse_args()
    if not python_of(VERSIONS[0]).exists():
        sys.exit(
            "Prefect is not installed: `python3 dev.py test --prefect --collect-only` makes its environments"
        )
    try:
        with both() as sides:
            parts = set(chosen.parts) or {"set_state", "events_in", "flow_runs"}
            figures = measured(sides, parts, chosen.rounds, chosen.size)
    except LookupError as error:
        sys.exit(f"Prefect's own server cannot be started: {error}")
    print(json.dumps(figures, indent=None if chosen.json else 1))


if __name__ == "__main__":
    main()
