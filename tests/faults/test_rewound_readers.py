"""The log is put back to an earlier point: nobody else who keeps a position skips what comes then."""

from __future__ import annotations

from io import BytesIO
from uuid import uuid4

import pytest
from eventsourcing.persistence import PersistenceError, StoredEvent

from consumers.reactor import Reactor
from ledger import Cursor, CursorMismatch, Ledger, LedgerError, ServerUnavailable
from ledger.embedded import Embedded
from ledger.exchange.export import Part, export_events
from ledger.jobs import Jobs
from ledger.log.cursor import Checkpoint
from ledger.log.readers import Positions
from ledger.store.recorders import LedgerApplicationRecorder
from projections import Projector, attach
from projections.engine.feed import Feed
from projections.engine.projector import views_named
from projections.feeds import ProgressChanges, StateChanges
from projections.jobs import timeline
from tests.faults.backup import LOST, NEW, OLD, Backup, append, patiently
from tests.views import eggs

(PROGRESS,) = views_named(["progress"])


def test_a_subscription_of_the_library_is_refused(log: Ledger, backup: Backup) -> None:
    last = append(log, LOST)
    recorder = LedgerApplicationRecorder(log)
    save(recorder, LOST)
    with recorder.subscribe(gt=last - 1) as moved, recorder.subscribe(gt=last) as idle:
        assert [next(moved).id for _ in range(LOST)] == [*range(last + 1, last + LOST + 1)]
        with recorder.subscribe(gt=last + LOST) as silent:
            assert not silent._read()
            assert next(idle).id == last + 1
            backup.put_back()
            save(recorder, 3 * NEW)
            for followed in (moved, silent):
                with pytest.raises(PersistenceError) as refused:
                    next(followed)
                assert isinstance(refused.value.__cause__, CursorMismatch)


def save(recorder: LedgerApplicationRecorder, count: int) -> None:
    """Events of the library's kind, each an aggregate of its own."""
    for _ in range(count):
        patiently(lambda: recorder.insert_events([StoredEvent(uuid4(), 1, "saved", b"")]))


@pytest.mark.parametrize("kept_by", ["projector", "appends"])
def test_a_feed_of_changes_is_refused(log: Ledger, backup: Backup, kept_by: str) -> None:
    (view,) = views_named(["in_state"])
    append(log, LOST)
    Projector(log, [view]).catch_up()
    if kept_by == "appends":
        attach(log, view)
    feed, silent = StateChanges(log), StateChanges(log)
    seen = patiently(feed.poll)
    assert len(seen) == OLD + LOST or feed.position == OLD + LOST
    silent = StateChanges(log, after=feed.cursor)
    backup.put_back()
    append(log, NEW)
    patiently(Projector(log, [view]).catch_up)
    for one in (feed, silent):
        with pytest.raises(CursorMismatch):
            patiently(one.poll)


def test_a_feed_of_progress_is_refused(log: Ledger, backup: Backup) -> None:
    eggs.declare(log)
    hatch(log, 5)
    Projector(log, [PROGRESS]).catch_up()
    feed = ProgressChanges(log)
    assert feed.poll()
    assert feed.poll() == []
    silent = ProgressChanges(log, after=feed.cursor)
    backup.put_back()
    patiently(lambda: eggs.declare(log))
    hatch(log, 20)
    patiently(Projector(log, [PROGRESS]).catch_up)
    for one in (feed, silent):
        with pytest.raises(CursorMismatch):
            patiently(one.poll)


def hatch(log: Ledger, count: int) -> None:
    for n in range(count):
        eggs.append(log, [("tray/f/a", "tray.built", {}), (f"egg/f/a/{n}", "egg.hatched", {})])


def test_events_that_another_source_kept_are_not_fed_to_a_view(log: Ledger, backup: Backup) -> None:
    append(log, LOST)
    kept = log.read("lamp/a", after=OLD - 5)
    (view,) = views_named(["in_state"])
    backup.put_back()
    append(log, NEW)
    with Feed(log, view) as feed:
        with pytest.raises(CursorMismatch):
            feed.take(kept)
        assert feed.take(kept[:5]) == 5


def test_the_events_of_a_job_are_followed_in_one_history(
    log: Ledger, postgres: Embedded, database: str
) -> None:
    jobs = Jobs(log)
    job = jobs.submit("say", {})
    saved = Backup(postgres, database)
    comment(jobs, job, 3)
    checkpoint = Checkpoint(log.identity.ledger)
    assert len(timeline(log, job, checkpoint)) == 4
    assert timeline(log, job, checkpoint) == []
    saved.put_back()
    comment(jobs, job, 9)
    with pytest.raises(CursorMismatch):
        patiently(lambda: timeline(log, job, checkpoint))
    assert len(timeline(log, job)) == 10
    saved.drop()


def comment(jobs: Jobs, job: str, count: int) -> None:
    for n in range(count):
        patiently(lambda: jobs.comment(job, f"the {n}", "mina"))  # noqa: B023


def test_a_reactor_is_refused_and_leaves_the_position_that_was_restored(log: Ledger, backup: Backup) -> None:
    seen: list[int] = []
    reactor = Reactor(log, "counting", lambda event: seen.append(event.position) or [])
    append(log, LOST)

    def run_over_the_restore() -> None:
        with reactor:
            assert reactor.wait_for(OLD + LOST)
            backup.put_back()
            append(log, NEW)
            reactor.wait_for(OLD + LOST + NEW)

    with pytest.raises(CursorMismatch):
        run_over_the_restore()
    assert seen == list(range(1, OLD + LOST + 1))
    assert Positions(log).kept("counting") is None  # as it was when the backup was made
    again = Reactor(log, "counting", lambda event: seen.append(event.position) or [])
    assert again.catch_up() == OLD + NEW


def test_a_position_of_another_history_is_not_kept(log: Ledger, backup: Backup) -> None:
    append(log, LOST)
    here = Cursor.after(log.identity.ledger, log.read("lamp/a")[OLD - 1])
    lost = Cursor.after(log.identity.ledger, log.read("lamp/a")[-1])
    backup.put_back()
    append(log, NEW)
    with pytest.raises(CursorMismatch):
        Positions(log).keep("reader", lost)
    Positions(log).keep("reader", here)
    assert Positions(log).kept("reader") == here


def test_an_export_never_holds_two_histories(
    log: Ledger, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.exchange.export.PAGE", 10)
    append(log, LOST)
    done: list[int] = []

    def restored_meanwhile(events: int, position: int, last: int) -> None:
        done.append(position)
        if len(done) == 4:  # 40 of 50
            backup.put_back()
            append(log, NEW)

    with pytest.raises((CursorMismatch, ServerUnavailable)) as caught:
        export_events(log, BytesIO(), "jsonl", Part(), progress=restored_meanwhile)
    assert isinstance(caught.value, LedgerError)
