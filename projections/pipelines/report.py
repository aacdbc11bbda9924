"""
Reports of a pipeline's projects, from its declaration: how far each parent of leaves is, and every leaf of
one item.

    print(markdown(summary(LSM, LSM_STATE_SERVICE.peek_project("brain_7"), expected=4)))

If the number of leaves of a parent is given or planned, the leaves 1 to that number are expected: only they
are counted, so progress never exceeds 100 %, and a missing one is pending. Otherwise the existing leaves are
the expected ones, unless the declaration needs a number. A failed leaf is not done (W0-04). Spec S0-90 to
S0-92.

Reports are pure functions of a view: the same view gives the same bytes, and the only time in them is that of
the last change they show. A report is published under its key; a later one replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

from ledger import BadInput
from ledger.domain.frozen import FrozenDict
from ledger.domain.names import checked_id, project_key
from ledger.pipelines.declaration import Flag
from ledger.pipelines.declaration import Report as Declared
from ledger.pipelines.facts import ProcessingState
from ledger.pipelines.item import Item, children_of
from ledger.pipelines.pipeline import Pipeline

YES, NO, NOT_YET = "✅", "❌", "⏳"
MILESTONES: Final = (25, 50, 75, 100)
"""Percent."""
C = TypeVar("C", bound=Item)
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a report: its values by name, also as attributes, and the cells that the table shows."""

    values: FrozenDict[str, Any]
    shown: tuple[int | str, ...]

    def __getattr__(self, name: str) -> Any:
        if name in type(self).__slots__ or name not in self.values:
            raise AttributeError(f"the row has no {name!r}; it has {', '.join(self.values)}")
        return self.values[name]

    def cells(self) -> tuple[int | str, ...]:
        """What the table shows, column by column."""
        return self.shown


class Milestone(NamedTuple):
    """A share of the work, in percent, and whether that much is done."""

    percent: int
    reached: bool

    def __str__(self) -> str:
        return f"{YES if self.reached else NOT_YET} {self.percent}% Complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A table of a project.

    columns, short: the names of the columns, and those for a narrow table. values, own: which value of a row
    each column shows, and whether that is a flag of the row's own item. path: the ids of the item of the
    report, by level; about: further text above the totals, beside project and time. done, total: how much of
    the work is done, and how much there is; done never exceeds total. beyond: how many leaves have ids that
    were not expected (0, or above the planned number); they are in no row and in no count. failed, running:
    how many of the expected leaves are. last_updated: the last change of what is shown, aware, UTC; None if
    there is nothing.
    """

    title: str
    project_name: str
    key: str
    columns: tuple[str, ...]
    short: tuple[str, ...]
    values: tuple[str, ...]
    own: tuple[bool, ...]
    rows: tuple[Row, ...]
    path: FrozenDict[str, int]
    about: tuple[tuple[str, str | int], ...]
    totals: tuple[str, ...]
    done: int
    total: int
    failed: int = 0
    running: int = 0
    beyond: int = 0
    last_updated: datetime | None = None

    @property
    def progress(self) -> float:
        """How much is done, in percent: from 0.0 to 100.0; 0.0 if there is nothing to do."""
        return percent(self.done, self.total)

    @property
    def complete(self) -> bool:
        """Whether there is something to do, and all of it is done."""
        return 0 < self.total == self.done

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        """The shares of the work, each with whether it was reached."""
        return milestones(self.done, self.total)

    def records(self) -> list[dict[str, int | str]]:
        """The table as a list of plain dicts by column, as Prefect's table artifacts take it."""
        return [dict(zip(self.columns, row.cells(), strict=True)) for row in self.rows]


# The two reports.


