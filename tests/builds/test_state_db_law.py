"""The law of StateDB: whatever is called, in whatever order, it answers as a plain model of the seed does."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from consumers.builds.state_db import StateDB
from ledger import Ledger
from ledger.builds import DeferredWrites, OutputHashEntry, RunCacheEntry, RunManifest
from ledger.builds.names import COMMITTED

names = st.sampled_from(["a", "a:b", "b:c", "c", "a/b", "\1"])
counts = st.dictionaries(names, st.integers(1, 3), max_size=2)
hashes = st.sets(st.sampled_from(["h", "a:h", "i"]), max_size=2)
runs = st.sampled_from(["r1", "r2", "r3", COMMITTED])


def entry(run_id: str, hash: str) -> RunCacheEntry:
    return RunCacheEntry(run_id=run_id, output_hashes=[OutputHashEntry(path="o", hash=hash)])


class Model(RuleBasedStateMachine):
    """A store, opened anew and deleted at times, beside dicts that hold what the seed's LMDB would."""

    log: Ledger
    folder: Path
    numbers = count()

    def __init__(self) -> None:
        super().__init__()
        self.root = self.folder / f"law{next(self.numbers)}"
        self.generations: dict[str, int] = {}
        self.contents: dict[str, str | None] = {}
        self.deps: dict[str, dict[str, int]] = {}
        self.remotes: dict[str, set[str]] = {}
        self.cache: dict[tuple[str, str], RunCacheEntry] = {}
        self.runs: list[str] = []
        self.db = self.opened()

    def opened(self) -> StateDB:
        return StateDB(self.root / "x" / "state.db", log=self.log, project=self.root.name, root=self.root)

    def teardown(self) -> None:
        self.db.close()

    @rule(deleted=st.booleans())
    def open_again(self, deleted: bool) -> None:
        self.db.close()
        if deleted:
            shutil.rmtree(self.root / "x")
        self.db = self.opened()

    def raised(self, path: str, hash: str | None) -> None:
        if hash is None or self.contents.get(path, "") != hash:
            self.generations[path] = self.generations.get(path, 0) + 1
            self.contents[path] = hash

    @rule(path=names)
    def increment(self, path: str) -> None:
        self.raised(path, None)
        assert self.db.increment_generation(self.root / path) == self.generations[path]

    @rule(stage=names, generations=counts)
    def record_deps(self, stage: str, generations: dict[str, int]) -> None:
        self.db.record_dep_generations(stage, generations)
        self.deps[stage] = generations

    @rule(remote=names, added=hashes, removed=hashes, clear=st.booleans())
    def change_remote(self, remote: str, added: set[str], removed: set[str], clear: bool) -> None:
        self.db.remote_hashes_add(remote, added)
        self.db.remote_hashes_remove(remote, removed)
        self.remotes[remote] = (self.remotes.get(remote, set()) | added) - removed
        if clear:
            self.db.remote_index_clear(remote)
            self.remotes[remote] = set()

    @rule(stage=names, input_hash=names, run=runs, outs=st.lists(names, max_size=2, unique=True), hash=names)
    def defer(self, stage: str, input_hash: str, run: str, outs: list[str], hash: str) -> None:
        made = [OutputHashEntry(path=str(self.root / path), hash=hash) for path in outs[:1]]
        deferred: DeferredWrites = {
            "dep_generations": {hash: 1}, "increment_outputs": True, "run_cache_input_hash": input_hash,
            "run_cache_entry": RunCacheEntry(run_id=run, output_hashes=made),
        }  # fmt: skip
        self.db.apply_deferred_writes(stage, [str(self.root / path) for path in outs], deferred)
        self.deps[stage] = {hash: 1}
        self.cache[stage, input_hash] = deferred["run_cache_entry"]
        for nth, path in enumerate(outs):
            self.raised(path, hash if nth == 0 else None)

    @rule(stage=names, input_hash=names, run=runs, hash=names)
    def write_cache(self, stage: str, input_hash: str, run: str, hash: str) -> None:
        self.cache[stage, input_hash] = entry(run, hash)
        self.db.write_run_cache(stage, input_hash, self.cache[stage, input_hash])

    @rule(run=runs)
    def write_run(self, run: str) -> None:
        told: Any = {"targeted_stages": [], "execution_order": [], "stages": {}}
        self.db.write_run(RunManifest(run_id=run, started_at="then", ended_at="now", **told))
        if run not in self.runs:
            self.runs.append(run)

    @precondition(lambda self: self.runs)
    @rule(retention=st.integers(1, 3))
    def prune(self, retention: int) -> None:
        gone, self.runs = self.runs[:-retention], self.runs[-retention:]
        assert self.db.prune_runs(retention) == len(gone)
        self.cache = {place: one for place, one in self.cache.items() if one["run_id"] not in gone}

    @rule(valid=st.sets(runs))
    def prune_cache(self, valid: set[str]) -> None:
        kept = {place: one for place, one in self.cache.items() if one["run_id"] in {*valid, COMMITTED}}
        assert self.db.prune_run_cache(valid) == len(self.cache) - len(kept)
        self.cache = kept

    @invariant()
    def the_store_answers_as_the_model(self) -> None:
        some = ["a", "a:b", "b:c", "c", "a/b", "\1"]
        found = self.db.get_many_generations([self.root / path for path in some])
        assert {path.relative_to(self.root).as_posix(): one for path, one in found.items()} == {
            path: self.generations.get(path) for path in some
        }
        for name in some:
            assert self.db.get_dep_generations(name) == (self.deps.get(name) or None)
            held = self.db.remote_hashes_intersection(name, {"h", "a:h", "i"})
            assert held == self.remotes.get(name, set())
            for other in some:
                assert self.db.lookup_run_cache(name, other) == self.cache.get((name, other))
        assert [run["run_id"] for run in self.db.list_runs()] == self.runs[::-1]


def test_a_store_answers_as_the_model_of_the_seed(shared: Ledger, tmp_path: Path, project: str) -> None:
    class Here(Model):
        pass

    Here.log, Here.folder = shared, tmp_path / project
    Here.TestCase.settings = settings(
        max_examples=6, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
    )
    Here.TestCase("runTest").runTest()
