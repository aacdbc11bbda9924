"""
What is to be done with stages: the decision of `ledger.builds.skip`, made with what is on the disk now.

Many stages are decided at once: one look at all their files, one snapshot of the local copy. An output is
trusted only where it has the hash that was recorded; else it is restored, or made again (W4-01).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ledger.builds.inputs import Declared, OutSpec
from ledger.builds.manifests import RunCacheEntry
from ledger.builds.skip import Action, Decision, Tier, decide, unchanged
from ledger.errors import BadInput
from projections.builds.reading import Generation, Lock, Snapshot

from .build_file import Stage
from .code import code_manifests
from .hashing import Identity, Looked
from .paths import bare
from .project import Project


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a stage. restore: contents by the paths of outputs that lack them.

    expected_ms: how long it took last time.
    """

    stage: Stage
    declared: Declared
    decision: Decision
    restore: Mapping[str, str]
    expected_ms: int | None = None

    @property
    def is_skip(self) -> bool:
        """Whether nothing is to be done."""
        return self.decision.action is Action.SKIP and not self.restore


@dataclass(frozen=True, slots=True)
class Undecided:
    """A stage that cannot be decided, with the reason: it failed."""

    stage: Stage
    reason: str


def plan(project: Project, stages: Iterable[Stage], *, force: bool = False) -> dict[str, Plan | Undecided]:
    """Decide about stages whose dependencies are all there. Raises ServerUnavailable, StateDBError."""
    stages = [*stages]
    paths = [path for stage in stages for path in (*stage.deps, *(out.path for out in stage.outs))]
    looked = project.workspace.look(paths)
    manifests = code_manifests(project.build.root, stages, project.caches)
    made: dict[str, Plan | Undecided] = {}
    ready: list[tuple[Stage, Declared]] = []
    for stage in stages:
        declared = _declared(stage, looked, manifests[stage.name])
        if isinstance(declared, Declared):
            ready.append((stage, declared))
        else:
            made[stage.name] = Undecided(stage, declared)
    with project.copy.reading() as now:
        for one in _decided(now, ready, looked, force):
            made[one.stage.name] = _with_outputs(project, one, looked)
    return made


def deps_now(project: Project, stage: Stage) -> dict[str, str] | str:
    """The hashes of a stage's dependencies as they are now; a text that says which are missing."""
    looked = project.workspace.look(stage.deps)
    hashes = {path: found.hash for path in stage.deps if isinstance(found := looked[path], Identity)}
    return hashes if len(hashes) == len(stage.deps) else _wrong_deps(stage, looked)


@dataclass(frozen=True, slots=True)
class _Decided:
    stage: Stage
    declared: Declared
    decision: Decision
    lock: Lock | None
    entry: RunCacheEntry | None = None


def _declared(stage: Stage, looked: Mapping[str, Looked], code: dict[str, str] | BadInput) -> Declared | str:
    """The inputs of a stage as they are now, or why it fails (spec S4-40)."""
    if isinstance(code, BadInput):
        return str(code)
    deps, fresh = {}, []
    for path in stage.deps:
        found = looked[path]
        if not isinstance(found, Identity):
            return _wrong_deps(stage, looked)
        deps[path] = found.hash
        if found.fresh:
            fresh.append(path)
    outs = tuple([OutSpec(out.path, out.cache, out.incremental) for out in stage.outs])
    return Declared(code, stage.params, deps, outs, frozenset(fresh))


def _wrong_deps(stage: Stage, looked: Mapping[str, Looked]) -> str:
    wrong = {path: found for path in stage.deps if isinstance(found := looked[path], OSError)}
    missing = [path for path, error in wrong.items() if isinstance(error, FileNotFoundError)]
    if missing:
        return f"missing deps: {', '.join(missing)}"
    return "unreadable deps: " + ", ".join(f"{path} ({error.strerror})" for path, error in wrong.items())


def _decided(
    now: Snapshot, ready: list[tuple[Stage, Declared]], looked: Mapping[str, Looked], force: bool
) -> Iterator[_Decided]:
    """The decisions of the domain, from one snapshot of the copy.

    Of a stage with the recorded input hash, the snapshot need not read more.
    """
    locks = now.locks([stage.name for stage, _ in ready])
    known = now.generations({bare(path) for stage, _ in ready for path in stage.deps})
    generations = {path: known[name].generation for path in looked if (name := bare(path)) in known}
    changed = []
    for stage, declared in ready:
        lock = locks.get(stage.name)
        if lock is not None and lock.input_hash == declared.input_hash and not force:
            yield _Decided(stage, declared, unchanged(declared, lock.generations, generations), lock)
        else:
            changed.append((stage, declared))
    if not changed:
        return
    recorded = now.stages([stage.name for stage, _ in changed])
    entries = now.run_caches([(stage.name, declared.input_hash) for stage, declared in changed])
    for stage, declared in changed:
        entry = entries.get((stage.name, declared.input_hash))
        decision = decide(declared, recorded.get(stage.name), generations, entry, force=force)
        yield _Decided(stage, declared, decision, locks.get(stage.name), entry)


def _with_outputs(project: Project, one: _Decided, looked: Mapping[str, Looked]) -> Plan:
    """The plan for a decision: a skip whose outputs cannot be there becomes a run."""
    decision, expected = one.decision, one.lock.duration_ms if one.lock is not None else None
    if decision.action is Action.RUN:
        return Plan(one.stage, one.declared, decision, {}, expected)
    wanted = _wanted(one)
    restore = None if wanted is None else _to_restore(project, one.stage, wanted, looked)
    if restore is None:
        return Plan(one.stage, one.declared, decision.run_instead, {}, expected)
    return Plan(one.stage, one.declared, decision, restore, expected)


def _wanted(one: _Decided) -> dict[str, str | None] | None:
    """The content that each output must have; None where that is not known of one of them."""
    if one.decision.tier is not Tier.RUN_CACHE:
        assert one.lock is not None
        return {out.path: out.hash for out in one.lock.outs}
    if not all(out.cache for out in one.stage.outs):
        return None  # what is there now may be of other inputs
    assert one.entry is not None
    return {out["path"]: out["hash"] for out in one.entry["output_hashes"]}


def _to_restore(
    project: Project, stage: Stage, wanted: Mapping[str, str | None], looked: Mapping[str, Looked]
) -> dict[str, str] | None:
    """The contents that outputs lack; None where one of them is not in the content cache."""
    if wanted.keys() != {out.path for out in stage.outs}:
        return None  # recorded by another program
    restore: dict[str, str] = {}
    for path, content in wanted.items():
        found = looked[path]
        if content is not None and isinstance(found, Identity) and found.hash == content:
            continue
        cached = any(out.cache for out in stage.outs if out.path == path)
        if content is None or not cached or not project.contents.holds(content):
            return None
        restore[path] = content
    return restore


def generations_of(now: Snapshot, paths: Iterable[str]) -> dict[str, Generation]:
    """The generations of outputs, by their paths as they are declared."""
    paths = [*paths]
    known = now.generations({bare(path) for path in paths})
    return {path: known[bare(path)] for path in paths if bare(path) in known}