def summary(pipeline: Pipeline, view: Item, *, expected: int | None = None) -> Report:
    """How far each parent of leaves is. expected: leaves of each; by default what the project planned.

    Raises BadInput if the number is unknown and the declaration needs one; TypeError if the pipeline
    has only a project.
    """
    declared = _declared(pipeline, pipeline.summary)
    total = _total(pipeline, view, expected)
    parents = [_Parent(pipeline, ids, item, total) for ids, item in _parents(pipeline, view)]
    columns = _columns(pipeline, declared)
    rows = tuple(
        Row(FrozenDict(values), _cells(columns, values)) for values in (each.values() for each in parents)
    )
    level = pipeline.levels[-2]
    lines = []
    if declared.status:
        lines.append(f"Complete {level.plural.capitalize()}: {how_many(rows, 'complete')}/{len(rows)}")
    lines += [f"{each.title}: {how_many(rows, each.value)}/{len(rows)}" for each in columns if each.own]
    about = [(f"Total {level.plural.capitalize()}", len(rows))] if declared.status else []
    return _report(pipeline, declared, (_name(view), {}, view), rows, parents, about, lines)


def listing(
    pipeline: Pipeline, view: Item, path: Mapping[str, int], *, expected: int | None = None
) -> Report | None:
    """Every leaf below one item, by its id; None if there is no such item.

    path: the ids by level. If ids count through the project, those above may be omitted, unless several items
    have the id; then BadInput is raised. expected: as in `summary`.
    """
    declared = _declared(pipeline, pipeline.listing)
    total = _total(pipeline, view, expected)
    found = _found(pipeline, view, declared.of, path)
    if found is None:
        return None
    ids, item = found
    parents = [_Parent(pipeline, below, one, total) for below, one in _parents(pipeline, item, ids)]
    columns, leaf = _columns(pipeline, declared), pipeline.leaf
    leaves = sorted((leaf_id, n) for n, parent in enumerate(parents) for leaf_id in parent.ids)
    found_values = (_leaf_values(pipeline, parents[n], leaf_id) for leaf_id, n in leaves)
    rows = tuple(Row(FrozenDict(values), _cells(columns, values)) for values in found_values)
    levels = pipeline.levels[1 : len(ids) + 1]
    about = [(level.heading, number) for level, number in zip(levels, ids, strict=True)]
    lines = []
    if declared.status:
        complete = 0 < len(rows) == sum(parent.count("completed") for parent in parents)
        done, doing = f"COMPLETE - All {leaf.plural} completed", f"IN PROGRESS - Processing {leaf.plural}..."
        lines.append(f"Status: {f'{YES} {done}' if complete else f'{NOT_YET} {doing}'}")
    named = dict(zip((level.name for level in levels), ids, strict=True))
    return _report(pipeline, declared, (_name(view), named, item), rows, parents, about, lines)


def report_key(pipeline: Pipeline, project_name: str, path: Mapping[str, int] | None = None) -> str:
    """The key of a summary, or of the listing of an item; two spellings of one project have the same."""
    declared = _declared(pipeline, pipeline.listing if path else pipeline.summary)
    ids = {name: checked_id(f"{name}_id", number) for name, number in (path or {}).items()}
    return declared.key.format(project=project_key(project_name), **ids)


class _Parent:
    """One parent of leaves, and its expected leaves."""

    def __init__(self, pipeline: Pipeline, ids: Ids, item: Item, total: int | None) -> None:
        self.pipeline, self.path, self.item, children = pipeline, ids, item, children_of(item)
        self.ids: Sequence[int] = sorted(children) if total is None else range(1, total + 1)
        self.leaves: dict[int, Any] = dict(children) if total is None else expected_of(children, total)
        self.beyond = len(children) - len(self.leaves)

    def count(self, state: str) -> int:
        """How many of the expected leaves are in a state."""
        return sum(1 for leaf in self.leaves.values() if leaf.processing_state.value == state)

    def values(self) -> dict[str, Any]:
        """The values of its row in a summary."""
        total, done = len(self.ids), self.count("completed")
        states = {state: self.count(state) for state in ("running", "completed", "failed")}
        flags = {each.name: how_many(self.leaves.values(), each.name) for each in self.pipeline.leaf.flags}
        own = self.pipeline.levels[-2]
        return {
            **dict(zip((level.id for level in self.pipeline.below), self.path, strict=False)),
            "total": total,
            "started": len(self.leaves) - self.count("pending"),
            **states,
            **flags,
            **{_own(self.pipeline, each): getattr(self.item, each.name) for each in own.flags},
            "progress": percent(done, total),
            "complete": 0 < total == done,
        }


