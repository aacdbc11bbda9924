"""`pledger verify`: fold every stream, compare what is kept of it, name each difference, and mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .codes import Code, Misuse, NotThere
from .plain import plain
from .printing import Column, flush, is_terminal, json_line, table
from .progress import board
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from projections.folding import Which
    from projections.verify import Check, Difference, Summary

LISTED = 100
"""Differences that are listed where nobody says how many."""
COLUMNS = (
    Column("difference"), Column("about", keep=True), Column("version", number=True),
    Column("finding", keep=True), Column("kept -> events", keep=True), Column("repair"),
)  # fmt: skip

All = Annotated[bool, typer.Option("--all", help="All streams, and command ids; that is the default.")]
Sample = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only N streams, by chance.")]
Prefix = Annotated[str | None, typer.Option("--stream", metavar="PREFIX", help="Only streams named so.")]
Category = Annotated[str | None, typer.Option(metavar="C", help="Only streams of this category.")]
Repair = Annotated[bool, typer.Option("--repair", help="Mend what can be mended, and say so.")]
Processes = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many processes fold; else one a processor.")
]
Checked = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="VIEW",
        help="Of the views, only this; '' for none; else all, where all streams are.",
    ),
]
Listed = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="List at most N; 0 lists all.")]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(verify)


def verify(
    context: typer.Context,
    every: All = False,
    sample: Sample = None,
    stream: Prefix = None,
    category: Category = None,
    repair: Repair = False,
    processes: Processes = None,
    check: Checked = None,
    limit: Listed = LISTED,
    as_json: AsJson = False,
) -> None:
    """Prove that what is kept equals the events.

    Folds every stream from its first event and compares version, status and state with its head; looks for
    gaps in versions, positions that do not ascend and events that cannot be read; compares command ids and
    views. Nobody who appends is disturbed, and nothing that they do is taken for a difference.

    With --repair heads, command ids and views are set to what the events say. Events are never changed: what
    is wrong with them stays, and is named.

    \b
    Examples:
      pledger verify
      pledger verify --sample 1000
      pledger verify --stream lsm.strip/brain-7/ --repair

    Exits 1 where something is different and was not mended. JSON, one object a difference: difference (its
    kind), about (a stream, a command id), version, position, says, fields (name, kept, events), mended, view;
    at the end one object with `summary`.
    """
    session = session_of(context, as_json)
    which = _which(every, stream, category, sample)
    session.know_domains()
    listing = _Listing(session, limit)
    checks = _checks(session, check, which)
    how = {"repair": repair, "processes": processes, "checks": checks, "found": listing.add}
    summary = _run(session, which, how)
    if not (which.everything or summary.streams):
        raise NotThere(f"no stream has a name that begins with {which.prefix!r}: nothing was verified")
    listing.end(summary)
    if not summary.equal:
        flush()
        raise typer.Exit(Code.REFUSED)


def _which(every: bool, stream: str | None, category: str | None, sample: int | None) -> Which:
    from projections.folding import Which

    if every and (sample is not None or stream is not None or category is not None):
        raise Misuse("--all and a part (--sample, --stream, --category) contradict each other: give one")
    return Which.of(stream, category, sample)


def _run(session: Session, which: Which, how: dict[str, Any]) -> Summary:
    from projections.verify import verify

    with session.ledger() as log, board(session) as shown:
        return verify(log, which, progress=shown.work("verify").at, **how)


def _checks(session: Session, names: list[str] | None, which: Which) -> list[Check]:
    """The checks of views that are wanted; of a part of the ledger none, unless they are named.

    A view is built whole to be compared. Raises UnknownView.
    """
    from .naming_views import views_for

    if names is None and not which.everything:
        return []
    from projections.views.verifying import ViewCheck

    wanted = [name for name in names or [] if name]
    views = views_for(session, wanted) if wanted or names is None else []
    return [ViewCheck(view) for view in views]


class _Listing:
    """Lists differences as they are found, so many; and says at the end how it came out."""

    def __init__(self, session: Session, limit: int) -> None:
        self.session, self.limit = session, limit
        self.listed = 0
        self.rows: list[list[str]] = []

    def add(self, difference: Difference) -> None:
        self.listed += 1
        if self.limit and self.listed > self.limit:
            return
        if self.session.json:
            json_line(_object(difference))
        elif is_terminal():
            self.rows.append(_row(difference))  # until the bar is gone
        else:
            table([], [_row(difference)], color=False)

    def end(self, summary: Summary) -> None:
        if self.rows:
            table(COLUMNS, self.rows, color=self.session.color)
        if self.session.json:
            json_line({"summary": _summed(summary)})
        if self.limit and self.listed > self.limit:
            self.session.say(f"{self.listed - self.limit} differences more: --limit 0 lists all")
        self.session.say(_told(summary))


def _object(difference: Difference) -> dict[str, Any]:
    shown: dict[str, Any] = plain(difference)
    return {"difference": shown.pop("kind")} | shown | {"fields": [f._asdict() for f in difference.fields]}


def _row(difference: Difference) -> list[str]:
    """What is wrong, with what, at which version, in words, field by field, and what was done."""
    fields = "; ".join(f"{name}: {kept} -> {events}" for name, kept, events in difference.fields)
    version = "" if difference.version is None else str(difference.version)
    return [
        difference.kind.value,
        difference.about,
        version,
        difference.says,
        fields,
        difference.mended or "",
    ]


def _summed(summary: Summary) -> dict[str, Any]:
    return {**plain(summary), "differences": summary.differences, "equal": summary.equal}


def _told(summary: Summary) -> str:
    looked = f"{summary.streams:,} streams of {summary.events:,} events, {summary.heads:,} heads"
    if summary.commands:
        looked += f", {summary.commands:,} command ids"
    found = ", ".join(f"{many} × {kind}" for kind, many in summary.kinds.most_common()) or "no difference"
    notes = [
        f"{many} {words}"
        for many, words in (
            (summary.mended, "of these mended"),
            (summary.old, "heads of older code, which readers fold anew"),
            (summary.unsure, "states that nobody here can judge: name their module with --domain"),
        )
        if many
    ]
    return "; ".join([f"{looked}: {found}", *notes])
