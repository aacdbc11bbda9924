"""What recorders owe beyond the library's suites: bytes, order under load, versions, tracking, names."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from eventsourcing.persistence import IntegrityError, StoredEvent, Tracking
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BadName
from ledger.log.cursor import Checkpoint
from ledger.log.install import checked_schema
from ledger.store.factory import LedgerFactory, schema_of
from ledger.store.recorders import LedgerProcessRecorder
from tests.contracts.saves import events, versions

Made = Callable[..., LedgerFactory]

# Bytes.


@pytest.mark.parametrize(
    "state", [b'{"a": 1, "a": 2}', b" null", b"", b"\xff\xfe\x00", bytes(range(256)), '"é"'.encode("latin-1")]
)
def test_bytes_stay_bytes(recorder: LedgerProcessRecorder, state: bytes) -> None:
    one, many = uuid4(), uuid4()
    recorder.insert_events(events(one, 1, state=state))
    recorder.insert_events(events(many, 1, 2, state=state))
    found = [
        *recorder.select_events(one),
        *recorder.select_events(many),
        *recorder.select_notifications(1, 9),
    ]
    assert [(type(event.state), event.state) for event in found] == [(bytes, state)] * 6


def test_any_bytes_any_topic_any_text_id(made: Made) -> None:
    recorder = made(ORIGINATOR_ID_TYPE="text").application_recorder()
    text = st.text(
        st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=50
    )

    @settings(max_examples=60, deadline=None)
    @given(text, text, st.binary(max_size=300))
    def kept(name: str, topic: str, state: bytes) -> None:
        event = StoredEvent(f"{uuid4()}{name}", 1, topic, state)
        recorder.insert_events([event])
        assert list(recorder.select_events(event.originator_id)) == [event]

    kept()


# Order.


def test_a_save_keeps_its_order(recorder: LedgerProcessRecorder) -> None:
    a, b = uuid4(), uuid4()
    save = [*events(b, 1), *events(a, 1), *events(b, 2, 3), *events(a, 2)]
    assert recorder.insert_events(save) == [1, 2, 3, 4, 5]
    found = recorder.select_notifications(None, 10)
    assert [(n.originator_id, n.originator_version) for n in found] == [
        (b, 1),
        (a, 1),
        (b, 2),
        (b, 3),
        (a, 2),
    ]


def test_saves_of_eight_threads_reach_a_subscriber_once_and_in_order(made: Made) -> None:
    recorder, elsewhere = made().application_recorder(), made().application_recorder()
    saves, most = 60, 5
    saved: dict[int, StoredEvent] = {}

    def save(thread: int) -> None:
        target = (recorder, elsewhere)[thread % 2]
        for size in range(saves):
            save = events(uuid4(), *range(1, 2 + size % most), state=b"%d" % thread)
            ids = target.insert_events(save)
            assert ids == list(range(ids[0], ids[0] + len(save)))
            saved.update(zip(ids, save, strict=True))

    expected = 8 * sum(1 + size % most for size in range(saves))
    with ThreadPoolExecutor(9) as pool, recorder.subscribe() as subscription:
        seen = pool.submit(lambda: [next(subscription) for _ in range(expected)])
        for done in [pool.submit(save, thread) for thread in range(8)]:
            done.result(timeout=60)
        found = seen.result(timeout=20)
    assert [n.id for n in found] == sorted(saved)
    assert all((n.originator_id, n.originator_version) == _key(saved[n.id]) for n in found)


def _key(event: StoredEvent) -> tuple[UUID | str, int]:
    return event.originator_id, event.originator_version


def test_nothing_is_read_past_an_open_append(
    recorder: LedgerProcessRecorder, connection: psycopg.Connection[Any]
) -> None:
    recorder.insert_events(events(uuid4(), 1))
    with connection.transaction():
        connection.execute(
            "SELECT ledger_stored.append_one('held', 0, 't', 1::smallint, NULL, '\\x00', NULL, false)"
        )
        recorder.insert_events(events(uuid4(), 1))
        assert [n.id for n in recorder.select_notifications(1, 10)] == [1]
        assert recorder.max_notification_id() == 1
        checkpoint = Checkpoint(recorder.ledger.identity.ledger)
        recorder.follow(checkpoint, (), 10)
        assert checkpoint.position == 1
    recorder.insert_events(events(uuid4(), 1))
    assert recorder.max_notification_id() == 4


def test_a_subscription_to_a_rare_topic_does_not_read_the_log_again(recorder: LedgerProcessRecorder) -> None:
    recorder.insert_events(events(uuid4(), *range(1, 101), topic="common"))
    checkpoint = Checkpoint(recorder.ledger.identity.ledger)
    assert (recorder.follow(checkpoint, ["rare"], 10), checkpoint.position) == ([], 100)
    recorder.insert_events(events(uuid4(), 1, topic="rare"))
    page = recorder.follow(checkpoint, ["rare"], 10)
    assert ([n.id for n in page], checkpoint.position) == ([101], 101)


def test_a_waiting_subscription_stops_promptly(recorder: LedgerProcessRecorder) -> None:
    with ThreadPoolExecutor(1) as pool, recorder.subscribe() as subscription:
        waiting = pool.submit(list, subscription)
        recorder.insert_events(events(uuid4(), 1))
        assert not waiting.done()
        began = time.monotonic()
        subscription.stop()
        assert len(waiting.result(timeout=60)) <= 1
    assert time.monotonic() - began < 30


# Numbering.


def test_versions_from_zero_need_no_memory_of_it(made: Made) -> None:
    first, second = made().application_recorder(), made().application_recorder()
    zero, one = uuid4(), uuid4()
    assert first.insert_events([*events(zero, 0, 1), *events(one, 1)]) == [1, 2, 3]
    second.insert_events(events(zero, 2))
    ids = second.insert_events([*events(one, 2, 3), *events(zero, 3, 4)])
    assert ids == list(range(ids[0], ids[0] + 4))
    assert (versions(first, zero), versions(first, one)) == ([0, 1, 2, 3, 4], [1, 2, 3])
    assert versions(first, zero, gt=0, lte=2) == [1, 2]
    assert versions(first, zero, gt=1, desc=True, limit=2) == [4, 3]
    assert versions(first, one, gt=0, lte=2) == [1, 2]
    assert [n.originator_version for n in first.select_notifications(1, 10)] == [0, 1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("start", [0, 1])
def test_a_version_is_taken_once_and_none_is_left_out(recorder: LedgerProcessRecorder, start: int) -> None:
    of = uuid4()
    recorder.insert_events(events(of, start, start + 1, start + 2))
    for refused in ([start], [start + 1], [start + 2], [start + 5, start + 6], [start + 3, start + 5]):
        with pytest.raises(IntegrityError):
            recorder.insert_events([*events(uuid4(), 1), *events(of, *refused)])
    recorder.insert_events(events(of, start + 3))
    assert versions(recorder, of) == [start, start + 1, start + 2, start + 3]
    with pytest.raises(IntegrityError):
        recorder.insert_events(events(uuid4(), 7))
    assert len(recorder.select_notifications(1, 100)) == 4


def test_a_stream_from_zero_may_meet_the_ledgers_numbering(made: Made) -> None:
    first, second = made().application_recorder(), made().application_recorder()
    of = uuid4()
    first.insert_events(events(of, 0))
    first.insert_events(events(of, 1))
    first.insert_events(events(of, 2))  # now it knows that the stream is numbered from 0
    second.insert_events(events(of, 4))
    first.insert_events(events(of, 5))
    for recorder in (first, second):
        for taken in (0, 1, 2, 3, 4, 5):
            with pytest.raises(IntegrityError):
                recorder.insert_events(events(of, taken))
        assert versions(recorder, of) == [0, 1, 2, 4, 5]


def test_snapshots_may_have_gaps_and_purposes(made: Made) -> None:
    factory = made()
    snapshots, notes = factory.aggregate_recorder("snapshots"), factory.aggregate_recorder("notes")
    of = uuid4()
    snapshots.insert_events(events(of, 10, 30, 20))
    notes.insert_events(events(of, 10))
    assert [event.originator_version for event in snapshots.select_events(of, desc=True)] == [30, 20, 10]
    with pytest.raises(IntegrityError):
        snapshots.insert_events(events(of, 40, 20))
    assert len(snapshots.select_events(of)) == 3
    assert factory.application_recorder().max_notification_id() is None


# Tracking.


def test_a_notification_is_processed_once_whoever_tries(made: Made) -> None:
    recorders = [made().process_recorder() for _ in range(4)]

    def process(number: int) -> int:
        done = 0
        for notification_id in range(1, 31):
            try:
                recorders[number].insert_events(events(uuid4(), 1), tracking=Tracking("up", notification_id))
                done += 1
            except IntegrityError:
                pass
        return done

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(process, range(4)))
    # One who falls behind may find that a later notification was processed: that one then skipped nothing.
    assert sum(done) == len(recorders[0].select_notifications(1, 1000))
    assert recorders[0].max_tracking_id("up") == 30


def test_a_refused_save_leaves_its_notification_unprocessed(recorder: LedgerProcessRecorder) -> None:
    of = uuid4()
    recorder.insert_events(events(of, 1), tracking=Tracking("up", 1))
    for save in (events(of, 1), events(of, 1, 2)):
        with pytest.raises(IntegrityError):
            recorder.insert_events(save, tracking=Tracking("up", 2))
    with pytest.raises(ZeroDivisionError), recorder.processing(Tracking("up", 2)):
        _ = 1 / 0
    assert recorder.max_tracking_id("up") == 1
    recorder.insert_events(events(of, 2), tracking=Tracking("up", 2))


# Names.


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=2, unique_by=str.lower))
@settings(deadline=None)
def test_applications_do_not_share_a_schema(names: list[str]) -> None:
    one, other = (checked_schema(schema_of("ledger", name)) for name in names)
    assert one != other


def test_an_applications_schema_is_its_name_where_that_can_be() -> None:
    assert schema_of("ledger", "BankAccounts") == schema_of("ledger", "bankaccounts") == "ledger_bankaccounts"
    marked = schema_of("ledger", "Bank Accounts!")
    assert marked.startswith("ledger_bank_accounts__x")
    assert schema_of("ledger", marked.removeprefix("ledger_")) != marked
    with pytest.raises(BadName):
        schema_of("x" * 40, "a")