def _leaf_values(pipeline: Pipeline, parent: _Parent, leaf_id: int) -> dict[str, Any]:
    """The values of a leaf's row in a listing; a missing leaf is pending and has no flag."""
    leaf = parent.leaves.get(leaf_id)
    ids = zip((level.id for level in pipeline.below), (*parent.path, leaf_id), strict=True)
    state = ProcessingState.PENDING if leaf is None else leaf.processing_state
    flags = {each.name: bool(getattr(leaf, each.name, False)) for each in pipeline.leaf.flags}
    return {**dict(ids), "processing_state": state, **flags}


def _report(
    pipeline: Pipeline,
    declared: Declared,
    shown: tuple[str, Mapping[str, int], Item],
    rows: tuple[Row, ...],
    parents: list[_Parent],
    about: list[tuple[str, int]],
    lines: list[str],
) -> Report:
    """The report. shown: the item it covers, by level, and the view of that item."""
    (name, path, view), columns = shown, _columns(pipeline, declared)
    done, running, failed = (
        sum(each.count(s) for each in parents) for s in ("completed", "running", "failed")
    )
    return Report(
        title=declared.title.format(project=name, **path),
        project_name=name,
        key=declared.key.format(project=project_key(name), **path),
        **dict(zip(("columns", "short", "values", "own"), zip(*columns, strict=True), strict=True)),
        rows=rows,
        path=FrozenDict(path),
        about=tuple(about),
        totals=(*lines, *_totals(pipeline, declared, parents, done, running)),
        done=done,
        running=running,
        failed=failed,
        total=sum(len(parent.ids) for parent in parents),
        beyond=sum(parent.beyond for parent in parents),
        last_updated=last_change(view),
    )


def _totals(
    pipeline: Pipeline, declared: Declared, parents: list[_Parent], done: int, running: int
) -> Iterator[str]:
    total, plural = sum(len(parent.ids) for parent in parents), pipeline.leaf.plural.capitalize()
    leaves = [leaf for parent in parents for leaf in parent.leaves.values()]
    yield _share(declared.done or f"{plural} completed", done, total)
    if running and declared.status:
        yield f"{plural} running: {running}"
    for flag, text in declared.shares.items():
        yield _share(text, how_many(leaves, flag), total)


def _name(project: Any) -> str:
    name: str = project.project_name
    return name


def _declared(pipeline: Pipeline, report: Declared | None) -> Declared:
    if report is None:
        raise TypeError(f"{pipeline.name} has only a project, so there is nothing to report")
    return report


def _total(pipeline: Pipeline, view: Item, given: int | None) -> int | None:
    """How many leaves each parent should have; None if unknown."""
    total = pipeline.leaf.total
    if total is None:
        return given
    number = checked_total(total.name, given, getattr(view, total.name))
    number = total.unplanned if number is None else number
    if number is None and total.needed:
        name, what = getattr(view, "project_name", ""), total.name.replace("_per_", " per ").replace("_", " ")
        raise BadInput(
            f"the number of {what} of {name!r} is unknown: give {total.name}, "
            f"or plan it once, by `project.plan({total.name}=…)`"
        )
    return number


def _parents(pipeline: Pipeline, item: Item, ids: Ids = ()) -> list[tuple[Ids, Item]]:
    """The parents of leaves at or below an item, by their ids: those that count through the project first."""
    found = [*_at_depth(item, ids, len(pipeline.levels) - 2)]
    first = max(0, pipeline.counted - 1)
    return sorted(found, key=lambda one: (*one[0][first:], *one[0][:first]))


