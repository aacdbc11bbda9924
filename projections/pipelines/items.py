"""
Items: the state of every item of a pipeline, one row each, as the pipeline's own `evolve` folds it.

Each pipeline has a view of its own, kept by the processes that import the pipeline: `lsm_items` of LSM.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, LiteralString

from ledger.domain.known import KNOWN
from ledger.pipelines.item import HIDDEN, children_name
from ledger.pipelines.pipeline import PIPELINES, Pipeline

from ..engine.state_view import StateView
from ..engine.view import parts

_SQL: Final = parts(__package__, "items")


class Items(StateView):
    """The items of one pipeline: for LSM table `lsm_items`, the visible ones `lsm_shown_items`, function
    `lsm_tree`.
    """

    pipeline: ClassVar[Pipeline]


def load() -> None:
    """Make the view of each pipeline that this process has imported."""
    for pipeline in PIPELINES.values():
        if getattr(KNOWN.views.get(f"{pipeline.name}_items"), "pipeline", None) is not pipeline:
            _make(pipeline)


def _make(pipeline: Pipeline) -> None:
    """Declare the view of a pipeline, which also registers it."""
    words = _words(pipeline)

    def text(part: str) -> LiteralString:
        filled = _SQL[part]
        for word, value in words.items():
            filled = filled.replace(word, value)
        return filled

    body = {
        "__doc__": Items.__doc__,
        "__module__": __name__,
        "pipeline": pipeline,
        "name": f"{pipeline.name}_items",
        "streams": tuple(pipeline),
        "born": tuple(kind.FACTS.created.topic for kind in pipeline),
        "tables": text("tables"),
        "indexes": text("indexes"),
        "picks": {name: text(name) for name in ("category", "parent", "project", "ids")},
        "forget": (text("forget"),),
        "reads": text("reads"),
    }
    type(f"{pipeline.prefix}Items", (Items,), body)


def _words(pipeline: Pipeline) -> dict[str, str]:
    """The values of the words in items.sql; names were checked when the pipeline was declared."""
    levels = {kind.CATEGORY: kind for kind in pipeline}
    fields = [field for kind in pipeline for field in dataclasses.fields(kind.STATE)]
    return {
        "{items}": f"{{{pipeline.name}_items}}",
        "{pipeline}": pipeline.name,
        "{parents}": _object(dict(zip([*levels][1:], levels, strict=False))),
        "{children}": _object({category: children_name(kind.STATE) for category, kind in levels.items()}),
        "{times}": _names(field.name for field in fields if "datetime" in str(field.type)),
        "{hidden}": _names({*HIDDEN, "under_way"}),
    }


def _object(values: Mapping[str, str | None]) -> str:
    """A JSON object as SQL, in a statement where a brace is doubled."""
    return "'" + json.dumps(values).replace("{", "{{").replace("}", "}}") + "'::jsonb"


def _names(names: Iterable[str]) -> str:
    """An array of names as SQL."""
    return "ARRAY[" + ", ".join(f"'{name}'" for name in sorted(set(names))) + "]::text[]"
