"""`pledger lsm|psoct mark`: set the status or flag of one item, some, or all of a parent (spec S0-82)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.pipelines import Pipeline

from ..errors import Misuse, NotThere
from ..session import AsJson, session_of
from .options import TIMEOUT, Project, Spans, Timeout
from .target import Path, not_there, opened_there, store_of, where, whole

if TYPE_CHECKING:
    from ledger.pipelines import ProjectStore

STATES: Final = ("pending", "running", "completed", "failed")
"""Fields that need no value."""
TRUE: Final = frozenset({"true", "1", "yes", "y"})
FALSE: Final = frozenset({"false", "0", "no", "n"})

LevelName = Annotated[str, typer.Argument(metavar="LEVEL", help="What to mark: {levels}.")]
Field = Annotated[
    str, typer.Argument(metavar="FIELD", help="pending, running, completed, failed, or a flag ({flags}).")
]
Value = Annotated[
    str | None,
    typer.Argument(metavar="VALUE", help="For a flag: true, 1, yes, y, or false, 0, no, n."),
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason of a failure; only with `failed`.")
]
Change = Callable[[Any], None]


def mark(
    context: typer.Context,
    pipeline: Pipeline,
    project: Project,
    level: LevelName,
    field: Field,
    spans: Spans,
    value: Value = None,
    reason: Reason = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Set the state or a flag of existing {plurals}.

    Marks all or nothing, and creates nothing. Without the id of LEVEL itself, all children of the parent are
    marked; several ids are written `--{leaf} 3-7,9`. A flag set to false also clears the flags that depend on
    it. `pending` clears the times of start and end.{counted}

    \b
    Examples:
      pledger {pipeline} mark brain_7 {leaf} {flag}{yes}{above} --{leaf} 3-7
      pledger {pipeline} mark brain_7 {leaf} failed{above} --{leaf} 3 --reason "disk full"
      pledger {pipeline} mark brain_7 {leaf} pending{above}

    JSON: project, level, field, value (null for a state), updated: how many were marked.
    """
    session = session_of(context, as_json)
    change, wanted = _change(pipeline, level, field, value, reason)
    target = _target(pipeline, level, spans)
    with store_of(session, pipeline) as store:
        target = _whole(store, pipeline, project, target)
        updated = _mark(store, pipeline, project, target, change, timeout)
    told = {"project": project, "level": level, "field": field, "value": wanted, "updated": updated}
    session.print_fields(told, {"updated": updated})


# The change


def _change(
    pipeline: Pipeline, level: str, field: str, value: str | None, reason: str | None
) -> tuple[Change, bool | None]:
    """The change of an item, and the value of the flag; None for a state. Raises Misuse."""
    if level not in pipeline.names:
        raise Misuse(f"{level!r} is not a level of {pipeline.name}; its levels: {', '.join(pipeline.names)}")
    if reason is not None and field != "failed":
        raise Misuse("`--reason` belongs to `failed` only.")
    if field in STATES:
        if value is not None:
            raise Misuse(f"`{field}` takes no VALUE.")
        return _marking(field, reason), None
    flags = [flag.name for flag in pipeline.below[pipeline.names.index(level)].flags]
    if field not in flags:
        known = f"a {level} has {', '.join([*STATES, *flags])}"
        raise Misuse(f"Unknown or unsupported field for this hierarchy: {field!r}; {known}")
    wanted = _truth(field, value)
    return lambda item: item.set_flag(field, wanted), wanted


def _marking(state: str, reason: str | None) -> Change:
    match state:
        case "pending":
            return lambda item: item.mark_pending()
        case "running":
            return lambda item: item.mark_started()
        case "completed":
            return lambda item: item.mark_completed()
        case _:
            return lambda item: item.mark_failed(reason)


def _truth(field: str, value: str | None) -> bool:
    word = "" if value is None else value.strip().lower()
    if word in TRUE | FALSE:
        return word in TRUE
    given = "is missing" if value is None else f"is {value!r}"
    raise Misuse(f"the VALUE of the flag `{field}` {given}; it must be true, 1, yes, y, or false, 0, no, n")


# The items


