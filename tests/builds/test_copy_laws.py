"""Whatever is recorded, and wherever pages of it end, the copy holds what a plain fold of the facts says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import Recorded
from ledger.builds import Dep, How, OpenOutput, OpenRemote, OpenRun, OpenStage, Out, RunStatus
from ledger.builds.manifests import StageStatus
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
    StagesDecided,
    StageStarted,
    manifest_of,
)  # fmt: skip
from ledger.builds.stage import (
    CacheEntryWritten,
    DepsRecorded,
    StageClaimed,
    StageCompleted,
    StageFailed,
    evolve,
)
from ledger.builds.stage import Stage as StageState
from ledger.domain.event import Event
from ledger.log.append import body_of
from projections.builds.environment import Environment
from projections.builds.fold import Fold
from projections.builds.reading import Snapshot

NAMES = ["a", "a:b", "b", "c/d"]
NOON = datetime(2026, 3, 25, 12, tzinfo=UTC)
name, hashes = st.sampled_from(NAMES), st.sampled_from(["1f", "2e"])
runs = st.sampled_from(["r1", "r2"])
generations = st.dictionaries(name, st.integers(1, 3), max_size=2)
outs = st.lists(st.builds(Out, name, hashes, st.booleans()), max_size=2).map(tuple)
deps = st.dictionaries(name, st.builds(Dep, hashes, st.none() | st.integers(1, 3)), max_size=2)
FACTS = {
    OpenOutput: [st.builds(OutputChanged, hash=st.none() | hashes)],
    OpenStage: [
        st.builds(StageClaimed, token=st.just(1), runner=st.just("x")),
        st.builds(
            StageCompleted, how=st.sampled_from(How), run=st.none() | runs, input_hash=hashes, deps=deps,
            outs=outs, incremental=st.booleans(),
        ),
        st.builds(StageFailed, token=st.just(1), reason=st.just("exit 1")),
        st.builds(DepsRecorded, generations=generations),
        st.builds(CacheEntryWritten, input_hash=hashes, run=runs, outs=outs),
    ],
    OpenRun: [
        st.builds(RunStarted, order=st.lists(name, max_size=2).map(tuple)),
        st.builds(StagesDecided, stages=st.tuples(st.builds(Decided, name, st.none(), st.just("unchanged")))),
        st.builds(StageStarted, stage=name),
        st.builds(StageFinished, stage=name, status=st.sampled_from([StageStatus.RAN, StageStatus.FAILED])),
        st.builds(RunEnded, status=st.just(RunStatus.COMPLETED)),
        st.builds(RunRecorded, started_at=st.just("2026-01-01T00:00:00+00:00")),
        st.builds(RunDropped, reason=st.just("retention")),
        st.builds(CacheDropped, entries=st.just(1)),
    ],
    OpenRemote: [
        st.builds(RemoteAdded, hashes=st.lists(hashes, max_size=2).map(tuple)),
        st.builds(RemoteRemoved, hashes=st.lists(hashes, max_size=2).map(tuple)),
        st.builds(RemoteCleared),
    ],
}  # fmt: skip


@st.composite
def told(draw: st.DrawFn) -> tuple[type[Any], str, Event]:
    """A fact, and the stream that it is of."""
    kind = draw(st.sampled_from([*FACTS]))
    return kind, draw(runs if kind is OpenRun else name), draw(st.one_of(FACTS[kind]))


def recorded(facts: list[tuple[type[Any], str, Event]]) -> Iterator[Recorded]:
    """The facts as a log holds them."""
    versions = dict[str, int]()
    for position, (kind, key, fact) in enumerate(facts, 1):
        stream = kind.name_of("p", key)
        versions[stream] = versions.get(stream, 0) + 1
        body = body_of(fact)
        at = NOON + timedelta(seconds=position)
        yield Recorded(position, stream, versions[stream], body.topic, body.schema, body.data, None, None, at)


class Model:
    """What the copy should say, folded without it."""

    def __init__(self, events: Iterable[Recorded]) -> None:
        self.outputs = dict[str, tuple[int, str | None]]()
        self.stages = dict[str, StageState]()
        self.cached = dict[tuple[str, str], str]()
        self.runs = dict[str, list[tuple[Event, datetime]]]()
        self.listed = list[str]()  # runs, in the order in which they began
        self.remotes = dict[str, set[str]]()
        for event in events:
            self.apply(event, event.stream.partition("/p/")[2].replace("%2F", "/"), event.event)

    def apply(self, event: Recorded, key: str, fact: Any) -> None:
        match event.stream.partition("/")[0]:
            case "build_output":
                self.outputs[key] = (event.version, fact.hash)
            case "build_stage":
                self.stages[key] = evolve(self.stages.get(key, StageState()), fact, event.recorded_at)
                completed = isinstance(fact, StageCompleted) and fact.run is not None and not fact.incremental
                if completed or isinstance(fact, CacheEntryWritten):
                    self.cached[key, fact.input_hash] = fact.run
            case "build_run":
                facts = self.runs.setdefault(key, [])
                was_listed = manifest_of(key, facts) is not None
                facts.append((fact, event.recorded_at))
                if was_listed != (manifest_of(key, facts) is not None):
                    self.listed.remove(key) if was_listed else self.listed.append(key)
                if isinstance(fact, RunDropped | CacheDropped):
                    self.cached = {place: run for place, run in self.cached.items() if run != key}
            case "build_remote":
                held = self.remotes.setdefault(key, set())
                match fact:
                    case RemoteAdded():
                        held |= {*fact.hashes}
                    case RemoteRemoved():
                        held -= {*fact.hashes}
                    case RemoteCleared():
                        held.clear()

    def check(self, now: Snapshot) -> None:
        assert now.generations(NAMES) == self.outputs
        assert now.stages(NAMES) == self.stages
        assert sorted(now.stage_names()) == sorted(self.stages)
        for stage in NAMES:
            assert now.dep_generations(stage) == self.stages.get(stage, StageState()).generations
            assert now.remote_holds(stage, ["1f", "2e"]) == self.remotes.get(stage, set())
        entries = now.run_caches([(stage, hash) for stage in NAMES for hash in ("1f", "2e")])
        assert {place: entry["run_id"] for place, entry in entries.items()} == self.cached
        for run in ("r1", "r2"):
            assert now.run(run) == manifest_of(run, self.runs.get(run, []))
            assert now.cached_by(run) == [*self.cached.values()].count(run)
        assert now.runs() == self.listed[::-1]  # the newest first


@settings(max_examples=30, deadline=None)
@given(st.lists(told(), max_size=25), st.integers(1, 8))
def test_the_entries_are_the_fold_of_the_facts(facts: list[tuple[type[Any], str, Event]], page: int) -> None:
    """W4-02, W4-07, W4-11 and W4-12 among them."""
    events = [*recorded(facts)]
    with TemporaryDirectory() as folder:
        environment = Environment(Path(folder))
        for start in range(0, len(events), page):
            some = events[start : start + page]
            assert environment.write(lambda writer, some=some: Fold(writer, "p")(some)) == len(some)
        with environment.reading() as reader:
            Model(events).check(Snapshot(reader))
        environment.close()
