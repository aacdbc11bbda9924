"""Schedules: jobs at the times of a cron expression, each time once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

import ledger
from consumers.jobs.scheduler import Scheduler
from ledger import BadInput, Ledger, StreamNotFound
from ledger.jobs import Jobs, Schedules
from ledger.jobs.cron import MANY, missed, times
from ledger.jobs.schedule import OpenSchedule, job_for

NEVER = "0 0 1 1 *"
EACH_TEN_MINUTES = "*/10 * * * *"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def rewind(log: Ledger, name: str, by: timedelta) -> datetime:
    """Let a schedule look as if it had fired last so long ago; when that was."""
    schedules = Schedules(log)
    at = schedules.clock().replace(second=0, microsecond=0) - by
    with log.open(OpenSchedule, name) as opened:
        opened.fire(at, "8f14e45f-ceea-467f-a0e6-9d1c0a4c3f6e")
    return at


def facts(log: Ledger, name: str) -> list[str]:
    return [event.topic for event in log.read(OpenSchedule.name_of(name))]


# Setting


def test_a_schedule_is_set_once_and_changed(log: Ledger) -> None:
    schedules = Schedules(log)
    assert schedules.set(
        "nightly", "30  2 * * *", "clean", {"days": 30}, timezone="Europe/Berlin", tags=["x"]
    )
    assert not schedules.set(
        "nightly", "30 2 * * *", "clean", {"days": 30}, timezone="Europe/Berlin", tags=["x"]
    )
    before = schedules.get("nightly")
    assert schedules.set("nightly", "30 2 * * *", "clean", {"days": 7}, timezone="Europe/Berlin", tags=["x"])
    now = schedules.get("nightly")
    assert (now.payload, now.after) == ({"days": 7}, before.after), "the same times go on"
    assert schedules.set("nightly", "0 3 * * *", "clean", {"days": 7})
    assert schedules.get("nightly").after > before.after, "other times count from now on"  # type: ignore[operator]
    assert facts(log, "nightly") == ["schedule.set"] * 3


def test_it_is_paused_resumed_and_removed(log: Ledger) -> None:
    schedules = Schedules(log)
    schedules.set("a", EACH_TEN_MINUTES, "ping")
    schedules.set("b", EACH_TEN_MINUTES, "ping")
    assert schedules.pause("a", "too much")
    assert not schedules.pause("a")
    assert schedules.set("a", EACH_TEN_MINUTES, "ping", {"n": 1}), "it may be changed while it is paused"
    rewind(log, "a", timedelta(hours=1))
    assert Scheduler(log).run_once().fired == 0
    assert schedules.get("a").next_times() == []
    assert schedules.resume("a")
    assert not schedules.resume("a")
    assert Scheduler(log).run_once().fired == 0, "times meanwhile are not made up for"
    assert schedules.remove("b")
    assert not schedules.remove("b")
    assert [one.name for one in schedules.list()] == ["a"]
    assert [one.name for one in schedules.list(removed=True)] == ["a", "b"]
    assert schedules.set("b", EACH_TEN_MINUTES, "ping"), "it may come again"
    assert len(schedules.get("b").next_times(3)) == 3
    with pytest.raises(StreamNotFound):
        schedules.pause("nobody")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cron": "* * *"}, "not a cron expression: it has 3 fields"),
    ({"cron": "61 * * * *"}, "minute must be 0 to 59, not '61'"),
    ({"cron": "0 0 30 2 *"}, "never fires"),
    ({"cron": 5}, "must be text"),
    ({"timezone": "Mars/Phobos"}, "not a known time zone"),
    ({"timezone": "../etc/passwd"}, "not a known time zone"),
    ({"timezone": "Europe"}, "not a known time zone"),
    ({"timezone": ""}, "not a known time zone"),
    ({"payload": {"a": float("nan")}}, "a: nan is not a number"),
    ({"payload": [1]}, "must be a mapping"),
    ({"operation": ""}, "needs an operation"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"colour": "red"}, "colour"),
    ({"run_at": datetime.now(UTC)}, "cannot have run_at"),
    ({"catch_up": "some"}, "latest, all, none"),
    ({"unique": 5}, "unique"),
    ({"name": ""}, "name"),
]


def test_what_could_never_fire_is_refused(log: Ledger) -> None:
    for wrong, said in WRONG:
        with pytest.raises(BadInput, match=said):
            Schedules(log).set(**{"name": "s", "cron": NEVER, "operation": "ping", **wrong})
    assert log.streams("schedule/") == []
    # The fifth Monday of a February comes once in 28 years.
    assert Schedules(log).set("s", "0 0 29 2 1#5", "ping")


# Times


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # On 29 March 2026 the clock goes from 02:00 to 03:00: 02:30 comes at 03:00.
        ("30 2 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]),
        ("0 * * * *", utc(2026, 3, 29, 0, 30), [utc(2026, 3, 29, 1), utc(2026, 3, 29, 2)]),
        ("*/30 2 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 30, 0), utc(2026, 3, 30, 0, 30)]),
        # On 25 October it goes from 03:00 to 02:00: 02:30 comes once, the first time; each hour comes twice.
        ("30 2 * * *", utc(2026, 10, 24, 12), [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]),
        ("30 2 * * *", utc(2026, 10, 25, 1, 10), [utc(2026, 10, 26, 1, 30), utc(2026, 10, 27, 1, 30)]),
        ("30 * * * *", utc(2026, 10, 25, 0), [utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 1, 30)]),
        ("*/20 * * * * *", utc(2026, 1, 1), [utc(2026, 1, 1, 0, 0, 20), utc(2026, 1, 1, 0, 0, 40)]),
    ],
)
def test_times_where_summer_time_begins_and_ends(
    cron: str, after: datetime, expected: list[datetime]
) -> None:
    assert list(islice(times(cron, BERLIN, after), 2)) == expected


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "15 * * * *", "0 1,2,3 * * *"])
def test_times_ascend_and_none_is_missed(zone: str, cron: str) -> None:
    """From wherever one looks in the two days of a change, the next times are the same."""
    for day in (utc(2026, 3, 28), utc(2026, 10, 24), utc(2026, 10, 31), utc(2026, 4, 4)):
        all_of = list(islice(times(cron, zone, day), 80))
        assert all_of == sorted(set(all_of))
        for minutes in range(0, 2 * 24 * 60, 35):
            after = day + timedelta(minutes=minutes)
            later = [at for at in all_of if at > after]
            assert next(times(cron, zone, after)) == later[0], after
            assert missed(cron, zone, day, after) == [at for at in all_of if at <= after]


def test_of_very_many_missed_times_the_last_is_found_at_once() -> None:
    upto = utc(2026, 10, 25, 1, 10, 30)
    began = time.monotonic()
    assert missed("* * * * * *", BERLIN, utc(2016, 1, 1), upto) == [upto]
    assert missed("30 2 * * *", BERLIN, utc(1990, 1, 1), upto) == [utc(2026, 10, 25, 0, 30)]
    assert len(missed("* * * * * *", BERLIN, upto - timedelta(seconds=MANY), upto)) == MANY
    assert time.monotonic() - began < 10


# Firing


@pytest.mark.parametrize(("catch_up", "fired", "skipped"), [("latest", 1, 5), ("all", 6, 0), ("none", 0, 6)])
def test_missed_times(log: Ledger, catch_up: str, fired: int, skipped: int) -> None:
    """An hour in which nobody ran."""
    schedules, scheduler = Schedules(log), Scheduler(log)
    schedules.set("s", EACH_TEN_MINUTES, "ping", {"n": 1}, queue="q", catch_up=catch_up)
    before = rewind(log, "s", timedelta(hours=1))
    due = missed(EACH_TEN_MINUTES, "UTC", before, schedules.clock())
    if catch_up == "none" and schedules.clock() - due[-1] < timedelta(seconds=70):
        fired, skipped = 1, 5  # the last one is not too late
    assert scheduler.run_once().fired == fired
    assert scheduler.run_once()[:3] == (0, 0, 0), "each time is done with"
    state = schedules.get("s")
    assert (state.fired - 1, state.skipped, state.after) == (fired, skipped, due[-1])
    made = [Jobs(log).get(job_for(state, at).id) for at in due[len(due) - fired :]]
    assert [(job.operation, job.payload, job.queue) for job in made] == [("ping", {"n": 1}, "q")] * fired


def test_many_schedulers_fire_each_time_once(log: Ledger, dsn: str) -> None:
    names = ["a", "b", "c"]
    for name in names:
        Schedules(log).set(name, "* * * * *", "ping", {"of": name}, catch_up="all", queue=name)
        rewind(log, name, timedelta(minutes=10))
    ledgers = [ledger.connect(dsn, actor=f"scheduler {n}") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        figures = list(pool.map(lambda one: [Scheduler(one).run_once() for _ in range(8)], ledgers))
    for one in ledgers:
        one.close()
    due = [len(Schedules(log).get(name).next_times(3)) for name in names]
    assert due == [3, 3, 3]
    fired = sum(look.fired for looks in figures for look in looks)
    jobs = [stream.stream for stream in log.streams("job/")]
    told = [event.event.job for name in names for event in log.read(f"schedule/{name}")[2:]]  # type: ignore[union-attr]
    assert fired == len(jobs) >= 30
    assert sorted(f"job/{id}" for id in told) == jobs, "a job for each time, and none besides"


def test_no_overlap(log: Ledger) -> None:
    schedules, scheduler, jobs = Schedules(log), Scheduler(log), Jobs(log)
    schedules.set("s", "* * * * *", "ping", overlap=False, catch_up="all")
    rewind(log, "s", timedelta(minutes=3))
    figures = scheduler.run_once()
    assert (figures.fired, figures.skipped >= 2) == (1, True)
    (fired,) = [e for e in log.read("schedule/s")[2:] if e.topic == "schedule.fired"]
    skipped = [e.event for e in log.read("schedule/s") if e.topic == "schedule.skipped"]
    assert {(s.reason, s.job) for s in skipped} == {("overlap", fired.event.job)}  # type: ignore[union-attr]
    jobs.cancel(fired.event.job)  # type: ignore[union-attr]
    with log.open(OpenSchedule, "s") as opened:  # as if it were a while later
        opened.skip(schedules.clock() - timedelta(minutes=1), "missed")
    assert scheduler.run_once().fired == 1, "the last one is over"


def test_unique_jobs_of_a_schedule(log: Ledger) -> None:
    jobs = Jobs(log)
    existing = jobs.submit("ping", {"n": 1}, unique=True)
    Schedules(log).set("s", "* * * * *", "ping", {"n": 1}, unique=True)
    rewind(log, "s", timedelta(minutes=1))
    assert Scheduler(log).run_once()[:2] == (0, 1)
    last = log.read("schedule/s")[-1].event
    assert (last.reason, last.job) == ("duplicate", existing)  # type: ignore[union-attr]


def test_a_time_that_was_submitted_already_is_only_recorded(log: Ledger) -> None:
    """The id of the job follows from schedule and time, so an attempt that is repeated is harmless."""
    schedules = Schedules(log)
    schedules.set("s", EACH_TEN_MINUTES, "ping")
    before = rewind(log, "s", timedelta(minutes=20))
    at = missed(EACH_TEN_MINUTES, "UTC", before, schedules.clock())[-1]
    made = job_for(schedules.get("s"), at)
    Jobs(log).record([made])
    assert Scheduler(log).run_once().fired == 1
    assert schedules.get("s").last_job == made.id
    assert len(log.streams("job/")) == 1


def test_one_that_cannot_fire_here_hinders_no_other(log: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    schedules = Schedules(log)
    schedules.set("a", "* * * * *", "ping")
    fact = log.read("schedule/a")[0].event.model_copy(update={"timezone": "Mars/Phobos"})  # type: ignore[union-attr]
    log.append("schedule/a", fact)
    schedules.set("b", "* * * * *", "ping")
    rewind(log, "b", timedelta(minutes=1))
    scheduler = Scheduler(log)
    assert scheduler.run_once()[:4] == (1, 0, 0, 1)
    scheduler.run_once()
    assert len(caplog.records) == 1, "it is told once"
    assert "Mars/Phobos" in caplog.text


def test_it_runs_and_wakes_when_something_is_due(log: Ledger) -> None:
    schedules, stop = Schedules(log), threading.Event()
    schedules.set("s", "* * * * * *", "ping")
    thread = threading.Thread(target=Scheduler(log, max_pause=1).run, args=[stop])
    thread.start()
    deadline = time.monotonic() + 10
    while schedules.get("s").fired < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    thread.join()
    (event,) = log.read("schedule/s")[1:2]
    late = event.recorded_at - event.event.at  # type: ignore[union-attr]
    assert timedelta(0) <= late < timedelta(seconds=1), "by the database's clock"
