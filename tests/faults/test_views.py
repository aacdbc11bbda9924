"""Projectors, rebuilds and the server are killed at random; in the end every view is what the log says."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from ledger import Ledger, Recorded, ServerUnavailable
from ledger.builds import OpenRun, OpenStage
from ledger.embedded import Embedded
from ledger.jobs import Jobs
from ledger.log.install import init
from ledger.runs import FlowRuns, Records, TaskRuns
from ledger.runs.states import running
from projections.engine.projector import Projector, views_named
from projections.engine.rebuild import rebuild
from projections.shipped import load
from projections.verify import rebuild_commands, rebuild_heads
from tests.faults.conftest import CHILD_PATH, eventually
from tests.faults.crashes import crash
from tests.faults.tally import watched
from tests.fork_server import python
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn

load()
Connection = psycopg.Connection[Any]
FACTS = (LampMade(), LampSwitchedOn(), LampRead(value=1), LampBroke(reason="old"))


WHERE = """
SELECT v.name, v.live, c.copy, c.position, c.building, c.events
  FROM ledger.views v JOIN ledger.view_copies c ON c.view = v.name
"""


class Doomed:
    """A process that keeps views, killed and started again."""

    def __init__(self, role: str, dsn: str) -> None:
        self.role, self.dsn, self.kills = role, dsn, 0
        self.start()

    def start(self) -> None:
        command = [*python(), "-m", "tests.faults.view_processes", self.role, self.dsn]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={"PYTHONPATH": CHILD_PATH}, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.kills += 1


@contextlib.contextmanager
def writing(log: Ledger, writers: int) -> Iterator[None]:
    """Threads that append to a few streams each; what the server lost with its answer is appended again."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def write(number: int) -> None:
        dice, serial = random.Random(number), 0
        while not stop.is_set():
            serial += 1
            events = dice.choices(FACTS, k=dice.choice((1, 1, 1, 4)))
            try:
                log.append(f"lamp/{number}-{dice.randrange(20)}", *events, command=f"{number}-{serial}")
            except ServerUnavailable:
                time.sleep(0.02)
            except BaseException as error:
                faults.append(error)
                return
            if serial % 50 == 0:
                time.sleep(0.01)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults


def survive(
    server: Embedded, log: Ledger, go_on: Callable[[int], bool], seed: int, first: Sequence[int] = ()
) -> dict[str, int]:
    """Kill this and that again and again under writers, and compare the views with the log.

    first: who is killed first, by number; 8 is the server.
    """
    waiting = iter(first)
    dice, crashes = random.Random(seed), 0
    doomed = [Doomed("projector", log.address.conninfo), Doomed("projector", log.address.conninfo)]
    doomed.append(Doomed("rebuilder", log.address.conninfo))
    with writing(log, 3):
        while go_on(crashes + sum(one.kills for one in doomed)):
            time.sleep(dice.random() * 0.25)
            victim = next(waiting, dice.randrange(9))
            if victim == 8:
                crash(server)
                crashes += 1
                eventually(lambda: _answers(log), 60)
            else:
                doomed[victim % 3].kill()
                doomed[victim % 3].start()
    for one in doomed:
        one.kill()
    # An append whose client lost it in a crash may hold the bound back for a moment, and record nothing.
    eventually(lambda: set(Projector(log, watched()).catch_up().values()) == {_last(log)})
    events = check(log)
    return {"server": crashes, "projectors": doomed[0].kills + doomed[1].kills, "rebuilders": doomed[2].kills,
            "events": events}  # fmt: skip


def _last(log: Ledger) -> int:
    """The position of the last event."""
    with psycopg.connect(log.address.conninfo) as connection:
        ((position,),) = connection.execute("SELECT max(position) FROM ledger.events").fetchall()
    return int(position)


def _answers(log: Ledger) -> bool:
    try:
        return log.bound() >= 0
    except ServerUnavailable:
        return False


def check(log: Ledger) -> int:
    """Every view equals a plain fold of the log that knows none of their code; returns how many events."""
    events = [row for at in range(0, log.bound(), 1000) for row in log.log(at, min(at + 1000, log.bound()))]
    with psycopg.connect(log.address.conninfo) as connection:
        where = connection.execute(WHERE).fetchall()
        assert shown(connection, "seen_once") == tallied(events), (
            f"applied twice, or skipped: {where}, {log.bound()}"
        )
        assert shown(connection, "in_state", "stream, status, version, position") == states(events)
        assert shown(connection, "activity", "actor, category, sum(events)", "1, 2") == active(events)
        parked = connection.execute("SELECT count(*) FROM ledger.view_parked").fetchone()
    assert parked == (0,)
    return len(events)


