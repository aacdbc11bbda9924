"""
The graph of a build: which stage needs the outputs of which.

A stage needs another one where one of its dependencies is an output of that stage, lies in an output that is
a folder, or is a folder in which an output lies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from ledger.errors import BadInput, shown

from .build_file import BuildFile, Stage
from .paths import bare


@dataclass(frozen=True, slots=True)
class Graph:
    """The stages of a build. needs: of each stage the stages right before it. order: all, those first."""

    stages: Mapping[str, Stage]
    needs: Mapping[str, frozenset[str]]
    order: tuple[str, ...]

    def needed_by(self) -> dict[str, list[str]]:
        """Of each stage the stages right after it."""
        found: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for before in self.needs[name]:
                found[before].append(name)
        return found

    def of(self, targets: Collection[str]) -> Graph:
        """The graph of these stages and all that they need; `count` also names `count@a`. All if none.

        Raises BadInput where there is no such stage.
        """
        if not targets:
            return self
        wanted: set[str] = set()
        left = list(chain.from_iterable(self._named(target) for target in targets))
        while left:
            name = left.pop()
            if name not in wanted:
                wanted.add(name)
                left += self.needs[name]
        order = tuple(name for name in self.order if name in wanted)
        return Graph(
            {name: self.stages[name] for name in order}, {name: self.needs[name] for name in order}, order
        )

    def _named(self, target: str) -> list[str]:
        if target in self.stages:
            return [target]
        found = [name for name in self.order if name.startswith(f"{target}@")]
        if not found:
            raise BadInput(f"there is no stage {shown(target)}; the stages are {_listed(self.order)}")
        return found


def graph_of(build: BuildFile) -> Graph:
    """The graph of a build file. Raises BadInput for a cycle, and for an output of two stages."""
    stages = build.stages
    producers = _producers(stages.values())
    outs = sorted(producers)
    needs = {}
    for name, stage in stages.items():
        found = {producers[out] for dep in stage.deps for out in _overlapping(bare(dep), producers, outs)}
        if name in found:
            raise BadInput(f"the stage {name} depends on its own output")
        needs[name] = frozenset(found)
    return Graph(stages, needs, _ordered(needs))


def _producers(stages: Iterable[Stage]) -> dict[str, str]:
    """Outputs and the stage that produces each. Raises BadInput where two stages, or two outputs, overlap."""
    found: dict[str, str] = {}
    for stage in stages:
        for out in stage.outs:
            path = bare(out.path)
            if path in found:
                raise BadInput(f"{path} is an output of {found[path]} and of {stage.name}")
            found[path] = stage.name
    for path, name in found.items():
        for folder in _above(path):
            if folder in found:
                raise BadInput(f"{path}, an output of {name}, is in {folder}, an output of {found[folder]}")
    return found


def _overlapping(dep: str, producers: Mapping[str, str], outs: list[str]) -> Iterator[str]:
    """The outputs that a dependency is, lies in, or contains. outs: all, sorted."""
    if dep in producers:
        yield dep
        return
    yield from (folder for folder in _above(dep) if folder in producers)
    inside = "" if dep == "." else f"{dep}/"
    for place in range(bisect_left(outs, inside), len(outs)):
        if not outs[place].startswith(inside):
            break
        if inside or not outs[place].startswith("/"):
            yield outs[place]


def _above(path: str) -> Iterator[str]:
    """The folders in which a path lies."""
    at = path.rfind("/")
    while at > 0:
        path = path[:at]
        yield path
        at = path.rfind("/")


def _ordered(needs: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise BadInput(f"stages need each other in a circle: {' needs '.join(error.args[1][::-1])}") from None


def _listed(names: Collection[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
