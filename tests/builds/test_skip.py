"""The skip decision (spec S4-40), tier by tier and reason by reason; and that it is sound, by a law."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadBody
from ledger.builds import Dep, How, OpenStage, Out, OutputHashEntry, RunCacheEntry, Stage
from ledger.builds.inputs import Declared, OutSpec, consumed, input_hash
from ledger.builds.skip import Action, Decision, Tier, changes, decide
from ledger.builds.stage import StageClaimed, StageCompleted, StageFailed
from ledger.domain.state import dump, load

NOW = datetime(2026, 3, 25, 12, tzinfo=UTC)
A, B, C = "a" * 64, "b" * 64, "c" * 64
DECLARED = Declared(
    code={"command": "wc in", "f": A},
    params={"k": 3, "deep": {"x": [1, 2.5]}},
    deps={"in": A, "mid/": B},
    outs=(OutSpec("out"), OutSpec("log", cached=False)),
)
NEW = {"in": None, "mid/": 4}
ENTRY = RunCacheEntry(run_id="r", output_hashes=[OutputHashEntry(path="out", hash=C)])


def recorded(declared: Declared = DECLARED, generations: dict[str, int] | None = None) -> Stage:
    """The state after a completion with these inputs, as the local copy reads it."""
    seen = {"mid/": 4} if generations is None else generations
    stage = OpenStage("p", "s")
    stage.complete(
        StageCompleted(
            how=How.RAN,
            input_hash=declared.input_hash,
            code=dict(declared.code),
            params=dict(declared.params),
            deps={path: Dep(hash, seen.get(path)) for path, hash in declared.deps.items()},
            outs=tuple(Out(out.path, C, out.cached) for out in declared.outs),
        )
    )
    stage.settle(NOW)
    return load(Stage, dump(stage.state), frozen=False)


def test_a_stage_that_never_ran_runs() -> None:
    for nothing in (None, Stage()):
        assert decide(DECLARED, nothing, {}) == (Action.RUN, None, "No previous run", "No previous run")


def test_only_outputs_have_generations_so_a_source_file_is_compared_by_its_hash() -> None:
    assert decide(DECLARED, recorded(), NEW).reason == "unchanged"


ALL = {"in": 2, "mid/": 4}


def test_all_generations_equal_is_the_first_tier() -> None:
    found = decide(DECLARED, recorded(generations=ALL), ALL)
    assert found == (Action.SKIP, Tier.GENERATION, "unchanged (generation)", "outputs missing from cache")
    assert (
        decide(replace(DECLARED, deps={}), recorded(replace(DECLARED, deps={})), {}).tier == Tier.GENERATION
    )


@pytest.mark.parametrize(
    ("declared", "present"),
    [
        (DECLARED, {"in": 2, "mid/": 5}),
        (DECLARED, {"in": 2}),
        (replace(DECLARED, rehashed=frozenset({"in"})), ALL),
    ],
    ids=["another generation of the same content", "no generation", "hashed anew"],
)
def test_equal_hashes_are_the_second_tier(declared: Declared, present: dict[str, int | None]) -> None:
    found = decide(declared, recorded(generations=ALL), present)
    assert found == (Action.SKIP, Tier.LOCK, "unchanged", "outputs missing from cache")


CHANGES = [
    (replace(DECLARED, code={"command": "wc -l in", "f": A}), "Code changed"),
    (replace(DECLARED, code={"command": "wc in"}), "Code changed"),
    (replace(DECLARED, params={"k": 4, "deep": {"x": [1, 2.5]}}), "Params changed"),
    (replace(DECLARED, params={"k": 3.0, "deep": {"x": [1, 2.5]}}), "Params changed"),
    (replace(DECLARED, params={"k": 3, "deep": {"x": [True, 2.5]}}), "Params changed"),
    (replace(DECLARED, params={"k": 3, "deep": {"x": [1, 2.5, 3]}}), "Params changed"),
    (replace(DECLARED, deps={"in": B, "mid/": B}), "Input dependencies changed"),
    (replace(DECLARED, deps={"in": A}), "Input dependencies changed"),
    (replace(DECLARED, deps={"in": A, "mid/": B, "more": C}), "Input dependencies changed"),
    (replace(DECLARED, outs=(OutSpec("out"),)), "Output paths changed"),
    (replace(DECLARED, code={}, params={}, deps={}, outs=()), "Code changed"),
    (replace(DECLARED, params={}, deps={}, outs=()), "Params changed"),
    (replace(DECLARED, deps={}, outs=()), "Input dependencies changed"),
]


@pytest.mark.parametrize(("declared", "reason"), CHANGES)
def test_what_changed_is_the_reason_in_this_order(declared: Declared, reason: str) -> None:
    assert decide(declared, recorded(generations=ALL), ALL) == (Action.RUN, None, reason, reason)


def test_w4_03_a_removed_dependency_is_noticed_although_all_generations_are_equal() -> None:
    without = replace(DECLARED, deps={"mid/": B})
    assert decide(without, recorded(generations=ALL), ALL).reason == "Input dependencies changed"


def test_w4_02_an_equal_generation_does_not_hide_other_content() -> None:
    edited = replace(DECLARED, deps={"in": A, "mid/": C})
    assert decide(edited, recorded(generations=ALL), ALL).reason == "Input dependencies changed"


def test_the_run_cache_is_the_third_tier() -> None:
    changed = replace(DECLARED, params={"k": 4})
    assert decide(changed, recorded(), NEW, ENTRY) == Decision(
        Action.RESTORE, Tier.RUN_CACHE, "unchanged (run cache)", "Params changed"
    )
    assert decide(changed, None, NEW, ENTRY).run_instead.reason == "No previous run"


@pytest.mark.parametrize(
    "declared",
    [
        replace(DECLARED, params={}, outs=(OutSpec("out", incremental=True),)),
        replace(DECLARED, params={}, outs=(OutSpec("out"), OutSpec("log"))),
        replace(DECLARED, params={}, outs=(OutSpec("log", cached=False),)),
    ],
    ids=["incremental", "one is not in it", "one is not declared"],
)
def test_an_entry_with_other_outputs_restores_nothing(declared: Declared) -> None:
    assert decide(declared, None, {}, ENTRY).action == Action.RUN


def test_an_output_without_hash_cannot_be_restored() -> None:
    entry = RunCacheEntry(run_id="r", output_hashes=[OutputHashEntry(path="out", hash=None)])
    assert decide(DECLARED, None, {}, entry).action == Action.RUN


def test_force_disables_all_tiers() -> None:
    assert decide(DECLARED, recorded(generations=ALL), ALL, ENTRY, force=True) == (
        Action.RUN, None, "forced", "forced",
    )  # fmt: skip


def test_a_skip_whose_outputs_cannot_be_restored_becomes_a_run() -> None:
    found = decide(DECLARED, recorded(), NEW).run_instead
    assert found == (Action.RUN, None, "outputs missing from cache", "outputs missing from cache")


def test_a_failure_since_does_not_make_a_stage_run_again() -> None:
    stage = OpenStage("p", "s")
    stage.restore(recorded(), 1)
    stage.replay(StageClaimed(token=2, runner="r"), NOW)
    stage.replay(StageFailed(token=2, reason="exit 1"), NOW)
    assert decide(DECLARED, stage.state, NEW).reason == "unchanged"


# The input hash (spec S4-34)


def test_s4_34_the_input_hash_does_not_depend_on_order_and_has_64_digits() -> None:
    backwards = Declared(
        dict(reversed(DECLARED.code.items())), DECLARED.params, dict(reversed(DECLARED.deps.items())),
        DECLARED.outs[::-1],
    )  # fmt: skip
    direct = input_hash(DECLARED.code, DECLARED.params, DECLARED.deps, DECLARED.outs)
    assert backwards.input_hash == DECLARED.input_hash == direct
    assert len(DECLARED.input_hash) == 64


def test_s4_34_the_input_hash_changes_with_each_part() -> None:
    others = [one for one, _ in CHANGES] + [
        replace(DECLARED, outs=(OutSpec("out", cached=False), OutSpec("log", cached=False))),
        replace(DECLARED, outs=(OutSpec("out2"), OutSpec("log", cached=False))),
    ]
    assert len({one.input_hash for one in [DECLARED, *others]}) == len(others) + 1


def test_inputs_that_are_not_json_are_refused() -> None:
    with pytest.raises(BadBody):
        assert Declared(params={"x": float("nan")}).input_hash


# Dependencies as they were consumed


def test_w4_04_a_generation_is_recorded_only_for_the_content_that_was_consumed() -> None:
    outputs = {"mid": (5, C), "kept": (2, B), "unknown": (3, None), "gone": None}
    deps = {"mid": B, "kept": B, "unknown": B, "gone": B, "source": A}
    assert consumed(deps, outputs) == {
        "gone": (B, None), "kept": (B, 2), "mid": (B, None), "source": (A, None), "unknown": (B, None),
    }  # fmt: skip


# The law: a skip is sound

values = st.recursive(
    st.sampled_from([0, 1, True, 1.0, "a", None]), lambda one: st.lists(one, max_size=2), max_leaves=3
)
small = st.dictionaries(st.sampled_from("xy"), values, max_size=2)
contents = st.sampled_from([A, B])
stages = st.builds(
    Declared,
    code=small,
    params=small,
    deps=st.dictionaries(st.sampled_from(["d", "e"]), contents, max_size=2),
    outs=st.sets(st.sampled_from(["o", "q"]), max_size=2).map(
        lambda paths: tuple(map(OutSpec, sorted(paths)))
    ),
)
counters = st.dictionaries(st.sampled_from(["d", "e"]), st.integers(1, 2), max_size=2)


@settings(max_examples=100, deadline=None)
@given(stages, stages, st.booleans(), counters, counters)
def test_a_skip_is_sound(
    one: Declared, other: Declared, same: bool, seen: dict[str, int], now: dict[str, int]
) -> None:
    """A stage is skipped without the run cache if and only if its input hash is the recorded one."""
    declared = Declared(one.code, one.params, one.deps, one.outs) if same else other
    found = decide(declared, recorded(one, seen), now)
    assert (found.action == Action.SKIP) == (declared.input_hash == one.input_hash)
    assert (changes(declared, recorded(one, seen)) is None) == (found.action == Action.SKIP)
    by_generation = all(
        seen.get(path) is not None and seen.get(path) == now.get(path) for path in declared.deps
    )
    assert (found.tier == Tier.GENERATION) == (found.action == Action.SKIP and by_generation)
