"""
One function for the same command of every pipeline: its options are made from the declaration.

A body takes `pipeline`, and may take parameters that stand for several options: see GATHERED. In its
docstring and in the help of its options, {leaf}, {levels} and others are replaced by the pipeline's words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

import typer

if TYPE_CHECKING:
    from ledger.pipelines import Pipeline


Ids = Mapping[str, int | None]
"""The id that was given for each level, None if none was given."""
Spans = Mapping[str, str | None]
"""The same as text: at the last level it may be several ids, `3-7,9`."""
Parts = Mapping[str, int | None]
"""The id that was given for each level that can have a report."""
Totals = Mapping[str, int | None]
"""The number that was given for each total of a plan."""

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name, in any spelling.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, help="Maximum time to wait for items that are open elsewhere."
    ),
]
TIMEOUT: Final = 60.0
"""Seconds that a command waits for other scopes, so that a script does not hang."""


def bound(pipeline: Pipeline, body: Callable[..., None]) -> Callable[..., None]:
    """The command of a pipeline that a body defines."""
    own = inspect.signature(body, eval_str=True).parameters
    gathered = {name: GATHERED[name](pipeline) for name in own if name in GATHERED}
    parameters: list[Parameter] = []
    for name, parameter in own.items():
        if name in gathered:
            parameters += [_option(key, *option) for key, option in gathered[name].items()]
        elif name != "pipeline":
            annotation = _worded(pipeline, parameter.annotation)
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))

    def command(**given: Any) -> None:
        for name, options in gathered.items():
            given[name] = {key: given.pop(_slot(key)) for key in options}
        body(pipeline=pipeline, **given)

    signature: Any = inspect.Signature(parameters)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__name__ = body.__name__
    command.__doc__ = _told(pipeline, body.__doc__ or "")
    return command


# Several options in one parameter


Options = Mapping[str, tuple[type, str]]
"""The options of one parameter: their keys, the type of their value, and their help."""


def _ids(pipeline: Pipeline) -> Options:
    return {name: (int, text) for name, text in _levels(pipeline)}


def _spans(pipeline: Pipeline) -> Options:
    return {name: (str, text) for name, text in _levels(pipeline)}


def _parts(pipeline: Pipeline) -> Options:
    *above, of = parts_of(pipeline) or [""]
    leaf = pipeline.leaf.name
    where = ", if several contain it" if pipeline.counted else ""
    options = {name: (int, f"The {name} of the {of}{where}.") for name in above}
    return options | ({of: (int, f"Every {leaf} of this {of}.")} if of else {})


def _totals(pipeline: Pipeline) -> Options:
    return {
        name: (int, total.help or f"{name.replace('_', ' ')}.".capitalize())
        for name, total in pipeline.totals.items()
    }


def _expected(pipeline: Pipeline) -> Options:
    total = pipeline.leaf.total
    return {total.name: (int, f"{_totals(pipeline)[total.name][1]} Default: the plan.")} if total else {}


GATHERED: Final[dict[str, Callable[[Pipeline], Options]]] = {
    "ids": _ids,
    "spans": _spans,
    "parts": _parts,
    "totals": _totals,
    "expected": _expected,
}
"""Parameters of a body that stand for several options, such as `--slice`, `--channel` and `--strip`."""


def parts_of(pipeline: Pipeline) -> list[str]:
    """The levels whose ids select a listing; empty for a listing of the project."""
    of = pipeline.listing.of if pipeline.listing else ""
    return pipeline.names[: pipeline.names.index(of) + 1] if of in pipeline.names else []


def _levels(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Each level with the help of its option."""
    above = ""
    for name in pipeline.names:
        yield name, f"Only this {name}{above}."
        above = f" of the {name}"


def _option(key: str, kind: type, text: str) -> Parameter:
    least = 0 if kind is int else None
    option = typer.Option(f"--{key.replace('_', '-')}", metavar="N", help=text, min=least)
    annotation: Any = Annotated[kind | None, option]
    return Parameter(_slot(key), Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _slot(key: str) -> str:
    """The parameter of an option; it differs from the body's own, such as the level."""
    return f"{key}_given"


# Words of a pipeline


def _worded(pipeline: Pipeline, annotation: Any) -> Any:
    """The annotation with the pipeline's words in its help."""
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, option = get_args(annotation)
    option = copy(option)
    option.help = _told(pipeline, option.help)
    return Annotated[kind, option]


def _told(pipeline: Pipeline, text: str) -> str:
    names, leaf = pipeline.names, pipeline.leaf
    flags = [
        f"{level.name}: {', '.join(f.name for f in level.flags)}" for level in pipeline.below if level.flags
    ]
    above = "".join(f" --{name} {number}" for number, name in enumerate(names[:-1], 1))
    words = {
        "pipeline": pipeline.name,
        "levels": _listed(names, "or"),
        "plurals": _listed([level.plural for level in pipeline.below], "and"),
        "first": names[0] if names else "",
        "firsts": pipeline.below[0].plural if names else "",
        "leaf": leaf.name,
        "leaves": leaf.plural,
        "parent": names[-2] if len(names) > 1 else "project",
        "above": above,
        "total": next(iter(pipeline.totals), "").replace("_", "-"),
        "flag": next((flag.name for flag in leaf.flags), "completed"),
        "yes": " yes" if leaf.flags else "",
        "flags": "; ".join(flags) or "there is none",
        "part": "".join(f" --{name} 1" for name in parts_of(pipeline)[-1:]),
        "counted": _counted_words(pipeline),
    }
    for word, meaning in words.items():
        text = text.replace(f"{{{word}}}", meaning)
    return text


def _listed(names: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _counted_words(pipeline: Pipeline) -> str:
    if not pipeline.counted:
        return ""
    parent, child = pipeline.levels[pipeline.counted - 1 : pipeline.counted + 1]
    return f" The {parent.name} of a {child.name} is computed if it is not given."
