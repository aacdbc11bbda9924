"""`pledger states` and `dwell`: who was in which status at a moment, and how long they stay in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Misuse
from .moments import At, Position, as_of_json, moment_of, told
from .output import Column, is_terminal, plain, titled
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.audit import AsOf, Question

Category = Annotated[str | None, typer.Option(metavar="C", help="Only streams of this category.")]
OfAxis = Annotated[
    str,
    typer.Option(
        metavar="AXIS",
        help="Which times count: `recorded`, the ledger's, or `claimed`, the clients'. With `claimed`, "
        "--position limits the events to those recorded up to it.",
    ),
]


def states(
    context: typer.Context,
    category: Category = None,
    status: Annotated[str | None, typer.Option(metavar="S", help="Only those in this status.")] = None,
    at: At = None,
    position: Position = None,
    axis: OfAxis = "recorded",
    count: Annotated[bool, typer.Option("--count", help="Show the number of streams instead.")] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Show at most N streams.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which streams were in which status at a moment, and since when.

    The statuses now, or as of a time or a position, read from the events. The ledger or an imported domain
    (see --domain) declares to which status a topic leads. With --axis claimed, the events of a stream are
    ordered by claimed time, and events without a claimed time are ignored.

    \b
    Examples:
      pledger states --status running --at 14:00
      pledger states --category incident --axis claimed --at 2012-05-01 --count

    JSON, one object per line: stream, status, since, version and position (of the event that led to the
    status); with --count category, status, streams; each with as_of (position, time, beyond).
    """
    from projections.audit import counts
    from projections.audit import states as found_in

    session = session_of(context, as_json)
    question = _question(session, at, position, axis, category=category)
    with session.ledger() as log:
        if count:
            found, counted = counts(log, question, status=status)
            titles = [Column("category", keep=True), Column("status"), Column("streams", number=True)]
            _print(session, found, titles, counted)
            return
        found, rows = found_in(log, question, status=status, limit=limit)
    titles = [Column("stream", keep=True), *titled("status", "since"), *titled("ver", "pos", number=True)]
    _print(session, found, titles, rows)


def dwell(
    context: typer.Context,
    stream: Annotated[
        str | None, typer.Argument(metavar="STREAM", help="Show each stay of this stream.")
    ] = None,
    category: Category = None,
    each: Annotated[
        bool, typer.Option("--each", help="One row per stream instead of one per category.")
    ] = False,
    at: At = None,
    position: Position = None,
    axis: OfAxis = "recorded",
    as_json: AsJson = False,
) -> None:
    """Show how long streams stay in each status.

    For each category and status: the number of stays, how many of them are still open, and seconds: the
    median, the 95th percentile, the longest, and the total. Open stays count up to the given moment: now, or
    the time of --at; with --position or claimed times, the time of the last event. With a STREAM: each of its
    stays.

    JSON, one object per line: subject (a category or a stream), status, stays, open, median, p95, longest,
    total; of one stream: stream, status, since, until (null while it is open), version, position, seconds;
    each with as_of (position, time, beyond).
    """
    session = session_of(context, as_json)
    if stream is not None and (category is not None or each):
        raise Misuse("a STREAM excludes `--category` and `--each`")
    question = _question(session, at, position, axis, category=category, stream=stream)
    with session.ledger() as log:
        if stream is not None:
            _print_stays(session, log, question)
        else:
            _print_dwell(session, log, question, each)


def _question(
    session: Session,
    at: str | None,
    position: int | None,
    axis: str,
    *,
    category: str | None = None,
    stream: str | None = None,
) -> Question:
    """The query from the options. Raises Misuse, BadInput."""
    from projections.audit import Axis, Question

    if axis not in tuple(Axis):
        raise Misuse(f"--axis {axis!r} must be {' or '.join(Axis)}")
    session.know_domains()
    if axis == Axis.CLAIMED:
        return Question(moment_of(at), category, stream, Axis(axis), position)
    return Question(moment_of(at, position), category, stream)


def _print_stays(session: Session, log: Ledger, question: Question) -> None:
    from projections.audit import stays

    assert question.stream is not None
    log.read(question.stream, limit=1)  # raises for a stream without events
    found, rows = stays(log, question)
    titles = [Column("stream", keep=True), *titled("status", "since", "until")]
    _print(session, found, [*titles, *titled("ver", "pos", "time", number=True)], rows)


def _print_dwell(session: Session, log: Ledger, question: Question, each: bool) -> None:
    from projections.audit import dwell

    found, rows = dwell(log, question, each=each)
    titles = [Column("stream" if each else "category", keep=True), Column("status")]
    numbers = titled("stays", "open", "median", "p95", "longest", "total", number=True)
    _print(session, found, [*titles, *numbers], rows)


def _print(session: Session, found: AsOf, titles: Sequence[Column], rows: Sequence[Any]) -> None:
    """Print rows that are named tuples, and the moment that they are of."""
    then = as_of_json(found)
    session.print_rows(
        rows, titles, lambda row: [*map(_cell, row)], data=lambda row: {**plain(row), "as_of": then}
    )
    session.say(told(found))
    if not rows:
        session.say("no stream was in a status; import the domain that declares the statuses with --domain")


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return span(value) if is_terminal() else f"{value:.6f}"
    return value


def span(seconds: float) -> str:
    """Seconds for a person, in the two largest units that fit."""
    if seconds < 60:
        return f"{seconds:.3f} s"
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2])
