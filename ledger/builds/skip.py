"""
The decision whether a stage runs, is skipped, or is restored (spec S4-40): a function of its inputs, of what
its last completion recorded, of the present generations, and of the run cache. It reads nothing by itself.

1. generation: code, parameters, output paths and dependencies are the recorded ones, and so is the generation
   of each dependency, whose file has not changed by its metadata
2. lock: code, parameters, hashes of dependencies and output paths are the recorded ones
3. run cache: some run made the outputs of exactly these inputs

A skip is sound at each tier, because the hash of every dependency is compared at each: no stage is skipped on
content that it has not seen (W4-02). A dependency that was removed is noticed at each tier (W4-03).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ..domain.frozen import FrozenDict, items_of
from .inputs import Declared
from .manifests import RunCacheEntry
from .stage import Stage


class Action(StrEnum):
    """What a runner does with a stage. RESTORE: its outputs are taken from the content cache."""

    RUN = "run"
    SKIP = "skip"
    RESTORE = "restore"


class Tier(StrEnum):
    """The comparison that decided a skip."""

    GENERATION = "generation"
    LOCK = "lock"
    RUN_CACHE = "run cache"


class Decision(NamedTuple):
    """What is decided of a stage, and why. tier: None where it runs.

    otherwise: the reason why it runs after all, where its outputs cannot be restored.
    """

    action: Action
    tier: Tier | None
    reason: str
    otherwise: str

    @property
    def run_instead(self) -> Decision:
        """The decision where the outputs cannot be restored."""
        return Decision(Action.RUN, None, self.otherwise, self.otherwise)


NO_PREVIOUS_RUN: Final = "No previous run"
CODE_CHANGED: Final = "Code changed"
PARAMS_CHANGED: Final = "Params changed"
DEPS_CHANGED: Final = "Input dependencies changed"
OUTPUTS_CHANGED: Final = "Output paths changed"
OUTPUTS_MISSING: Final = "outputs missing from cache"
FORCED: Final = "forced"
UNCHANGED: Final = "unchanged"

_BY_GENERATION: Final = Decision(Action.SKIP, Tier.GENERATION, "unchanged (generation)", OUTPUTS_MISSING)
_BY_LOCK: Final = Decision(Action.SKIP, Tier.LOCK, UNCHANGED, OUTPUTS_MISSING)


def decide(
    declared: Declared,
    recorded: Stage | None,
    generations: Mapping[str, int | None],
    entry: RunCacheEntry | None = None,
    *,
    force: bool = False,
) -> Decision:
    """Decide about a stage; recorded: its state, None where nothing is recorded.

    generations: the present one of each dependency that is an output, by its path as declared. entry: of the
    run cache for this stage and input hash; only needed where the stage has changed (`changes`). The outputs
    of a skip must still be there or be restored; a runner that cannot takes `run_instead`.
    """
    if force:
        return Decision(Action.RUN, None, FORCED, FORCED)
    reason = changes(declared, recorded)
    if reason is None:
        assert recorded is not None
        return unchanged(declared, recorded.generations, generations)
    if entry is not None and _fits(declared, entry):
        return Decision(Action.RESTORE, Tier.RUN_CACHE, "unchanged (run cache)", reason)
    return Decision(Action.RUN, None, reason, reason)


def unchanged(
    declared: Declared, recorded: Mapping[str, int], generations: Mapping[str, int | None]
) -> Decision:
    """The skip of a stage whose inputs are the recorded ones, by the recorded and the present generations."""
    return _BY_GENERATION if _same_generations(declared, recorded, generations) else _BY_LOCK


def changes(declared: Declared, recorded: Stage | None) -> str | None:
    """The first reason why a stage is not what its last completion recorded; None where it is.

    Equal input hashes are equal inputs; only other ones are compared part by part.
    """
    if recorded is None or recorded.input_hash is None:
        return NO_PREVIOUS_RUN
    if recorded.input_hash == declared.input_hash:
        return None
    if not _same(declared.code, recorded.code):
        return CODE_CHANGED
    if not _same(declared.params, recorded.params):
        return PARAMS_CHANGED
    if not _same(declared.deps, recorded.deps):
        return DEPS_CHANGED
    if sorted([out.path for out in declared.outs]) != sorted([out.path for out in recorded.outs]):
        return OUTPUTS_CHANGED
    return None


def _same_generations(
    declared: Declared, recorded: Mapping[str, int], generations: Mapping[str, int | None]
) -> bool:
    """Whether every dependency is the output that was consumed, by its generation and its metadata."""
    if declared.rehashed:
        return False
    seen = _plain(recorded)
    for path in declared.deps:
        generation = seen.get(path)
        if generation is None or generations.get(path) != generation:
            return False
    return True


def _fits(declared: Declared, entry: RunCacheEntry) -> bool:
    """Whether an entry of the run cache has exactly the outputs that are to be cached."""
    if any(out.incremental for out in declared.outs):
        return False
    wanted = sorted([out.path for out in declared.outs if out.cached])
    found = entry["output_hashes"]
    return wanted == sorted([out["path"] for out in found]) and all(out["hash"] for out in found)


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, and of the same kind: 1, 1.0 and True are three values."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        for key, value in one.items():  # noqa: SIM110 - `all` with a generator takes twice as long
            if key not in other or not _same(value, other[key]):
                return False
        return True
    if isinstance(one, list | tuple):
        if not isinstance(other, list | tuple) or len(one) != len(other):
            return False
        return all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _plain(value: Any) -> Any:
    """The dict inside a FrozenDict, any other value as it is: looking into a FrozenDict takes far longer."""
    return items_of(value) if type(value) is FrozenDict else value
