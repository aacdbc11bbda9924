"""
The types of a pipeline's classes for type checkers: a stub beside the module that declares it.

    python -m ledger.pipelines.stub ledger.pipelines.lsm my_scenes        writes lsm.pyi, my_scenes.pyi

The stub follows from the declaration alone; a test checks that those of this package are fresh. A stub
hides other names of the module, so declare a pipeline in a module of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import ModuleType

from .declaration import Level
from .facts import Facts, FlagSet
from .item import Item, OpenItem
from .pipeline import Method, Pipeline, methods_of
from .service import StateService, service_methods

WIDTH = 110
_HEAD = '''"""Made by `python -m ledger.pipelines.stub {module}` from the declaration; change that."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, overload

from ledger.log.ledger import Ledger
from ledger.log.scope_locks import Locks
from ledger.pipelines.pipeline import Pipeline
from ledger.pipelines.facts import (
    Completed, Created, Deleted, Entered, Failed, FlagSet, Left, MadePending, Planned, ProjectCreated, Reset,
    Started, Touched,
)
from ledger.pipelines.ident import Ident
from ledger.pipelines.item import Item
from ledger.pipelines.item import OpenItem
from ledger.pipelines.readiness import BecameReady, OpenReadiness
from ledger.pipelines.service import StateService
from ledger.pipelines.service import ProjectStore
'''


def stub_of(module: ModuleType) -> str:
    """The stub of a module that declares pipelines. Raises TypeError for a module that declares none."""
    found = {name: each for name, each in vars(module).items() if isinstance(each, Pipeline)}
    own = {name: each for name, each in found.items() if each.module == module.__name__}
    if not own:
        raise TypeError(f"{module.__name__} declares no pipeline")
    lines = ["# ruff: noqa: E501, I001", "# fmt: off", _HEAD.format(module=module.__name__)]
    for name, pipeline in own.items():
        lines += [*_imports(pipeline), f"{name}: Final[Pipeline]", "", *_classes(pipeline)]
        for other, value in vars(module).items():
            if isinstance(value, StateService) and value.LEVELS is pipeline:
                lines.append(f"{other}: Final[{type(value).__name__}]")
    return _without_unused("\n".join(lines).rstrip() + "\n")


def _without_unused(text: str) -> str:
    """The stub without unused imports."""
    for name in ("Iterator", "Mapping", "overload", "BecameReady", "OpenReadiness"):
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"^.*import {name}\n|\b{name}, |, {name}\b", "", text, count=1, flags=re.MULTILINE)
    return text


def _classes(pipeline: Pipeline) -> Iterator[str]:
    for depth, level in enumerate(pipeline.levels):
        yield from _ident(pipeline, depth, level)
    for depth, level in reversed([*enumerate(pipeline.levels)]):
        yield from _view(pipeline, depth, level)
        yield from _open(pipeline, depth, level)
        yield from _facts(pipeline.kinds[depth].FACTS)
    for gate in pipeline.gates:
        ready, rounds = gate.readiness.READY.__name__, gate.readiness.__name__
        yield from [f"class {ready}(BecameReady):", f'    """{gate.readiness.READY.topic}"""', ""]
        yield from [f"class {rounds}(OpenReadiness): ...", ""]
    yield from _service(pipeline)


def _ident(pipeline: Pipeline, depth: int, level: Level) -> Iterator[str]:
    above = pipeline.kinds[depth - 1].IDENT.__name__ if depth else "Ident"
    yield "@dataclass(frozen=True)"
    body = f"\n    {level.id}: int" if depth else " ..."
    yield f"class {pipeline.kinds[depth].IDENT.__name__}({above}):{body}\n"


def _view(pipeline: Pipeline, depth: int, level: Level) -> Iterator[str]:
    yield "@dataclass(frozen=True, slots=True, kw_only=True)"
    yield f"class {pipeline.kinds[depth].STATE.__name__}({_base(pipeline, level.state, 'Item')}):"
    for name, hint, default in _fields(pipeline, depth, ""):
        yield f"    {name}: {hint}{default}"
    for method in methods_of(pipeline, depth, False):
        yield from _method(method)
    yield ""


def _open(pipeline: Pipeline, depth: int, level: Level) -> Iterator[str]:
    kind = pipeline.kinds[depth]
    base = _base(pipeline, level.base, f"OpenItem[{kind.STATE.__name__}]")
    yield f"class {kind.__name__}({base}):"
    for name, hint, _ in _fields(pipeline, depth, "State"):
        yield "    @property"
        yield f"    def {name}(self) -> {hint}: ..."
    for flag in level.flags:
        yield f"    def set_{flag.name}(self, value: bool = True) -> None: ..."
        yield f"    def reset_{flag.name}(self) -> None: ..."
    for method in methods_of(pipeline, depth, True):
        yield from _method(method)
    yield ""


def _base(pipeline: Pipeline, given: type, otherwise: str) -> str:
    """The class that is extended: the user's, if the stub does not hide it."""
    return given.__name__ if _is_far(pipeline, given) else otherwise


def _is_far(pipeline: Pipeline, given: type) -> bool:
    return given not in (Item, OpenItem) and given.__module__ != pipeline.module


def _imports(pipeline: Pipeline) -> Iterator[str]:
    """The user's classes that views and open items extend."""
    used = {given for level in pipeline.levels for given in (level.state, level.base)}
    far = {given for given in used if _is_far(pipeline, given)}
    for module in sorted({given.__module__ for given in far}):
        names = sorted(given.__name__ for given in far if given.__module__ == module)
        yield f"from {module} import {', '.join(names)}"


def _fields(pipeline: Pipeline, depth: int, opened: str) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of the fields that a level has besides the shared ones."""
    if not depth:
        yield "project_name", "str", ""
        yield from ((name, "int | None", " = None") for name in pipeline.totals)
    for above in pipeline.levels[1 : depth + 1]:
        yield above.id, "int", "" if above.default is None else f" = {above.default}"
    for flag in pipeline.levels[depth].flags:
        yield flag.name, "bool", " = False"
    if depth + 1 < len(pipeline.levels):
        child = pipeline.kinds[depth + 1]
        held = child.__name__ if opened else child.STATE.__name__
        yield pipeline.levels[depth + 1].plural, f"Mapping[int, {held}]", " = ..."


def _facts(facts: Facts) -> Iterator[str]:
    """The classes of a level's facts, each with its topic."""
    made = [getattr(facts, name) for name in Facts.__slots__ if name != "flags"]
    for fact in [*(one for one in made if "topic" in vars(one)), *facts.flags.values()]:
        shape = FlagSet if issubclass(fact, FlagSet) else fact.__mro__[1]
        yield f"class {fact.__name__}({shape.__name__}):"
        yield f'    """{fact.topic}"""'
    yield ""


def _service(pipeline: Pipeline) -> Iterator[str]:
    child = pipeline.levels[pipeline.counted]
    number = ""
    if child.parent_of and child.total:
        number = f", {child.total.name}: int = {child.total.unplanned or 1}"
    yield f"class {pipeline.prefix}StateService(StateService):"
    if number:
        yield f"    {number[2:].partition(' =')[0]}"
    yield "    def __init__("
    yield f"        self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None{number}"
    yield "    ) -> None: ..."
    for method in service_methods(pipeline):
        yield from _method(method)
    yield ""


def _method(method: Method) -> Iterator[str]:
    yield from ["    @overload"] if method.ident else []
    yield from _def(method, list(method.parameters))
    if method.ident:
        yield "    @overload"
        ident = Parameter("ident", Parameter.POSITIONAL_OR_KEYWORD, annotation=method.ident)
        yield from _def(method, [ident])


def _def(method: Method, parameters: list[Parameter]) -> Iterator[str]:
    given, starred = ["self"], False
    for each in parameters:
        if each.kind is Parameter.KEYWORD_ONLY and not starred:
            given, starred = [*given, "*"], True
        default = "" if each.default is Parameter.empty else f" = {each.default!r}"
        given.append(f"{each.name}: {each.annotation}{default}")
    line = f"    def {method.name}({', '.join(given)}) -> {method.returns}:"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"    def {method.name}("
        yield f"        {', '.join(given)}"
        yield f"    ) -> {method.returns}:"
    yield f'        """{method.doc}"""'


def main(names: list[str]) -> None:
    """Write the stub of each module beside it."""
    sys.path.insert(0, "")
    for name in names:
        module = import_module(name)
        path = Path(str(module.__file__)).with_suffix(".pyi")
        path.write_text(stub_of(module), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
