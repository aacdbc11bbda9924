"""What an operation says is in the log at once, and never fails it (spec S1-15, S1-46)."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from ledger import Ledger
from ledger.errors import ServerUnavailable, WorkStopped

from .sets import Sets


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


def test_it_is_visible_at_once(sets: Sets) -> None:
    job = sets.jobs.submit("part")
    session = sets.claim(job)
    session.emit(
        "page.done", "one page", {"page": 1, "_progress_current": "1", "_progress_total": 9}, "warning"
    )
    (*_, said) = sets.jobs.events(job)
    fact = said.event
    assert (said.topic, fact.event, fact.level, fact.message) == (  # type: ignore[union-attr]
        "job.reported", "page.done", "warning", "one page",
    )  # fmt: skip
    assert dict(fact.fields) == {"page": 1}  # type: ignore[union-attr]
    state = sets.jobs.get(job)
    assert (state.progress_current, state.progress_total, state.status) == (1, 9, "running")


def test_a_batch_says_it_in_its_own_stream(sets: Sets) -> None:
    job = sets.deferred(batches=1)
    sets.claim(job, "1").emit("rows.read")
    assert [event.topic for event in sets.log.read(f"batch/{job}/1")][-1] == "batch.reported"
    assert "job.reported" not in [event.topic for event in sets.jobs.events(job)]


def test_heads_keep_up_and_nobody_is_in_the_way(sets: Sets, log: Ledger) -> None:
    """The stream is opened once; again only after somebody else wrote to it."""
    job = sets.jobs.submit("part")
    session = sets.claim(job)
    opened: list[int] = []
    whole = session.opened
    session.opened = lambda: (opened.append(1), whole())[1]  # type: ignore[method-assign]
    for n in range(5):
        session.emit("step", fields={"_progress_current": n})
    assert len(opened) == 1
    sets.jobs.comment(job, "well done")
    for n in range(5, 8):
        session.emit("step", fields={"_progress_current": n})
    assert len(opened) == 2
    head = log.head(f"job/{job}")
    assert head is not None
    assert head.version == head.state_version
    state = sets.jobs.get(job)
    assert (state.progress_current, state.comments) == (7, 1)


def test_threads_of_an_operation_may_all_say_something(sets: Sets) -> None:
    job = sets.jobs.submit("part")
    session = sets.claim(job)
    threads = [threading.Thread(target=session.emit, args=(f"thread.{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sets.jobs.events(job)) == 10


@pytest.mark.parametrize("fields", [{"_progress_current": "many"}, {"x": object()}, {"x": "a\x00b"}])
def test_what_cannot_be_recorded_fails_nothing(
    sets: Sets, fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    job = sets.jobs.submit("part")
    session = sets.claim(job)
    with caplog.at_level(logging.ERROR):
        session.emit("bad", fields=fields)
    assert "could not be recorded" in caplog.text
    session.emit("good")
    assert [event.topic for event in sets.jobs.events(job)][2:] == ["job.reported"]


def test_a_server_that_is_away_fails_nothing(
    sets: Sets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = sets.claim(sets.jobs.submit("part"))

    def away(*_: object, **__: object) -> None:
        raise ServerUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(session.ledger, "append_all", away)
        session.emit("lost")
    assert "could not be recorded" in caplog.text
    session.emit("kept")


@pytest.mark.parametrize("said_before", [False, True])
def test_a_cancel_stops_the_operation(sets: Sets, said_before: bool) -> None:
    job = sets.jobs.submit("part")
    session = sets.claim(job)
    if said_before:
        session.emit("begun")
    sets.jobs.cancel(job)
    with pytest.raises(WorkStopped):
        session.emit("more")
    assert session.stopped
    with pytest.raises(WorkStopped):
        session.check()
    assert "job.reported" not in [event.topic for event in sets.jobs.events(job)][3:]


def test_a_claim_of_before_says_nothing(sets: Sets) -> None:
    job = sets.jobs.submit("part")
    old = sets.claim(job)
    with sets.log.open(type(sets.load(job)), job) as opened:
        opened.expire()
    new = sets.claim(job)
    with pytest.raises(WorkStopped):
        old.emit("ghost")
    new.emit("alive")
    assert [event.event.event for event in sets.jobs.events(job) if event.topic == "job.reported"] == [
        "alive"
    ]  # type: ignore[union-attr]


@pytest.mark.slow
def test_it_is_cheap(sets: Sets) -> None:
    session = sets.claim(sets.jobs.submit("part"))
    session.emit("warm.up")
    began = time.process_time()
    for n in range(500):
        session.emit("step", fields={"n": n, "_progress_current": n})
    assert (time.process_time() - began) / 500 < 0.001
