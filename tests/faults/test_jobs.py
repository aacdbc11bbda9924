"""Workers, their children, reapers and the server are killed at random; every job comes to its end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import uuid4

import psutil
import psycopg
import pytest

from ledger import Ledger, ServerUnavailable
from ledger.embedded import Embedded
from ledger.errors import AppendUncertain
from ledger.jobs import Jobs
from projections.verify import verify
from tests.faults.conftest import CHILD_PATH, eventually
from tests.faults.crashes import crash
from tests.faults.jobs_oracle import Row, judge

Connection = psycopg.Connection[Any]
Log = tuple[list[Row], list[str], list[tuple[str, str, int]]]
AWAY = (ServerUnavailable, AppendUncertain)
SERVER: Final = -1


@pytest.fixture
def hardy(hardy: Ledger) -> Ledger:
    """With a table of the user's."""
    with psycopg.connect(hardy.address.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE stored (job text, nr text, token bigint)")  # no key: a double shows
    return hardy


class Doomed:
    """A process that works on jobs, killed and started again."""

    def __init__(self, role: str, dsn: str, lease: float) -> None:
        self.role, self.dsn, self.lease = role, dsn, str(lease)
        self.kills = Counter[str]()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.faults.job_processes", self.role, self.dsn, self.lease]
        self.process = subprocess.Popen(command, env={"PYTHONPATH": CHILD_PATH}, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.kills[self.role] += 1
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_a_child(self) -> None:
        """kill -9 of one of its operations' processes, or of whatever else it has begun."""
        with suppress(psutil.NoSuchProcess):
            if children := psutil.Process(self.process.pid).children(recursive=True):
                random.choice(children).send_signal(signal.SIGKILL)
                self.kills["child"] += 1


class Submitting(threading.Thread):
    """Submits jobs, each of them twice, in random order; cancels some."""

    def __init__(self, log: Ledger, jobs: int, parents: int, batches: int, waves: int) -> None:
        super().__init__(daemon=True)
        self.jobs, self.sizes, self.batches, self.waves = Jobs(log), (jobs, parents), batches, waves
        self.submitted: list[str] = []
        self.fault: BaseException | None = None
        self.more = threading.Event()

    def run(self) -> None:
        try:
            for _ in range(self.waves):
                self._wave()
        except BaseException as error:
            self.fault = error

    def _wave(self) -> None:
        jobs, parents = self.sizes
        budgets = {"max_attempts": 5, "max_requeues": 50}
        calls = [("small", {"n": n}, {"max_requeues": 1} if n % 10 == 0 else budgets) for n in range(jobs)]
        for n in range(parents):
            bad = {"bad": 0.9, "ratio": 0.3} if n % 5 == 4 else {"bad": 0.02, "ratio": 1.0}
            calls.append(("spread", {"batches": self.batches, "children": n % 3, **bad}, budgets))
        named = [(str(uuid4()), *call) for call in calls]
        for job, operation, payload, fields in random.sample(named * 2, 2 * len(named)):
            self._again(lambda j=job, o=operation, p=payload, f=fields: self._submit(j, o, p, f))
            if random.random() < 0.02:
                self._again(lambda j=job: self.jobs.cancel(j))
        self.submitted += [job for job, *_ in named]

    def _submit(self, job: str, operation: str, payload: Any, fields: Any) -> None:
        self.jobs.submit(operation, payload, id=job, command=f"submit:{job}", **fields)

    def _again(self, call: Callable[[], object]) -> None:
        """Until the server has said yes."""
        while True:
            try:
                call()
                return
            except AWAY:
                time.sleep(0.05)


@contextmanager
def at_work(log: Ledger, workers: int, services: int, lease: float) -> Iterator[list[Doomed]]:
    roles = ["worker"] * workers + ["services"] * services
    doomed = [Doomed(role, log.address.conninfo, lease) for role in roles]
    try:
        yield doomed
    finally:
        for one in doomed:
            one.end()


def survive(
    server: Embedded,
    log: Ledger,
    submitting: Submitting,
    go_on: Callable[[int], bool],
    *,
    workers: int,
    services: int,
    lease: float,
    pause: float,
    first: list[str],
    seconds: float,
) -> dict[str, int]:
    """Kill this and that while jobs come in and are worked on; let the rest be done, and judge. Figures."""
    kills = Counter[str]()
    with at_work(log, workers, services, lease) as doomed:
        submitting.start()
        eventually(lambda: _count(log, "batch.started") > 5, 60)
        while go_on(kills.total()):
            what = first.pop() if first else random.choice(WHAT)
            _hurt(what, server, log, doomed)
            kills[what] += 1
            time.sleep(random.random() * pause)
        submitting.join()
        eventually(lambda: not _open(log), seconds)
    assert submitting.fault is None
    rows, ids, written = whole(log, submitting)
    assert judge(rows, ids, written) == []
    assert verify(log, processes=1).kinds == {}
    topics = Counter(row[3] for row in rows)
    told = ("job.created", "batch.queued", "batch.completed", "job.lease_expired_requeue",
            "batch.lease_expired_requeue", "batch.late_result", "job.late_result")  # fmt: skip
    return {**kills, **{topic: topics[topic] for topic in told}, "events": len(rows)}


WHAT: Final = ("worker", "worker", "child", "child", "services", "server")


def _hurt(what: str, server: Embedded, log: Ledger, doomed: list[Doomed]) -> None:
    if what == "server":
        crash(server)
        eventually(lambda: _answers(log), 60)
        return
    one = random.choice(
        [one for one in doomed if one.role == ("services" if what == "services" else "worker")]
    )
    if what == "child":
        one.kill_a_child()
    else:
        one.kill()
        one.start()


def _answers(log: Ledger) -> bool:
    try:
        return log.bound() >= 0
    except ServerUnavailable:
        return False


def _asked(log: Ledger, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(log.address.conninfo) as connection:
        return connection.execute(statement).fetchall()  # type: ignore[arg-type]


def _count(log: Ledger, topic: str) -> int:
    return int(_asked(log, f"SELECT count(*) FROM ledger.events WHERE topic = '{topic}'")[0][0])


def _open(log: Ledger) -> bool:
    """Whether there is work that has not come to its end."""
    over = "('succeeded', 'failed', 'cancelled', 'completed')"
    left = f"SELECT FROM ledger.heads WHERE stream ~ '^(job|batch)/' AND status NOT IN {over} LIMIT 1"
    return bool(_asked(log, left))


def whole(log: Ledger, submitting: Submitting) -> Log:
    """What the oracle is given."""
    rows = _asked(log, "SELECT position, stream, version, topic, data FROM ledger.events ORDER BY position")
    written = _asked(log, "SELECT job, nr, token FROM stored")
    return rows, submitting.submitted, written  # type: ignore[return-value]


def without(rows: list[Row], victim: Row) -> list[Row]:
    """The log without one event, as if nobody had ever recorded it."""
    stream, version = victim[1], victim[2]
    kept = [row for row in rows if row is not victim]
    return [(p, s, v - 1 if s == stream and v > version else v, t, d) for p, s, v, t, d in kept]


def doubled(rows: list[Row], victim: Row) -> list[Row]:
    """The log with one event twice, and a fresh position and version for the second."""
    stream, version = victim[1], victim[2]
    at = rows.index(victim) + 1
    rest = [(p + 1, s, v + 1 if s == stream and v > version else v, t, d) for p, s, v, t, d in rows[at:]]
    return [*rows[:at], (victim[0] + 1, stream, version + 1, *victim[3:]), *rest]


LOST: Final = ("job.created", "batch.queued", "job.succeeded", "job.dispatched", "batch.completed",
               "batch.started", "batch.computed")  # fmt: skip
TWICE: Final = ("job.created", "batch.queued", "job.started", "job.succeeded", "batch.started",
                "batch.completed", "job.dispatched")  # fmt: skip


def check_controls(log: Log) -> None:
    """The oracle sees it where one event is missing or is there twice, or a row of the user's."""
    rows, ids, written = log
    for change, topics in ((without, LOST), (doubled, TWICE)):
        for topic in topics:
            victim = random.choice([row for row in rows if row[3] == topic])
            assert judge(change(rows, victim), ids, written), f"{change.__name__} {topic}: not seen"
    assert judge(rows, ids, written[1:])
    assert judge(rows, ids, [*written, written[0]])
    assert judge(rows, [*ids, str(uuid4())], written)


@pytest.mark.slow
def test_killed_at_random_every_job_comes_to_its_end(durable: Embedded, hardy: Ledger) -> None:
    submitting = Submitting(hardy, jobs=10, parents=2, batches=8, waves=1)
    survive(
        durable, hardy, submitting, lambda kills: kills < 4, workers=2, services=1, lease=1.5, pause=0.1,
        first=["child", "services", "server", "worker"], seconds=90,
    )  # fmt: skip
    check_controls(whole(hardy, submitting))


@pytest.mark.slow
def test_thousands_of_jobs_and_batches_under_random_kills(
    durable: Embedded, hardy: Ledger, minutes: float
) -> None:
    """1,000 jobs and 10,000 batches at least, and as many waves of them as there are two minutes."""
    end = time.monotonic() + 60 * minutes
    waves = max(12, int(5 * minutes))
    submitting = Submitting(hardy, jobs=80, parents=25, batches=40, waves=waves)
    figures = survive(
        durable, hardy, submitting, lambda kills: time.monotonic() < end, workers=4, services=2, lease=1.5,
        pause=2.0, first=[], seconds=1800,
    )  # fmt: skip
    check_controls(whole(hardy, submitting))
    print(f"\njobs: {figures}")
    assert figures["job.created"] >= 1000
    assert figures["batch.queued"] >= 10_000