def shown(connection: Connection, view: str, columns: str = "*", group: str = "") -> list[tuple[Any, ...]]:
    """The rows that readers see."""
    by = f" GROUP BY {group}" if group else ""
    return sorted(connection.execute(f"SELECT {columns} FROM ledger_views.{view}{by}").fetchall())


def tallied(events: list[Recorded]) -> list[tuple[str, int, Decimal]]:
    """Events and sum of positions by stream."""
    many = Counter(event.stream for event in events)
    positions: Counter[str] = Counter()
    for event in events:
        positions[event.stream] += event.position
    return sorted((stream, number, Decimal(positions[stream])) for stream, number in many.items())


def states(events: list[Recorded]) -> list[tuple[str, str, int, int]]:
    """The last move of each stream."""
    leads = {"lamp.made": "made", "lamp.switched_on": "on", "lamp.broke": "broken"}
    found = {e.stream: (e.stream, leads[e.topic], e.version, e.position) for e in events if e.topic in leads}
    return sorted(found.values())


def active(events: list[Recorded]) -> list[tuple[str, str, Decimal]]:
    """How many events each actor made, by category."""
    many = Counter((event.meta.actor or "", event.stream.split("/")[0]) for event in events)
    return sorted((actor, category, Decimal(number)) for (actor, category), number in many.items())


@pytest.mark.slow
def test_killed_at_random_every_view_is_what_the_log_says(durable: Embedded, hardy: Ledger) -> None:
    order = random.sample((0, 2, 8), 3)
    survive(durable, hardy, lambda kills: kills < 3, seed=random.randrange(2**20), first=order)


@pytest.mark.slow
def test_hundreds_of_kills_of_projectors_rebuilds_and_server(
    durable: Embedded, hardy: Ledger, minutes: float
) -> None:
    end = time.monotonic() + 60 * minutes
    figures = survive(
        durable, hardy, lambda kills: kills < 200 or time.monotonic() < end, seed=random.randrange(2**20)
    )
    print(f"\nviews: {figures}")


SHIPPED = (
    "activity", "build_runs", "build_stages", "flow_runs", "in_state", "jobs", "lsm_items", "progress",
    "psoct_items", "run_records", "task_runs", "work",
)  # fmt: skip
"""Not those of pipelines that other tests declare."""


def everything(connection: Connection) -> dict[str, list[str]]:
    """All that is derived, row by row as text: the views, the heads, the commands."""
    tables = [f"ledger_views.{table}" for view in views_named(SHIPPED) for table in view.table_names]
    found = {}
    for table in [*tables, "ledger.heads", "ledger.commands"]:
        rows = connection.execute(f'SELECT t::text FROM {table} t ORDER BY t::text COLLATE "C"')
        found[table] = [row for (row,) in rows]
    return found


def test_all_that_is_derived_can_be_dropped_and_comes_back_the_same(
    log: Ledger, admin_dsn: str, connection: Connection
) -> None:
    from tests.benchmarks.mixed_log import fill
    from tests.jobs.history import history, record

    fill(log, 3000, writers=1)
    chance = random.Random(8)
    record(log, history(chance, jobs=30), chance)
    Jobs(log).pause("q")
    Jobs(log).limit("embed", concurrency=2)
    with log.open_all(OpenStage("p", "s"), OpenRun("p", "r")) as (stage, run):
        stage.claim("a runner", "r")
        run.start([], ["s"])
    flow = Records(log).create("flow", {"name": "f"})
    flow_run, _ = FlowRuns(log).create(flow.id, state=running())
    TaskRuns(log).create("t", "0", flow_run_id=flow_run.id)
    Projector(log, views_named(SHIPPED)).catch_up()
    before = everything(connection)
    assert all(before.values()), [table for table, rows in before.items() if not rows]
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "TRUNCATE ledger.views, ledger.view_copies, ledger.view_parked, ledger.heads, ledger.commands"
        )
        admin.execute("DROP SCHEMA ledger_views CASCADE")
    init(connection)
    for view in views_named(SHIPPED):
        rebuild(log, view, batch=random.randrange(1, 500))
    rebuild_heads(log)
    rebuild_commands(log)
    assert everything(connection) == before
