"""
A pipeline is one value: its levels. Everything else follows from them.

A pipeline creates, as names of the module that declares it, for each level an ident (`ScenesTileId`), a
frozen view (`ScenesTileStateView`), the open item (`ScenesTileState`) and the facts
(`ScenesTileCompleted`); also the readiness of levels, the sets that progress counts, the view `scenes_items`,
the external names, the commands `pledger scenes …` and the reports. `service_of(SCENES)` makes the service,
and stub.py the types of all this for type checkers.

A pipeline that cannot work is refused as a whole, with a sentence. It can be declared again.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from inspect import Parameter, Signature
from itertools import pairwise
from types import new_class
from typing import Any, Final, overload

from ..domain.barrier import Barrier, Outcome
from ..domain.domain import Domain
from ..domain.known import KNOWN
from ..domain.names import checked_id
from ..domain.sets import Total as TotalOfSet
from ..domain.sets import UnitSet
from .checks import check
from .declaration import Every, Level, Report, Total
from .facts import (
    Facts,
    Status,
)
from .ident import Ident
from .item import Item, OpenItem, below, flag, id_of_level, named, total
from .readiness import BecameReady, Gate, OpenReadiness

PIPELINES: Final[dict[str, Pipeline]] = {}
"""Every pipeline that this process has imported, by name."""


class Pipeline(Sequence[type[OpenItem[Any]]]):
    """A pipeline; as a sequence: the open classes of its levels, the project's first.

    name: the first word of streams and topics, and of the commands. It is permanent, as topics are. prefix:
    of the names of its classes. outside: the root of its external names, such as `org.example`; None: it has
    none. summary, listing: its reports. module: where its classes are defined, by default the caller's.
    Raises TypeError for a pipeline that cannot work.
    """

    def __init__(
        self,
        name: str,
        levels: Sequence[Level],
        *,
        help: str = "",
        prefix: str = "",
        outside: str | None = None,
        summary: Report | None = None,
        listing: Report | None = None,
        module: str | None = None,
    ) -> None:
        self.name, self.levels = name, tuple(levels)
        self.prefix = prefix or str(name).replace("_", " ").title().replace(" ", "")
        self.outside, self.module = outside, module or sys._getframe(1).f_globals["__name__"]
        check(self)
        self.help = help or f"Projects of {name}: {' of '.join(level.plural for level in self.levels[1:])}."
        self.summary, self.listing = summary or self._summary(), listing or self._listing()
        # The depth of the level whose ids are unique in the whole project; 0 where there is none.
        self.counted = next((depth for depth, level in enumerate(self.levels) if level.parent_of), 0)
        self.kinds = _kinds(self)
        self.idents = tuple(kind.IDENT for kind in self.kinds)
        self.gates = tuple(_gates(self))
        self.names_outside = dict(_names_outside(self))
        self._declare()

    @overload
    def __getitem__(self, place: int) -> type[OpenItem[Any]]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[type[OpenItem[Any]]]: ...
    def __getitem__(self, place: Any) -> Any:
        return self.kinds[place]

    def __len__(self) -> int:
        return len(self.kinds)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {', '.join(level.name for level in self.levels)}>"

    @property
    def below(self) -> tuple[Level, ...]:
        """The levels below the project."""
        return self.levels[1:]

    @property
    def leaf(self) -> Level:
        """The last level."""
        return self.levels[-1]

    @property
    def names(self) -> list[str]:
        """The names of the levels below the project."""
        return [level.name for level in self.below]

    @property
    def totals(self) -> dict[str, Total]:
        """The totals that a plan sets, the number of leaves first."""
        return {level.total.name: level.total for level in reversed(self.levels) if level.total}

    def ident(self, project: str, ids: Mapping[str, int]) -> Ident:
        """The ident of the item with these ids, given by names of levels. Raises BadName."""
        return self.kinds[len(ids)].IDENT(project, *ids.values())

    def _summary(self) -> Report | None:
        """The progress of each parent of leaves; None where there is only the project."""
        if len(self.levels) == 1:
            return None
        counts = ("total", "started", "running", "completed", "flags", "made", "progress")
        ids = [level.name for level in self.levels[1:-1]]
        return Report(f"{self.prefix} progress", f"{{project}}-{self.name}-progress", (*ids, *counts))

    def _listing(self) -> Report | None:
        """Every leaf of one parent; None where there is only the project."""
        if len(self.levels) == 1:
            return None
        of = self.levels[-2]
        path = "".join(f"-{name}-{{{name}}}" for name in self.names[:-1])
        which = of.name if of in self.below else "project"
        title = f"{of.heading} {{{which}}}: every {self.leaf.name}"
        key = f"{{project}}-{self.name}{path}-{self.leaf.plural}"
        return Report(title, key, (self.leaf.name, "processing", "flags"), of.name)

    def _declare(self) -> None:
        """Register the pipeline in this process, which announces its sets to ledgers."""
        PIPELINES[self.name] = self
        domain = next((one for one in KNOWN.domains.values() if one.packages == (self.module,)), None)
        (domain or Domain(self.name, self.module)).count(*_sets(self))


# Its classes


def _kinds(pipeline: Pipeline) -> tuple[type[OpenItem[Any]], ...]:
    """The open classes, with ident and view, set as names of the declaring module, so that pickle works."""
    idents = _idents(pipeline)
    kinds: list[type[OpenItem[Any]]] = []
    for depth in range(len(pipeline.levels) - 1, -1, -1):  # a view holds views of the level below
        level = pipeline.levels[depth]
        state = _state(pipeline, depth, kinds[0].STATE if kinds else None)
        body = {
            **_class_of(pipeline, f"{pipeline.prefix}{level.camel}State", f"A {level.name} open for change."),
            **{method.name: method.function(pipeline.module) for method in methods_of(pipeline, depth, True)},
            "CATEGORY": f"{pipeline.name}.{level.name}",
            "STATE": state,
            "IDENT": idents[depth],
        }
        kinds.insert(0, _class(pipeline, level.base, body))
    return tuple(kinds)


def _idents(pipeline: Pipeline) -> list[type[Ident]]:
    idents: list[type[Ident]] = []
    for above, level in zip([None, *pipeline.levels], pipeline.levels, strict=False):
        body = _class_of(pipeline, f"{pipeline.prefix}{level.camel}Id", f"Who a {level.name} is.")
        fields = [(level.id, int)] if above else []
        bases = (idents[-1],) if above else (Ident,)
        made = dataclasses.make_dataclass(
            body["__qualname__"], fields, bases=bases, namespace=body, frozen=True
        )
        idents.append(_made(pipeline, made))
    return idents


def _state(pipeline: Pipeline, depth: int, child: type[Item] | None) -> Any:
    level = pipeline.levels[depth]
    fields: list[Any] = [] if depth else [("project_name", str)]
    for above in pipeline.levels[1 : depth + 1]:
        fields.append((above.id, int, id_of_level(MISSING if above.default is None else above.default)))
    fields += [(each.name, bool, flag(clears=each.clears)) for each in level.flags]
    if not depth:
        fields += [(name, int | None, total()) for name in pipeline.totals]
    if child is not None:
        fields.append((pipeline.levels[depth + 1].plural, Mapping[int, child], below()))  # type: ignore[valid-type]
    doc = f"A {level.name} as it is{' with all that is below it' if child else ''}."
    body = {
        **_class_of(pipeline, f"{pipeline.prefix}{level.camel}StateView", doc),
        **{method.name: method.function(pipeline.module) for method in methods_of(pipeline, depth, False)},
    }
    ways: dict[str, Any] = {"bases": (level.state,), "frozen": True, "slots": True, "kw_only": True}
    return _made(pipeline, dataclasses.make_dataclass(body["__qualname__"], fields, namespace=body, **ways))


def _class_of(pipeline: Pipeline, name: str, doc: str) -> dict[str, Any]:
    return {"__module__": pipeline.module, "__qualname__": name, "__doc__": doc}


def _class(pipeline: Pipeline, base: type, body: dict[str, Any], **keywords: Any) -> Any:
    """A class with this body."""
    return _made(
        pipeline, new_class(body["__qualname__"], (base,), keywords, lambda names: names.update(body))
    )


def _made(pipeline: Pipeline, made: Any) -> Any:
    """The class, also set as a name of the declaring module."""
    setattr(sys.modules[pipeline.module], made.__name__, made)
    return made


# Methods


@dataclass(frozen=True, slots=True)
class Method:
    """A generated method: its parameters, its return type as the stub spells it, and its function.

    ident: the class of ident that may be given instead of the parameters. call: takes the object, then the
    value of each parameter in order, or the ident.
    """

    name: str
    parameters: tuple[Parameter, ...]
    returns: str
    doc: str
    call: Callable[..., Any]
    ident: str = ""

    def function(self, module: str) -> Callable[..., Any]:
        """The method itself."""
        call, takes_ident, count = self.call, bool(self.ident), len(self.parameters)
        plain = all(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in self.parameters)
        owner = Parameter("self", Parameter.POSITIONAL_ONLY)
        form = Signature([owner, *(each.replace(annotation=Parameter.empty) for each in self.parameters)])

        def method(self: Any, /, *args: Any, **given: Any) -> Any:
            if plain and not given and len(args) == count and not takes_ident:
                return call(self, *args)
            if takes_ident:
                (ident,) = (*args, *given.values()) if len(args) + len(given) == 1 else (None,)
                if isinstance(ident, Ident):
                    return call(self, ident)
            bound = form.bind(self, *args, **given)
            bound.apply_defaults()
            return call(*bound.arguments.values())

        method.__signature__ = form  # type: ignore[attr-defined]
        return named(method, self.name, self.doc, module)  # type: ignore[no-any-return]


def parameter(
    name: str, hint: str = "int", default: Any = Parameter.empty, *, only: bool = False
) -> Parameter:
    """A parameter; only: keyword only."""
    kind = Parameter.KEYWORD_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(name, kind, default=default, annotation=hint)


def methods_of(pipeline: Pipeline, depth: int, opened: bool) -> Iterator[Method]:
    """The methods of a level's items, besides their fields. opened: include those that create and delete."""
    for target in range(depth + 1, len(pipeline.levels)):
        levels = pipeline.levels[depth + 1 : target + 1]
        title = f"{pipeline.prefix}{levels[-1].camel}"
        ident = f"{title}Id" if target > 1 and not depth else ""  # else its id is enough
        yield from _looking(depth, levels, f"{title}State{'' if opened else 'View'}", ident)
        if opened:
            yield from _making(depth, levels, f"{title}State", ident)
    for every in pipeline.levels[depth].every:
        child, hint = pipeline.levels[depth + 1], "int | None" if every.default is None else "int"
        doc = f"Whether every expected {child.name} is there and {every.quality.replace('_', ' ')}."
        expected = parameter(every.parameter, hint, every.default)
        yield Method(every.name, (expected,), "bool", doc, _asking(every, child))