@dataclass(frozen=True, slots=True)
class Target:
    """Children of one parent. spans: their ids, None for all of them."""

    above: Path
    level: str
    spans: Sequence[range] | None

    @property
    def only(self) -> Path | None:
        """The path of the item if exactly one is given, else None."""
        if self.spans is None or len(self.spans) != 1 or self.spans[0].start + 1 != self.spans[0].stop:
            return None
        return {**self.above, self.level: self.spans[0].start}

    def ids(self) -> Iterator[int]:
        """The ids that were given."""
        for span in self.spans or ():
            yield from span


def _target(pipeline: Pipeline, level: str, spans: Spans) -> Target:
    """The items that the options give. Raises Misuse if an option is missing, or is of another level."""
    place = pipeline.names.index(level)
    above: dict[str, int] = {}
    counted = _counted_level(pipeline)
    for nth, name in enumerate(pipeline.names[:place]):
        if (text := spans[name]) is None:
            if counted and nth == 0 and place > 0 and spans[counted] is not None:
                continue
            raise Misuse(f"`--{name}` is required.")
        above[name] = _number(name, text, text, "one number of 0 or more")
    for name in pipeline.names[place + 1 :]:
        if spans[name] is not None:
            raise Misuse(f"`--{name}` is below a {level}; to mark it give `{name}` instead of `{level}`")
    text = spans[level]
    return Target(above, level, None if text is None else [_span(level, part) for part in text.split(",")])


def _counted_level(pipeline: Pipeline) -> str | None:
    """The level whose ids are unique in the whole project."""
    return pipeline.levels[pipeline.counted].name if pipeline.counted else None


def _whole(store: ProjectStore, pipeline: Pipeline, project: str, target: Target) -> Target:
    """The target with the id of its first level, computed if it was not given.

    Raises Misuse if the items have several parents.
    """
    top, counted = pipeline.below[0], _counted_level(pipeline)
    if counted is None or target.level == top.name or top.name in target.above:
        return target
    if target.level != counted:
        return replace(target, above=whole(store, pipeline, project, target.above))
    ends = [end for span in target.spans or () for end in (span.start, span.stop - 1)]
    parents = {whole(store, pipeline, project, {counted: end})[top.name] for end in ends}
    if len(parents) > 1:
        some = f"{min(parents)} to {max(parents)}"
        plural = pipeline.levels[pipeline.counted].plural
        raise Misuse(f"`--{top.name}` is required: the {plural} are of the {top.plural} {some}")
    return replace(target, above={top.name: parents.pop()})


def _span(name: str, text: str) -> range:
    """`3-7` or `5`."""
    first, dash, last = text.strip().partition("-")
    wanted = "numbers of 0 or more, such as 3 or 3-7,9"
    start = _number(name, first, text, wanted)
    stop = _number(name, last, text, wanted) if dash else start
    if stop < start:
        raise Misuse(f"`--{name}` {text!r} ends before it begins")
    return range(start, stop + 1)


def _number(name: str, digits: str, text: str, wanted: str) -> int:
    """An id in a text. Raises Misuse, with the expected format."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        shown = text if len(text) <= 40 else f"{text[:20]}…"
        raise Misuse(f"`--{name}` {shown!r} is not an id; it must be {wanted}")
    return int(digits)


# Applying it


def _mark(
    store: ProjectStore, pipeline: Pipeline, project: str, target: Target, change: Change, timeout: float
) -> int:
    """Change the items in one scope, of the item itself or of its parent; returns how many there were."""

    def change_it(item: Any) -> int:
        change(opened_there(item, project, path))
        return 1

    def change_each(parent: Any) -> int:
        children = _chosen(opened_there(parent, project, path), project, target)
        for child in children:
            change(child)
        return len(children)

    path = target.above if target.only is None else target.only
    work = change_each if target.only is None else change_it
    return store.update_item(pipeline.ident(project, path), work, timeout_seconds=timeout)


def _chosen(parent: Any, project: str, target: Target) -> list[Any]:
    """The chosen children. Raises NotThere for the first that is missing, or if there is none."""
    children = parent.children
    if target.spans is None:
        if not children:
            what = where(project, target.above)
            raise NotThere(f"there is no {target.level} to mark: {what}", project=project, **target.above)
        return list(children.values())
    chosen = {}
    for child_id in target.ids():
        if child_id not in children:
            raise not_there(project, {**target.above, target.level: child_id})
        chosen[child_id] = children[child_id]
    return list(chosen.values())