def _at_depth(item: Item, ids: Ids, depth: int) -> Iterator[tuple[Ids, Item]]:
    if len(ids) == depth:
        yield ids, item
        return
    for child_id, child in children_of(item).items():
        yield from _at_depth(child, (*ids, child_id), depth)


def _found(pipeline: Pipeline, view: Item, of: str, path: Mapping[str, int]) -> tuple[Ids, Item] | None:
    """The item of a level that a path leads to, with all its ids."""
    names = pipeline.names[: [level.name for level in pipeline.levels].index(of)]
    wanted = [path.get(name) for name in names]
    found = [
        (ids, item)
        for ids, item in _at_depth(view, (), len(names))
        if all(number is None or number == each for number, each in zip(wanted, ids, strict=True))
    ]
    if len(found) > 1:
        place = wanted.index(None)
        those = ", ".join(str(ids[place]) for ids, _ in found)
        missing = pipeline.below[place]
        raise BadInput(f"{of} {path[of]} is in the {missing.plural} {those}: give {missing.id} to choose one")
    return found[0] if found else None


# Columns.


class _Column(NamedTuple):
    """A column: its titles, and the value of a row that it shows. own: a flag of the row's own item."""

    title: str
    short: str
    value: str
    own: bool = False


def _columns(pipeline: Pipeline, declared: Declared) -> list[_Column]:
    leaf, columns = pipeline.leaf, list[_Column]()
    own = pipeline.levels[-2].flags if declared.of == "project" or declared is pipeline.summary else ()
    mine, theirs = {each.name: each for each in own}, {each.name: each for each in leaf.flags}
    is_summary = declared is pipeline.summary
    for word in declared.columns:
        if word == "flags":
            rest = [each for each in leaf.flags if each.name not in declared.columns]
            columns += [_of_leaf(each, is_summary) for each in rest if each.counted or not is_summary]
        elif word == "made":
            rest = [each for each in own if each.name not in declared.columns]
            columns += [_of_own(pipeline, each) for each in rest]
        elif word in theirs:
            columns.append(_of_leaf(theirs[word], is_summary))
        elif word in mine:
            columns.append(_of_own(pipeline, mine[word]))
        else:
            columns.append(_of_word(pipeline, word))
    return columns


def _of_leaf(flag: Flag, is_summary: bool) -> _Column:
    title = flag.words if is_summary else flag.title or flag.words
    return _Column(title, (flag.short or title).capitalize(), flag.name)


def _of_own(pipeline: Pipeline, flag: Flag) -> _Column:
    return _Column(flag.title or flag.words, flag.short or flag.words, _own(pipeline, flag), True)


def _own(pipeline: Pipeline, flag: Flag) -> str:
    """The name of a parent's flag in a row: with its level if the leaf has a flag of that name too."""
    taken = flag.name in [each.name for each in pipeline.leaf.flags]
    return f"{pipeline.levels[-2].name}_{flag.name}" if taken else flag.name


def _of_word(pipeline: Pipeline, word: str) -> _Column:
    level = next((level for level in pipeline.below if level.name == word), None)
    if level is not None:
        return _Column(level.heading, level.name.capitalize(), level.id)
    plural = pipeline.leaf.plural.capitalize()
    known = {
        "total": _Column(f"Total {plural}", plural, "total"),
        "processing": _Column("Processing", "Processing", "processing_state"),
        "running": _Column("Running", "Run", "running"),
        "completed": _Column("Completed", "Done", "completed"),
    }
    return known.get(word) or _Column(word.capitalize(), word.capitalize(), word)


def _cells(columns: Iterable[_Column], values: Mapping[str, Any]) -> tuple[int | str, ...]:
    return tuple(_cell(column, values) for column in columns)