def _looking(depth: int, levels: Sequence[Level], kind: str, ident: str) -> Iterator[Method]:
    """The methods that find an item below, and iterate over all of them."""
    name, found, find = levels[-1].name, f"{kind} | None", _finding(depth, levels)
    doc = f"The {name}, None where any part of the way to it is missing."
    yield Method(f"get_{name}", _ids(levels), found, doc, find, ident)
    doc = f"Every {name}, by its ids."
    yield Method(f"iter_{levels[-1].plural}", (), f"Iterator[{kind}]", doc, _walking(levels))
    if ident:
        yield _by_parts(f"get_{name}", levels, found, find)


def _making(depth: int, levels: Sequence[Level], kind: str, ident: str) -> Iterator[Method]:
    """The methods that create and delete an item below."""
    name, create = levels[-1].name, _creating()
    doc = f"The {name}, created where there is none, with what is missing above it."
    yield Method(f"get_or_create_{name}", _ids(levels), kind, doc, create, ident)
    if ident:
        yield _by_parts(f"get_or_create_{name}", levels, kind, create)
    if not depth:
        doc = f"Delete a {name} with all below it; False, and nothing changes, where there is none."
        yield Method(f"delete_{name}", _ids(levels), "bool", doc, _deleting(_finding(depth, levels)))


