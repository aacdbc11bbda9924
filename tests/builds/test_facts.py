"""Facts of builds: their topics are permanent, they are read as they were recorded, and so are the states."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ledger.builds import Dep, How, OpenOutput, OpenRemote, OpenRun, OpenStage, Out, RunStatus, StageStatus
from ledger.builds.output import OutputChanged
from ledger.builds.remote import RemoteAdded, RemoteCleared, RemoteRemoved
from ledger.builds.run import (
    CacheDropped,
    Decided,
    RunDropped,
    RunEnded,
    RunRecorded,
    RunStarted,
    StageFinished,
    StageOfRun,
    StagesDecided,
    StageStarted,
)
from ledger.builds.stage import (
    CacheEntryWritten,
    DepsRecorded,
    FileEntry,
    StageClaimed,
    StageCompleted,
    StageFailed,
    StageReleased,
)
from ledger.domain.event import Event
from ledger.domain.known import KNOWN
from ledger.domain.state import dump, load
from ledger.domain.stream import Stream
from ledger.domain.topics import read_event
from ledger.log.append import body_of

NOW = datetime(2026, 3, 25, 12, tzinfo=UTC)
FILES = {"dir/": (FileEntry("a/b.txt", "1f", 3, True),)}
OUTS = (Out("out.txt", "2e"), Out("plot.png", None, False))
FACTS: dict[type[Stream[object, Event]], list[Event]] = {  # type: ignore[type-var]
    OpenOutput: [OutputChanged(hash="1f", stage="a", run="r"), OutputChanged()],
    OpenStage: [
        StageClaimed(token=1, runner="host:7", run="r"),
        StageReleased(token=1, reason="interrupted"),
        StageClaimed(token=3, runner="host:8", after=1),
        StageFailed(token=3, reason="exit 1", run="r", duration_ms=3),
        StageCompleted(
            how=How.RAN, run="r", input_hash="0a", code={"command": "wc"}, params={"k": [1, {"x": 1.5}]},
            deps={"in": Dep("1f"), "mid": Dep("2e", 4)}, outs=OUTS, manifests=FILES, duration_ms=1,
        ),
        DepsRecorded(generations={"x": 7}),
        CacheEntryWritten(input_hash="0a", run="r", outs=OUTS, manifests=FILES),
    ],
    OpenRun: [
        RunStarted(targets=("a",), order=("a", "b"), runner="host:7", forced=True),
        StagesDecided(stages=(Decided("a", "lock", "unchanged", "0a"),)),
        StageStarted(stage="b", reason="Code changed", input_hash="0b"),
        StageFinished(stage="b", status=StageStatus.RAN, tier=None, input_hash="0b", duration_ms=2),
        RunEnded(status=RunStatus.COMPLETED),
        RunRecorded(started_at="2026-01-01T00:00:00Z", stages={"a": StageOfRun(StageStatus.RAN)}),
        CacheDropped(entries=2),
        RunDropped(reason="retention", retention=100, ran=1),
    ],
    OpenRemote: [RemoteAdded(hashes=("1f",)), RemoteRemoved(hashes=("1f",)), RemoteCleared()],
}  # fmt: skip
TOPICS = {
    "cache_dropped", "cache_entry_written", "deps_recorded", "output_changed", "remote_added",
    "remote_cleared", "remote_removed", "run_dropped", "run_ended", "run_recorded", "run_started",
    "stage_claimed", "stage_completed", "stage_failed", "stage_finished", "stage_released", "stage_started",
    "stages_decided",
}  # fmt: skip


def test_topics_are_permanent() -> None:
    """A topic that is missing here is new: add it; one that is gone made old ledgers unreadable."""
    assert {topic for topic in KNOWN.events if topic.startswith("build.")} == {
        f"build.{word}" for word in TOPICS
    }
    assert {event.topic for events in FACTS.values() for event in events} == {
        f"build.{word}" for word in TOPICS
    }


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.CATEGORY)
def test_facts_and_states_are_read_as_they_were_recorded(kind: type[Stream[object, Event]]) -> None:  # type: ignore[type-var]
    stream = kind("p", "x")
    for event in FACTS[kind]:
        stream.record(event)
        body = body_of(event)
        assert read_event(body.topic, body.schema, body.data or "") == event
        stream.settle(NOW)
        assert load(kind.STATE, dump(stream.state)) == stream.state


def test_categories_start_with_build() -> None:
    assert {kind.CATEGORY for kind in FACTS} == {"build_output", "build_stage", "build_run", "build_remote"}
