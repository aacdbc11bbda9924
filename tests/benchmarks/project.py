"""
What project state costs: reading a whole project, looking at a strip, marking strips from many processes.

On a project of 10,000 strips:

    read_project_vs_raw        the whole view, beside one raw query of the same rows that builds nothing
    peek_strip_vs_raw          one strip, beside a raw select by primary key
    strips_vs_independent_16   16 processes marking strips of one project through the service, locks and all,
                               beside 16 that mark as many unrelated streams through `ledger.open`
    strips_vs_projects_16      the same beside the same service with a project for each process
    ours_vs_one_row_16         the same beside the origin: one JSONB row of the whole project, loaded, changed
                               and saved under one lock

The first two are times, ours by theirs: smaller is better. The others are rates, ours by theirs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

import ledger
from ledger.embedded import Embedded, throwaway
from ledger.log import read
from ledger.log.install import init
from ledger.log.sql import run
from ledger.pipelines import LSM, LSMStateService, LSMStripState
from tests.benchmarks.rounds import Turn, median, rates, ratio

SLICES, CHANNELS, STRIPS = 10, 2, 500
MARKED = 100
"""Strips that a process marks in turn; all are there before anything is measured."""
PROJECT = "brain_7"
WAYS = ("strips", "independent", "projects", "one_row")
SCHEMA_OF_ORIGIN = """
CREATE TABLE project_state (project_type text, project_name text, state jsonb NOT NULL,
                            PRIMARY KEY (project_type, project_name))
"""
LOAD = "SELECT state FROM project_state WHERE project_type = 'lsm' AND project_name = %s"
SAVE = """
INSERT INTO project_state VALUES ('lsm', %s, %s)
ON CONFLICT (project_type, project_name) DO UPDATE SET state = excluded.state
"""
BY_KEY = "SELECT state FROM ledger.heads WHERE stream = %s"


def grow(service: LSMStateService, project: str, *, slices: int, channels: int, strips: int) -> None:
    """A project as a pipeline leaves it half-way."""
    for slice_id in range(1, slices + 1):
        with service.open_slice(project, slice_id=slice_id) as a_slice:
            for channel_id in range(1, channels + 1):
                for strip_id in range(1, strips + 1):
                    strip = a_slice.get_or_create_channel(channel_id).get_or_create_strip(strip_id)
                    strip.mark_started()
                    strip.set_compressed()


@dataclass(frozen=True)
class MarkingCrew:
    """The ways of marking a strip, and then the next one."""

    dsn: str
    strips: int

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        log = ledger.connect(self.dsn, create=False)
        service = LSMStateService(log)
        grow(service, f"own-{writer}", slices=1, channels=1, strips=self.strips)
        for strip_id in range(1, self.strips + 1):
            with log.open(LSMStripState, f"alone-{writer}", 1, 1, strip_id) as strip:
                strip.create()
        return {
            "strips": self.through(service, writer, PROJECT, writer % (SLICES * CHANNELS)),
            "independent": self.independent(log, writer),
            "projects": self.through(service, writer, f"own-{writer}", 0),
            "one_row": self.one_row(writer),
        }

    def through(self, service: LSMStateService, writer: int, project: str, place: int) -> Turn:
        slice_id, channel_id = place // CHANNELS + 1, place % CHANNELS + 1

        def turn(number: int) -> int:
            ids = {"slice_id": slice_id, "channel_id": channel_id, "strip_id": number % self.strips + 1}
            with service.open_strip(project, **ids) as strip:
                change(strip, number)
            return 1

        return turn

    def independent(self, log: ledger.Ledger, writer: int) -> Turn:
        def turn(number: int) -> int:
            with log.open(LSMStripState, f"alone-{writer}", 1, 1, number % self.strips + 1) as strip:
                change(strip, number)
            return 1

        return turn

    def one_row(self, writer: int) -> Turn:
        """The origin: lock, load on one connection, change, save in a transaction of its own, unlock."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        slice_id, channel_id = str(writer % SLICES + 1), str(writer // SLICES % CHANNELS + 1)

        def turn(number: int) -> int:
            connection.execute("SELECT pg_advisory_lock(4711)")
            try:
                ((state,),) = connection.execute(LOAD, [PROJECT]).fetchall()
                strips = state["slices"][slice_id]["channels"][channel_id]["strips"]
                strip = strips[str(number % self.strips + 1)]
                strip["processing_state"] = ("completed", "running")[number % 2]
                strip["updated_at"] = time.strftime("%Y-%m-%dT%H:%M:%S")
                with connection.transaction():
                    connection.execute(SAVE, [PROJECT, json.dumps(state)])
            finally:
                connection.execute("SELECT pg_advisory_unlock(4711)")
            return 1

        return turn


