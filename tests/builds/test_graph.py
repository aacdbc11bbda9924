"""The graph: who needs whose outputs, in which order; circles and two producers of one path are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.builds.build_file import BuildFile, Out, Stage
from consumers.builds.graph import Graph, graph_of
from ledger.errors import BadInput


def graph(**stages: tuple[list[str], list[str]]) -> Graph:
    """The graph of stages, each its dependencies and its outputs."""
    made = {
        name: Stage(name, "x", "x", tuple(deps), tuple(map(Out, outs)))
        for name, (deps, outs) in stages.items()
    }
    return graph_of(BuildFile(Path("/p/b.toml"), "p", Path("/c"), "copy", made))


@pytest.mark.parametrize(
    ("dep", "out"),
    [
        ("a.txt", "a.txt"),
        ("d/e/a.txt", "d"),
        ("d/e/a.txt", "d/"),
        ("d", "d/e/a.txt"),
        (".", "a"),
        ("d/", "d"),
    ],
)
def test_a_stage_needs_another_by_paths_that_overlap(dep: str, out: str) -> None:
    assert graph(two=([dep], ["z/z" if dep != "." else "/z"]), one=([], [out])).needs["two"] == {"one"}


@pytest.mark.parametrize(("dep", "out"), [("d/a", "d/ab"), ("d-e", "d"), ("da", "d/"), ("d", "d-e/a")])
def test_names_that_only_begin_alike_are_no_need(dep: str, out: str) -> None:
    assert graph(two=([dep], ["z"]), one=([], [out])).needs["two"] == set()


def test_targets_take_what_they_need_with_them() -> None:
    whole = graph(**{"a@1": ([], ["a1"]), "a@2": ([], ["a2"]), "b": (["a1"], ["b"]), "c": (["b"], [])})
    assert whole.of(["b"]).order == ("a@1", "b")
    assert set(whole.of(["a"]).order) == {"a@1", "a@2"}
    assert whole.of([]) is whole
    assert whole.needed_by() == {"a@1": ["b"], "a@2": [], "b": ["c"], "c": []}
    with pytest.raises(BadInput, match=r"no stage 'd'; the stages are a@1, a@2, b, c"):
        whole.of(["d"])


@pytest.mark.parametrize(
    ("stages", "wrong"),
    [
        ({"a": (["x"], ["y"]), "b": (["y"], ["x"])}, "circle: (a needs b needs a|b needs a needs b)"),
        ({"a": (["x"], ["x"])}, "a depends on its own output"),
        ({"a": (["d/"], ["d/e"])}, "a depends on its own output"),
        ({"a": ([], ["x"]), "b": ([], ["x"])}, "x is an output of a and of b"),
        ({"a": ([], ["d/"]), "b": ([], ["d/e/x"])}, "d/e/x, an output of b, is in d, an output of a"),
    ],
)
def test_what_cannot_be_built_is_refused(stages: dict[str, tuple[list[str], list[str]]], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        graph(**stages)


@given(st.lists(st.tuples(st.sets(st.integers(0, 9)), st.booleans()), max_size=10))
def test_the_order_respects_every_need(wanted: list[tuple[set[int], bool]]) -> None:
    stages = {
        f"s{n}": ([f"out{dep}/f" if folder else f"out{dep}" for dep in deps if dep < n], [f"out{n}"])
        for n, (deps, folder) in enumerate(wanted)
    }
    found = graph(**stages)
    assert sorted(found.order) == sorted(stages)
    for n, (deps, _) in enumerate(wanted):
        assert found.needs[f"s{n}"] == {f"s{dep}" for dep in deps if dep < n}
        assert all(found.order.index(f"s{dep}") < found.order.index(f"s{n}") for dep in deps if dep < n)