def _by_parts(name: str, levels: Sequence[Level], returns: str, call: Callable[..., Any]) -> Method:
    """The same method with ids as parameters only; those with a default value come last."""
    given = _defaults_last(levels)
    names = [each.name for each in given]
    order = [names.index(level.id) for level in levels]
    return Method(
        f"{name}_by_parts", given, returns, "The same; mind the order of the ids.", _reordered(call, order)
    )


def _ids(levels: Sequence[Level]) -> tuple[Parameter, ...]:
    return tuple(parameter(level.id) for level in levels)


def _defaults_last(levels: Sequence[Level]) -> tuple[Parameter, ...]:
    """The ids on the path to an item; those with a default value come last."""
    known = [
        level.default if level is not levels[-1] and level.default is not None else Parameter.empty
        for level in levels
    ]
    ids = [parameter(level.id, "int", default) for level, default in zip(levels, known, strict=True)]
    return tuple(sorted(ids, key=lambda each: each.default is not Parameter.empty))


def _finding(depth: int, levels: Sequence[Level]) -> Callable[..., Any]:
    plurals = [level.plural for level in levels]

    def find(item: Any, *ids: Any) -> Any:
        way = ids[0].key[depth + 1 :] if isinstance(ids[0], Ident) else ids
        for plural, child_id in zip(plurals, way, strict=True):
            item = getattr(item, plural).get(child_id)
            if item is None:
                return None
        return item

    return find


