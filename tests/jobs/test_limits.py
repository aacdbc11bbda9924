"""Limits of operations, and pauses of queues: exact, whoever takes, and nobody else's trouble."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

import ledger
from consumers.jobs.claim import LogOffers, Offer
from ledger import BadInput, Ledger
from ledger.errors import StreamConflict
from ledger.jobs import Jobs
from ledger.jobs.queue import OpenOperation
from projections.engine.projector import Projector, views_named
from tests.jobs.claims import claim, shown, take, topics

Connection = psycopg.Connection[object]


def finish(log: Ledger, *taken: Offer) -> None:
    for one in taken:
        one.work.succeed()
        log.append_all([one.work.under_lease(one.token)])


def most_at_once(log: Ledger, operation: str) -> int:
    """How many jobs of an operation had a claim at once, at most, in the order of the log."""
    of, running, most = dict[str, str](), set[str](), 0
    for event in log.log(0, log.bound(), 100_000):
        word = event.topic.partition(".")[2]
        if word == "created":
            of[event.stream] = event.event.operation  # type: ignore[union-attr]
        elif word == "started" and of[event.stream] == operation:
            running.add(event.stream)
        elif word in ("succeeded", "failed", "attempt_failed", "retry_later", "released", "cancelled"):
            running.discard(event.stream)
        most = max(most, len(running))
    return most


class Taker(threading.Thread):
    """Takes, claims, holds for a moment, and ends, until everything is done."""

    def __init__(self, dsn: str, name: str, done: threading.Event) -> None:
        super().__init__(name=name)
        self.dsn, self.done, self.chance = dsn, done, random.Random(name)
        self.begun: list[Offer] = []

    def run(self) -> None:
        with closing(ledger.connect(self.dsn, actor=self.name)) as log:
            offers, over = LogOffers(log, self.name, None, 60), list[tuple[str, int]]()
            while not self.done.is_set():
                taken, over = offers.take(self.chance.randint(1, 4), over), []
                for one in taken:
                    if one.due and self._claimed(log, one):
                        self.begun.append(one)
                        self.done.wait(self.chance.random() * 0.004)
                        finish(log, one)
                    over.append((one.work.name, one.token))

    def _claimed(self, log: Ledger, one: Offer) -> bool:
        one.work.start(self.name)
        try:
            log.commit(one.work)
        except StreamConflict:
            return False
        return True


def taken_by_many(log: Ledger, dsn: str, ids: list[str], takers: int = 4) -> list[Taker]:
    """Let several takers at the jobs, each with connections of its own, until all are over."""
    shown(log)
    done = threading.Event()
    threads = [Taker(dsn, f"taker-{n}", done) for n in range(takers)]
    with Projector(log, views_named(["work"])):
        for thread in threads:
            thread.start()
        try:
            statuses = Jobs(log).wait(*ids, seconds=20)
        finally:
            done.set()
            for thread in threads:
                thread.join()
    assert set(statuses.values()) == {"succeeded"}
    return threads


def test_w1_16_a_limit_is_exact_under_racing_takers(log: Ledger, dsn: str) -> None:
    """Who may not begin is not begun at all: nobody claims first, and looks for others then (W1-16)."""
    jobs = Jobs(log)
    jobs.limit("gpu", concurrency=2)
    gpu = jobs.submit_many([{"operation": "gpu", "queue": "q"}] * 30)
    free = jobs.submit_many([{"operation": "ping", "queue": "q"}] * 30)
    taken_by_many(log, dsn, gpu + free)
    assert most_at_once(log, "gpu") == 2
    assert {tuple(topics(log, f"job/{id}")) for id in gpu} == {("created", "started", "succeeded")}


@pytest.mark.slow
def test_limits_are_exact_for_long(log: Ledger, dsn: str, minutes: float) -> None:
    jobs, chance = Jobs(log), random.Random(16)
    deadline = time.monotonic() + minutes * 60
    most = 1
    while time.monotonic() < deadline:
        most = max(most, now := chance.randint(1, 5))
        jobs.limit("gpu", concurrency=now)
        ids = jobs.submit_many([{"operation": chance.choice(["gpu", "ping"])} for _ in range(200)])
        taken_by_many(log, dsn, ids, chance.randint(2, 8))
        assert most_at_once(log, "gpu") <= most


def test_limited_work_does_not_block_other_work(log: Ledger) -> None:
    jobs = Jobs(log)
    jobs.limit("gpu", concurrency=1)
    first, *_ = [jobs.submit("gpu", queue="q", priority=9) for _ in range(5)]
    others = [jobs.submit("ping", queue="q") for _ in range(3)]
    assert [one.work.state.id for one in claim(log, most=4)] == [first, *others]
    assert claim(log) == []


def test_a_limit_holds_over_queues_and_after_the_leases_are_lost(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    jobs.limit("gpu", concurrency=2)
    ids = [jobs.submit("gpu", queue=f"q{n % 3}") for n in range(6)]
    one, other = claim(log)
    shown(log)
    connection.execute("DELETE FROM ledger.leases")
    assert take(log) == [], "the claims are facts, and count"
    finish(log, one)
    assert len(claim(log)) == 1
    jobs.cancel(other.work.state.id)
    assert len(take(log)) == 1, "a claim that is over is over, whatever its lease says"
    assert len(take(log)) == 0, "a lease counts before its claim is made"
    assert len(ids) == 6


def test_a_limit_may_change_while_work_runs(log: Ledger) -> None:
    jobs = Jobs(log)
    assert jobs.limit("gpu", concurrency=1)
    assert not jobs.limit("gpu", concurrency=1), "nothing changes"
    for _ in range(9):
        jobs.submit("gpu")
    running = claim(log)
    assert len(running) == 1
    jobs.limit("gpu", concurrency=3)
    running += claim(log)
    assert len(running) == 3
    jobs.limit("gpu", concurrency=2)
    finish(log, running.pop())
    assert claim(log) == [], "two run"
    finish(log, running.pop())
    running += claim(log)
    assert len(running) == 2
    jobs.limit("gpu")
    assert len(claim(log)) == 5
    assert jobs.limits()["gpu"].concurrency is None


@pytest.mark.parametrize(
    "wrong",
    [{"concurrency": 0}, {"rate": -1}, {"rate": 1, "seconds": 0}, {"seconds": float("nan")}, {"rate": 2**40},
     {"concurrency": 1.5}],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="must be"):
        OpenOperation("gpu").limit(**wrong)  # type: ignore[arg-type]


# Rates


def test_never_more_than_rate_and_burst(log: Ledger, dsn: str) -> None:
    """In any time, at most what the bucket holds, and what comes into it meanwhile."""
    jobs, rate, seconds = Jobs(log), 8, 0.2
    jobs.limit("api", rate=rate, seconds=seconds)
    ids = jobs.submit_many([{"operation": "api"}] * 30)
    began = time.monotonic()
    takers = taken_by_many(log, dsn, ids)
    took = time.monotonic() - began
    at = sorted(one.now.timestamp() for taker in takers for one in taker.begun)
    assert len(at) == 30
    for i, first in enumerate(at):
        for j in range(i, len(at)):
            assert j - i + 1 <= rate + rate * (at[j] - first) / seconds + 1e-6
    assert took >= (30 - rate) / rate * seconds


def test_a_lost_bucket_gives_a_burst_at_most(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    jobs.limit("api", rate=3, seconds=3600)
    for _ in range(20):
        jobs.submit("api")
    assert (len(claim(log)), len(claim(log))) == (3, 0)
    connection.execute("DELETE FROM ledger.rates")
    assert (len(claim(log)), len(claim(log))) == (3, 0)


def test_a_rate_may_be_taken_away_and_come_again(log: Ledger) -> None:
    jobs = Jobs(log)
    jobs.limit("api", rate=2, seconds=3600)
    for _ in range(20):
        jobs.submit("api")
    assert len(claim(log)) == 2
    jobs.limit("api", concurrency=100)
    assert len(claim(log, most=10)) == 10, "no rate any more"
    jobs.limit("api", rate=1000)
    time.sleep(0.01)
    assert 0 < len(claim(log)) <= 8, "what began without a rate is no debt"
    jobs.limit("api", rate=1, concurrency=1, seconds=0.001)
    assert claim(log) == [], "both limits hold"


def test_the_bucket_is_filled_evenly_and_not_above_its_rim(log: Ledger, connection: Connection) -> None:
    Jobs(log).limit("api", rate=4, seconds=8)
    shown(log)
    ask = "SELECT ledger_views.room_of('api', timestamptz '2026-01-01' + %s * interval '1 second')"

    def room(second: float) -> int:
        ((many,),) = connection.execute(ask, [second]).fetchall()  # type: ignore[misc]
        return int(many)  # type: ignore[call-overload, no-any-return]

    assert room(0) == 4
    connection.execute("INSERT INTO ledger.rates (at, left_over, operation) VALUES ('2026-01-01', 0, 'api')")
    assert [room(second) for second in (0, 1, 2, 3.9, 4, 7, 8, 1000)] == [0, 0, 1, 1, 2, 3, 4, 4]
    assert room(-5) == 0, "a clock that goes back fills nothing"


# Pauses


def test_a_paused_queue_gives_nothing_from_that_moment(log: Ledger) -> None:
    jobs = Jobs(log)
    before, _, other = jobs.submit("ping", queue="q"), jobs.submit("ping", queue="q"), jobs.submit("ping")
    (running,) = claim(log, most=1)
    assert running.work.state.id == before
    shown(log)
    assert jobs.pause(" q ", "the disk is full")
    assert not jobs.pause("q")
    offers = LogOffers(log, "w", None, 60)
    assert [one.work.state.id for one in offers.take(10)] == [other], "also where the view is behind"
    finish(log, running)
    assert (jobs.status(before), jobs.queues()["q"].reason) == ("succeeded", "the disk is full")
    assert take(log) == []
    assert jobs.resume("q")
    assert not jobs.resume("q")
    assert len(take(log)) == 1


# Size


@pytest.mark.parametrize("many", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_very_much_limited_work_does_not_slow_the_taking_of_other_work(
    log: Ledger, admin_dsn: str, many: int
) -> None:
    jobs = Jobs(log)
    jobs.limit("gpu", concurrency=1)
    (gpu, *_), _ = [jobs.submit("gpu") for _ in range(2)], [jobs.submit("ping") for _ in range(40)]
    assert len(claim(log, most=1)) == 1
    shown(log)
    few = quickest(log)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for into in ("ledger.heads", "ledger_views.work_1"):
            admin.execute(
                f"INSERT INTO {into} SELECT c.* FROM {into} x, generate_series(1, {many}) i, "  # type: ignore[arg-type]
                f"LATERAL jsonb_populate_record(x, jsonb_build_object('stream', x.stream || i)) c "
                "WHERE x.stream = (SELECT min(w.stream) FROM ledger_views.work_1 w "
                "WHERE w.operation = 'gpu' AND w.ready)"
            )
            admin.execute(f"ANALYZE {into}")  # type: ignore[arg-type]
    assert quickest(log) < 4 * few + 0.005, "as without them"
    assert jobs.status(gpu) == "running"


def quickest(log: Ledger) -> float:
    """Seconds of the quickest of some takes of one piece of other work."""
    offers, found = LogOffers(log, "w", None, 60), list[float]()
    for _ in range(8):
        began = time.perf_counter()
        (one,) = offers.take(1)
        found.append(time.perf_counter() - began)
        assert one.work.state.operation == "ping"
    return min(found)


def test_takers_in_threads_share_nothing_but_the_database(log: Ledger) -> None:
    """Each piece goes to one taker, also without limits."""
    jobs = Jobs(log)
    ids = jobs.submit_many([{"operation": "ping"}] * 40)
    shown(log)
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda n: LogOffers(log, f"w{n}", None, 60).take(15), range(4))]
    taken = [one.work.state.id for some in found for one in some]
    assert sorted(taken) == sorted(ids)
