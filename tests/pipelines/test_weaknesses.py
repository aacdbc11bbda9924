"""What the origin got wrong does not happen here (spec 1.10)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ledger import Ledger, acting
from ledger.log.ledger import connect
from ledger.pipelines import LSMChannelId, LSMStateService, LSMStripId, LSMStripState
from tests.pipelines.recorded_facts import recorded

STRIP = LSMStripId("p", 1, 0, 2)


def test_w0_01_reading_writes_nothing(grown: LSMStateService, log: Ledger) -> None:
    before = recorded(log)
    for verb in ("read", "peek"):
        for project in ("p", "nobody"):
            getattr(grown, f"{verb}_project")(project)
            getattr(grown, f"{verb}_slice")(project, slice_id=1)
            getattr(grown, f"{verb}_channel")(project, slice_id=1, channel_id=0)
            getattr(grown, f"{verb}_strip")(project, slice_id=1, strip_id=2)
    assert recorded(log) == before


def test_w0_14_spellings_share_one_project_and_its_first_name_is_shown(service: LSMStateService) -> None:
    with service.open_strip("A_b", slice_id=1, strip_id=2) as strip:
        strip.mark_completed()
    with service.open_strip("a-B", slice_id=1, strip_id=2) as same:
        assert same.succeeded
    assert service.read_project("A-B").project_name == "A_b"
    assert service.read_project("a_b") == service.read_project("A-b")


def test_w0_16_times_are_aware_utc_and_the_databases(service: LSMStateService, log: Ledger) -> None:
    with service.open_strip(STRIP) as strip:
        strip.mark_started()
        inside = strip.updated_at
        strip.mark_completed()
    view = service.read_strip(STRIP)
    assert view is not None
    (at,) = {event.recorded_at for event in log.read(strip.name)}
    times = (view.created_at, view.updated_at, view.processing_started_at, view.processing_finished_at)
    assert times == (at,) * 4
    assert all(time is not None and time.utcoffset() == timedelta(0) for time in (*times, inside))
    assert strip.to_view() == view
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=5)


def test_updated_at_never_goes_back_and_is_not_before_the_end(service: LSMStateService) -> None:
    last = datetime(2000, 1, 1, tzinfo=UTC)
    changes = (
        LSMStripState.mark_started,
        LSMStripState.set_compressed,
        LSMStripState.mark_completed,
        LSMStripState.touch,
        LSMStripState.reset_compressed,
        LSMStripState.mark_failed,
    )
    for change in changes:
        with service.open_strip(STRIP) as strip:
            change(strip)
        view = service.read_strip(STRIP)
        assert view is not None
        assert view.updated_at is not None
        assert view.updated_at >= (view.processing_finished_at or last)
        assert view.updated_at >= last
        last = view.updated_at


def test_w0_20_false_through_the_service_cascades(service: LSMStateService) -> None:
    with service.open_strip(STRIP) as strip:
        strip.set_compressed()
        strip.set_uploaded()
    with service.open_strip(STRIP) as strip:
        strip.set_compressed(False)
    view = service.read_strip(STRIP)
    assert view is not None
    assert (view.compressed, view.uploaded) == (False, False)


def test_the_service_connects_when_it_is_first_used(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = LSMStateService()
    assert service.store._ledger is None
    monkeypatch.setenv("LEDGER_DSN", dsn)
    with service.open_strip(STRIP):
        pass
    with service.ledger:
        assert service.ledger is service.ledger
        with connect(dsn) as other:
            assert LSMStateService(other).read_strip(STRIP) == service.read_strip(STRIP)


def test_w0_04_a_failed_strip_is_finished_but_did_not_succeed(service: LSMStateService) -> None:
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        channel.get_or_create_strip(1).mark_completed()
        channel.get_or_create_strip(2).mark_failed("no focus")
    view = service.read_channel(LSMChannelId("p", 1, 0))
    assert view is not None
    assert (view.all_completed(2), view.all_succeeded(2)) == (True, False)
    assert view.strips[2].reason == "no focus"


def test_w0_05_a_restarted_strip_is_not_finished(service: LSMStateService) -> None:
    for change in (LSMStripState.mark_started, LSMStripState.mark_completed, LSMStripState.mark_started):
        with service.open_strip(STRIP) as strip:
            change(strip)
    channel = service.read_channel(LSMChannelId("p", 1, 0))
    assert channel is not None
    assert (channel.strips[2].finished, channel.strips[2].attempts) == (False, 2)


def test_w0_06_every_change_is_kept_with_who_and_when(service: LSMStateService, log: Ledger) -> None:
    with acting(actor="mina"), service.open_strip(STRIP) as strip:
        strip.mark_failed("no focus")
    last = log.read(strip.name)[-1]
    assert (last.topic, last.data, last.meta.actor) == ("lsm.strip.failed", '{"reason": "no focus"}', "mina")