def change(strip: LSMStripState, number: int) -> None:
    """A mark, as a worker sets it: one event."""
    if number % 2:
        strip.mark_started()
    else:
        strip.mark_completed()


def looking(dsn: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way of looking, in turn, round by round."""
    found: dict[str, list[float]] = {"read": [], "read_raw": [], "peek": [], "peek_raw": []}
    with ledger.connect(dsn, create=False) as log, psycopg.connect(dsn, autocommit=True) as connection:
        service = LSMStateService(log)
        prefixes = ["lsm.project/brain-7", *(f"{kind.CATEGORY}/brain-7/" for kind in LSM[1:])]
        schemas = [kind.state_schema() for kind in LSM]
        strip = "lsm.strip/brain-7/3/1/44"

        def raw() -> None:
            run(connection, "ledger", read.SQL.states_below, prefixes=prefixes, state_schemas=schemas)

        def peek_raw() -> None:
            connection.execute(BY_KEY, [strip], prepare=True, binary=True).fetchall()

        def peek() -> None:
            service.peek_strip(PROJECT, slice_id=3, channel_id=1, strip_id=44)

        ways: list[tuple[str, Callable[[], Any], int]] = [
            ("read", lambda: service.read_project(PROJECT), 1), ("read_raw", raw, 1),
            ("peek", peek, 100), ("peek_raw", peek_raw, 100),
        ]  # fmt: skip
        for number in range(rounds + 1):
            for name, way, times in ways:
                begin = time.perf_counter()
                for _ in range(times):
                    way()
                if number:
                    found[name].append((time.perf_counter() - begin) / times)
    return found


def prepare(server: Embedded, sizes: dict[str, int]) -> str:
    """A database with the projects in it, ours and the origin's."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE project")
    dsn = server.dsn("project")
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection)
        connection.execute(SCHEMA_OF_ORIGIN)
    with ledger.connect(dsn) as log:
        service = LSMStateService(log)
        grow(service, PROJECT, **sizes)
        view = json.dumps(service.peek_project(PROJECT).to_dict())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SAVE, [PROJECT, view])
    with psycopg.connect(server.admin_dsn("project"), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return dsn


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures and ratios."""
    sizes = {"slices": SLICES, "channels": CHANNELS, "strips": arguments.strips}
    with throwaway(durable=True) as server:
        dsn = prepare(server, sizes)
        looked = looking(dsn, arguments.rounds * 3)
        crew = MarkingCrew(dsn, min(arguments.strips, MARKED))
        marked = rates(crew, WAYS, arguments.writers, arguments.rounds, arguments.seconds)
    n = arguments.writers
    return {
        "read_project_vs_raw": _times(looked, "read", "read_raw"),
        "peek_strip_vs_raw": _times(looked, "peek", "peek_raw"),
        f"strips_vs_independent_{n}": ratio(marked, "strips", "independent"),
        f"strips_vs_projects_{n}": ratio(marked, "strips", "projects"),
        f"ours_vs_one_row_{n}": ratio(marked, "strips", "one_row"),
        "figures": {
            "strips": SLICES * CHANNELS * arguments.strips,
            **{f"{name}_ms": round(1000 * statistics.median(times), 2) for name, times in looked.items()},
            **{f"{way}_per_s": median(marked[way]) for way in WAYS},
        },
    }


def _times(looked: Mapping[str, list[float]], ours: str, theirs: str) -> float:
    return round(statistics.median(a / b for a, b in zip(looked[ours], looked[theirs], strict=True)), 2)


def main() -> None:
    """Measure and print; the last line of stdout is JSON with --json."""
    parser = argparse.ArgumentParser(prog="dev.py bench project", description=__doc__.strip().split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way has its turn")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a turn of marking takes")
    parser.add_argument("--writers", type=int, default=16, help="processes that mark")
    parser.add_argument("--strips", type=int, default=STRIPS, help="strips a channel, of 20 channels")
    found = measure(parser.parse_args())
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name != "figures":
            print(f"{name:28} {value}")
    for name, value in found["figures"].items():
        print(f"  {name:26} {value}")


if __name__ == "__main__":
    main()
