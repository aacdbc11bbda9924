"""
A report: a table with a title, a key and totals, as values and as Markdown (spec S0-90 to S0-92).

Reports are pure functions of a view: the same view gives the same bytes, and the only time in them is that
of the last change they show. The key is what a report is published under; a later one replaces it there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from ledger.names import checked_id
from ledger.project_state.item import Item, children_of

YES, NO, NOT_YET = "✅", "❌", "⏳"
MILESTONES: Final = (25, 50, 75, 100)
"""Percent."""


class Row(Protocol):
    """A row of a report: a frozen dataclass that says what its cells are."""

    COLUMNS: ClassVar[tuple[str, ...]]

    def cells(self) -> tuple[int | str, ...]:
        """What the table shows, column by column."""
        ...


R = TypeVar("R", bound=Row, covariant=True)
C = TypeVar("C", bound=Item)


class Milestone(NamedTuple):
    """A part of the work, in percent, and whether that much is done."""

    percent: int
    reached: bool

    def __str__(self) -> str:
        return f"{YES if self.reached else NOT_YET} {self.percent}% Complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[R]):
    """A table of a project. ROW: the class of its rows, which says the columns.

    done, total: how much of the work is, and how much there is; done is never more than total. beyond: how
    many items have ids that were not expected (0, or above the number planned); they are in no row and in
    no count. failed: how many of the expected items failed. last_updated: the last change of what is shown,
    aware, UTC; None where there is nothing.
    """

    ROW: ClassVar[type[Any]]

    project_name: str
    key: str
    rows: tuple[R, ...]
    done: int
    total: int
    failed: int = 0
    beyond: int = 0
    last_updated: datetime | None = None

    @property
    def title(self) -> str:
        """What the report is about."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        names: tuple[str, ...] = self.ROW.COLUMNS
        return names

    @property
    def progress(self) -> float:
        """How much is done, in percent: from 0.0 to 100.0; 0.0 where there is nothing to do."""
        return percent(self.done, self.total)

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        """The parts of the work that were reached, and those that were not."""
        return milestones(self.done, self.total)

    def about(self) -> Iterator[tuple[str, str | int]]:
        """What the table belongs to, beside project and time: (name, value)."""
        yield from ()

    def totals(self) -> Iterator[str]:
        """The totals, a line each."""
        raise NotImplementedError

    def records(self) -> list[dict[str, int | str]]:
        """The table as a list of plain dicts by column, as Prefect's table artifacts take it."""
        return [dict(zip(self.columns, row.cells(), strict=True)) for row in self.rows]


# Numbers.


def percent(done: int, total: int) -> float:
    """done / total * 100; 0.0 where the total is 0."""
    return done / total * 100 if total else 0.0


def percent_text(done: int, total: int) -> str:
    """Percent with one decimal: `37.5%`. It says `100.0%` only when all is done, and not from 99.95 on."""
    text = f"{percent(done, total):.1f}%"
    return "99.9%" if text == "100.0%" and done < total else text


def milestones(done: int, total: int) -> tuple[Milestone, ...]:
    """Which milestones are reached; none where there is nothing to do. Reckoned in whole numbers."""
    return tuple(Milestone(part, 0 < total * part <= done * 100) for part in MILESTONES)


def mark(value: bool, no: str = NO) -> str:
    """A flag as a table shows it."""
    return YES if value else no


# Items.


def expected(children: Mapping[int, C], total: int) -> dict[int, C]:
    """Those of the children with the ids 1 … total, by id."""
    return {child_id: children[child_id] for child_id in sorted(children) if 1 <= child_id <= total}


def checked_total(what: str, given: int | None, planned: int | None) -> int | None:
    """A number that was given, else the planned one. Raises BadName for what is no count."""
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


def description(report: Report[Row]) -> str:
    """What stands above the table, as Markdown: the title, what it is about, totals and milestones."""
    about = [("Project", report.project_name), *report.about(), ("Last Updated", _time(report.last_updated))]
    paragraphs = [
        [escaped(report.title)],
        [f"- {name}: {escaped(str(value))}" for name, value in about],
        [f"- {line}" for line in [*report.totals(), *_oddities(report)]],
        ["Milestones:"],
        [f"- {milestone}" for milestone in report.milestones],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def markdown(report: Report[Row]) -> str:
    """The whole report as Markdown: a heading, what `description` says, and the table."""
    return f"# {description(report)}\n{_table(report.columns, [row.cells() for row in report.rows])}\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line and within one cell."""
    line = text if text.isprintable() else ascii(text)[1:-1]
    return _SPECIAL.sub(r"\\\g<0>", line)


_SPECIAL: Final = re.compile(r"[\\`*{}\[\]<>|#&~]|(?<![^\W_])_|_(?![^\W_])")
# An underscore between letters is left alone: Markdown does not take it for emphasis there.


def _oddities(report: Report[Row]) -> Iterator[str]:
    if report.failed:
        yield f"Failed: {report.failed}"
    if report.beyond:
        yield f"Not counted, because their ids were not expected: {report.beyond}"


def _time(at: datetime | None) -> str:
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _table(columns: Collection[str], rows: Collection[tuple[int | str, ...]]) -> str:
    if not rows:
        return "Nothing is recorded yet."
    kinds = [type(cell) for cell in next(iter(rows))]
    lines = [columns, ["---:" if kind is int else "---" for kind in kinds]]
    lines += [[escaped(str(cell)) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
