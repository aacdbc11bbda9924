"""Whatever is edited, deleted and lost: what a run leaves is what a run from nothing makes, byte by byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.builds.content_cache import remove
from ledger import Ledger

from .given_builds import GivenBuild

NAMES = ("s0", "s1", "s2", "s3", "s4")
Graph = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Stages with the inputs and the earlier stages that each reads."""
    return {
        name: (
            tuple(sorted(draw(st.sets(st.sampled_from(["i0", "i1", "i2"]), max_size=2)))),
            tuple(sorted(draw(st.sets(st.sampled_from(NAMES[:n]), max_size=2)))) if n else (),
        )
        for n, name in enumerate(NAMES)
    }  # fmt: skip


EDITS = st.one_of(
    st.tuples(st.just("input"), st.sampled_from(["i0", "i1", "i2"]), st.sampled_from("ab")),
    st.tuples(st.just("lose"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("spoil"), st.sampled_from(NAMES), st.sampled_from("ab")),
    st.tuples(st.just("cache"), st.just(""), st.just("")),
    st.tuples(st.just("copy"), st.just(""), st.just("")),
    st.tuples(st.just("param"), st.sampled_from("12"), st.just("")),
)


def declared(graph: Graph, param: str) -> str:
    """A build file: each stage writes its inputs, a parameter for even ones; the third makes a folder."""
    text = [f"[params]\nk = {param}\n"]
    for n, (name, (inputs, stages)) in enumerate(graph.items()):
        deps = [*inputs, *(f"{stage}.out" for stage in stages)]
        out = f"{name}.out"
        read = f"cat {' '.join(f'$(find {dep} -type f)' for dep in deps)} </dev/null | cut -c1-3"
        command = f"{read} > {out}" if n != 2 else f"mkdir {out}; {read} > {out}/f"
        if n % 2 == 0:
            command += f"; echo ${{params.k}} >> {out if n != 2 else out + '/f'}"
        text.append(f"[stages.{name}]\ncommand = '{command}'\ndeps = {deps}\nouts = ['{out}']\n")
    return "".join(text)


def outputs(root: Path) -> dict[str, bytes]:
    """All outputs, by their paths."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*.out*"))
        if path.is_file()
    } | {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("*.out/*")}


def edit(build: GivenBuild, graph: Graph, what: str, name: str, text: str) -> None:
    """Change, lose or spoil something."""
    out = build.root / f"{name}.out"
    match what:
        case "input":
            build.write(name, text)
        case "lose":
            remove(out)
        case "spoil":
            remove(out)
            out.write_text(text)
        case "cache":
            remove(build.root / ".pledger/builds/cache")
        case "copy":
            remove(build.root / ".pledger/builds/state.lmdb")
        case "param":
            build.declare(declared(graph, name))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs(), st.lists(st.lists(EDITS, max_size=3), max_size=4))
def test_a_run_with_skips_leaves_what_a_run_from_nothing_makes(
    log: Ledger,
    tmp_path_factory: pytest.TempPathFactory,
    graph: Graph,
    rounds: list[list[tuple[str, str, str]]],
) -> None:
    root = tmp_path_factory.mktemp("law")
    project = root.name
    build = GivenBuild(log, root / "p", declared(graph, "1"))
    for name in ("i0", "i1", "i2"):
        build.write(name, "start")
    for edits in [[], *rounds]:
        for what, name, text in edits:
            edit(build, graph, what, name, text)
        assert build.run().status == "succeeded"
        nothing = GivenBuild(log, root / "nothing", "")
        for name in ("i0", "i1", "i2"):
            shutil.copy(build.root / name, nothing.root / name)
        text = build.read("pledger-build.toml").replace('"p"', f'"nothing of {project}"')
        nothing.write("pledger-build.toml", text)
        assert nothing.run(force=True).ran == len(NAMES)
        assert outputs(build.root) == outputs(nothing.root)