def _creating() -> Callable[..., Any]:
    def create(item: Any, *ids: Any) -> Any:
        if isinstance(ids[0], Ident):
            return item.find_or_create(ids[0])
        for child_id in ids:
            item = item.get_or_create(child_id)
        return item

    return create


def _deleting(find: Callable[..., Any]) -> Callable[..., bool]:
    return lambda item, *ids: item.siblings.delete(find(item, *ids))


def _walking(levels: Sequence[Level]) -> Callable[..., Iterator[Any]]:
    def walk(item: Any, *, place: int = 0) -> Iterator[Any]:
        for child in getattr(item, levels[place].plural).values():
            if place + 1 == len(levels):
                yield child
            else:
                yield from walk(child, place=place + 1)

    return walk


def _reordered(call: Callable[..., Any], order: Sequence[int]) -> Callable[..., Any]:
    return lambda item, *given: call(item, *(given[place] for place in order))


def _asking(every: Every, child: Level) -> Callable[[Any, int | None], bool]:
    unplanned = child.total.unplanned if child.total else None
    numbered = child.parent_of is None

    def ask(item: Any, expected: int | None) -> bool:
        wanted = checked_id("the total", 0 if expected is None and not numbered else expected)  # type: ignore[arg-type]
        children = Barrier[int](wanted if numbered else wanted or unplanned or 0, numbered=numbered)
        for child_id, one in getattr(item, child.plural).items():
            children.note(child_id, Outcome.DONE if getattr(one, every.quality) else Outcome.WAITING)
        return children.complete and (len(children) > 0 or not every.some)

    return ask


# What else follows from the declaration


def _gates(pipeline: Pipeline) -> Iterator[Gate]:
    """The gates of a pipeline's levels, each with a fact and a stream of its own."""
    for (level, child), kind in zip(pairwise(pipeline.levels), pipeline.kinds, strict=False):
        if level.ready is None or child.total is None:
            continue
        title, category = f"{pipeline.prefix}{level.camel}", f"{kind.CATEGORY}.ready"
        doc = f"All {child.plural} of the {level.name} were there and {level.ready.flag or 'completed'}."
        ready = _class(pipeline, BecameReady, _class_of(pipeline, f"{title}Ready", doc), topic=category)
        about = _class_of(pipeline, f"{title}Readiness", f"The rounds of a {level.name}.")
        body = {**about, "CATEGORY": category, "PARENT": kind, "READY": ready}
        rounds = _class(pipeline, OpenReadiness, body)
        yield Gate(
            pipeline,
            rounds,
            child.total.name,
            level.ready.flag,
            child.parent_of is None,
            child.total.unplanned,
        )


def _names_outside(pipeline: Pipeline) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The external names of each topic that has any, the conventional one first."""
    if pipeline.outside is None:
        return
    for level, kind in zip(pipeline.levels, pipeline.kinds, strict=True):
        states: dict[str, tuple[str, ...]] = {fact: (state,) for fact, state in level.outside.items()}
        states |= {"ready": ("ready",)} if level.ready else {}
        states |= {each.name: (each.name,) if each.outside is None else each.outside for each in level.flags}
        for fact, known in states.items():
            if known:
                yield (
                    f"{kind.CATEGORY}.{fact}",
                    tuple(f"{pipeline.outside}.{kind.CATEGORY}.{state}" for state in known),
                )


def _sets(pipeline: Pipeline) -> Iterator[UnitSet]:
    """The sets that are counted: the children of each item by status. Readiness reads flags itself."""
    project = pipeline.kinds[0].FACTS
    for (above, kind), level in zip(pairwise(pipeline.kinds), pipeline.below, strict=True):
        planned = level.total
        yield UnitSet(
            kind.CATEGORY,
            above.CATEGORY,
            done=frozenset({Status.COMPLETED}),
            failed=frozenset({Status.FAILED}),
            running=frozenset({Status.RUNNING}),
            gone=frozenset({Status.DELETED}),
            life=above.FACTS.created.topic,
            death=above.FACTS.deleted.topic,
            born=kind.FACTS.created.topic,
            total=None if planned is None else _total(project, planned),
        )


def _total(project: Facts, planned: Total) -> TotalOfSet:
    """Where the log holds a planned total."""
    topics = project.planned.topic, project.created.topic
    return TotalOfSet(topics[0], ("totals", planned.name), 1, topics[1], planned.unplanned)