def _cell(column: _Column, values: Mapping[str, Any]) -> int | str:
    value = values[column.value]
    if isinstance(value, bool):
        return mark(value, NOT_YET if column.own else NO)
    if column.value == "progress":
        return percent_text(values["completed"], values["total"])
    return value.value if isinstance(value, ProcessingState) else int(value)


# Numbers.


def percent(done: int, total: int) -> float:
    """done / total * 100; 0.0 where the total is 0."""
    return done / total * 100 if total else 0.0


def percent_text(done: int, total: int) -> str:
    """Percent with one decimal: `37.5%`. The text is `100.0%` only when all is done, not from 99.95 on."""
    text = f"{percent(done, total):.1f}%"
    return "99.9%" if text == "100.0%" and done < total else text


def milestones(done: int, total: int) -> tuple[Milestone, ...]:
    """Which milestones are reached; none if there is nothing to do. Computed in whole numbers."""
    return tuple(Milestone(part, 0 < total * part <= done * 100) for part in MILESTONES)


def mark(value: bool, no: str = NO) -> str:
    """A flag as a table shows it."""
    return YES if value else no


def _share(what: str, done: int, total: int) -> str:
    return f"{what}: {done}/{total} ({percent_text(done, total)})"


# Items.


def expected_of(children: Mapping[int, C], total: int) -> dict[int, C]:
    """Those of the children with the ids 1 … total, by id."""
    return {child_id: children[child_id] for child_id in sorted(children) if 1 <= child_id <= total}


def checked_total(what: str, given: int | None, planned: int | None) -> int | None:
    """The given number, else the planned one. Raises BadName if it is not a count."""
    number = planned if given is None else given
    return None if number is None else checked_id(what, number)


def how_many(items: Iterable[Any], quality: str) -> int:
    """How many of the items have a flag or a quality."""
    return sum(1 for item in items if getattr(item, quality))


def last_change(*views: Item) -> datetime | None:
    """The last change of these views and all below them."""
    times = (_last_change(view) for view in views)
    return max((at for at in times if at is not None), default=None)


def _last_change(view: Item) -> datetime | None:
    below = last_change(*children_of(view).values())
    return view.updated_at if below is None else max(below, view.updated_at or below)


# Text.


def description(report: Report) -> str:
    """The text above the table, as Markdown: title, subject, totals and milestones."""
    about = [("Project", report.project_name), *report.about, ("Last Updated", _time(report.last_updated))]
    paragraphs = [
        [escaped(report.title)],
        [f"- {name}: {escaped(str(value))}" for name, value in about],
        [f"- {line}" for line in [*report.totals, *_oddities(report)]],
        ["Milestones:"],
        [f"- {milestone}" for milestone in report.milestones],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def markdown(report: Report) -> str:
    """The whole report as Markdown: a heading, the text of `description`, and the table."""
    return f"# {description(report)}\n{_table(report.columns, [row.cells() for row in report.rows])}\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line and within one cell."""
    line = text if text.isprintable() else ascii(text)[1:-1]
    return _SPECIAL.sub(r"\\\g<0>", line)


_SPECIAL: Final = re.compile(r"[\\`*{}\[\]<>|#&~]|(?<![^\W_])_|_(?![^\W_])")
# An underscore between letters is left alone: Markdown does not take it for emphasis there.


def _oddities(report: Report) -> Iterator[str]:
    if report.failed:
        yield f"Failed: {report.failed}"
    if report.beyond:
        yield f"Not counted, because their ids are unexpected: {report.beyond}"


def _time(at: datetime | None) -> str:
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _table(columns: Collection[str], rows: Collection[tuple[int | str, ...]]) -> str:
    if not rows:
        return "Nothing is recorded yet."
    kinds = [type(cell) for cell in next(iter(rows))]
    lines = [columns, ["---:" if kind is int else "---" for kind in kinds]]
    lines += [[escaped(str(cell)) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
