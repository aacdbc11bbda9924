"""
One body for the command of every pipeline: its options are made from the declaration.

A body takes `pipeline`, and may take parameters that stand for several options: see GATHERED. In its
docstring and in the help of its options {slice}, {middle}, {leaf} and their plurals stand for the levels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from inspect import Parameter
from typing import Annotated, Any, Final, get_args, get_origin

import typer

from .declaration import Pipeline

Ids = Mapping[str, int | None]
"""The id that was given for each level, None where there was none."""
Spans = Mapping[str, str | None]
"""The same, as it was written: at the last level it may be several ids, `3-7,9`."""
Parts = Mapping[str, int | None]
"""The id that was given for each level that a report can be of."""
Totals = Mapping[str, int | None]
"""The number that was given for each total of a plan."""

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name, in any spelling.")]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for what is open elsewhere."),
]
PATIENCE: Final = 60.0
"""Seconds that a command waits for scopes of others: a script shall not hang for ever."""


def bound(pipeline: Pipeline, body: Callable[..., None]) -> Callable[..., None]:
    """The command of a pipeline that a body makes."""
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
"""The options of one parameter: what they are keyed by, the type of their value, and their help."""


def _ids(pipeline: Pipeline) -> Options:
    return {name: (int, text) for name, text in _levels(pipeline)}


def _spans(pipeline: Pipeline) -> Options:
    return {name: (str, text) for name, text in _levels(pipeline)}


def _parts(pipeline: Pipeline) -> Options:
    return {name: (int, text) for name, text in pipeline.parts.items()}


def _totals(pipeline: Pipeline) -> Options:
    return {name: (int, text) for name, text in pipeline.totals.items()}


def _expected(pipeline: Pipeline) -> Options:
    first = next(iter(pipeline.totals))
    return {first: (int, f"{pipeline.totals[first]} By default what is planned.")}


GATHERED: Final[dict[str, Callable[[Pipeline], Options]]] = {
    "ids": _ids,
    "spans": _spans,
    "parts": _parts,
    "totals": _totals,
    "expected": _expected,
}
"""Parameters of a body that stand for several options, such as `--slice`, `--channel` and `--strip`."""


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
    """The parameter of an option: apart from the body's own, such as the level."""
    return f"{key}_given"


# Words of a pipeline


def _worded(pipeline: Pipeline, annotation: Any) -> Any:
    """The annotation, with the pipeline's words in what it says to the parser."""
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, option = get_args(annotation)
    option = copy(option)
    option.help = _told(pipeline, option.help)
    return Annotated[kind, option]


def _told(pipeline: Pipeline, text: str) -> str:
    first, middle, leaf = pipeline.levels
    flags = [f"{level.name}: {', '.join(level.flags)}" for level in pipeline.levels if level.flags]
    words = {
        "pipeline": pipeline.name,
        "slice": first.name,
        "middle": middle.name,
        "leaf": leaf.name,
        "slices": first.plural,
        "middles": middle.plural,
        "leaves": leaf.plural,
        "total": next(iter(pipeline.totals)).replace("_", "-"),
        "flag": next(iter(leaf.flags)),
        "flags": "; ".join(flags),
        "part": list(pipeline.parts)[-1],
    }
    for word, meaning in words.items():
        text = text.replace(f"{{{word}}}", meaning)
    return text
