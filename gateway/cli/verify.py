"""`pledger verify`: fold every stream, compare it with the stored state, list and repair differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Code, Misuse, NotThere
from .output import Column, flush, is_terminal, json_line, most, plain, table
from .session import AsJson, Session, session_of
from .stderr import show_progress

if TYPE_CHECKING:
    from projections.fold import Which
    from projections.verify import Summary
    from projections.verify.difference import Difference, Kind
    from projections.verify.run import Check

COPY = "build_copy"
"""What the check of a local copy is called."""
LISTED = 100
"""How many differences are listed by default."""
COLUMNS = (
    Column("difference"), Column("about", keep=True), Column("version", number=True),
    Column("finding", keep=True), Column("kept -> events", keep=True), Column("repair"),
)  # fmt: skip

All = Annotated[bool, typer.Option("--all", help="Check all streams and command ids. This is the default.")]
Sample = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only N random streams.")]
Prefix = Annotated[
    str | None, typer.Option("--stream", metavar="PREFIX", help="Only streams whose names have this prefix.")
]
Category = Annotated[str | None, typer.Option(metavar="C", help="Only streams of this category.")]
Repair = Annotated[bool, typer.Option("--repair", help="Repair what can be repaired, and report it.")]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        metavar="KIND",
        help="With --repair: also repair this kind of evidence, such as 'head ahead'. Repeatable.",
    ),
]
Processes = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many processes fold. Default: one per processor.")
]
Checked = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="VIEW",
        help="Check only this view, or `build_copy`, the local copy of a build project; '' checks none. "
        "Default: all of them, if all streams are checked.",
    ),
]
Listed = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=0,
        help=f"List at most N; 0 lists all. Default: {LISTED} on a terminal, otherwise all.",
    ),
]  # fmt: skip


def verify(
    context: typer.Context,
    every: All = False,
    sample: Sample = None,
    stream: Prefix = None,
    category: Category = None,
    repair: Repair = False,
    also: Also = None,
    processes: Processes = None,
    check: Checked = None,
    limit: Listed = None,
    as_json: AsJson = False,
) -> None:
    """Check that heads, command ids and views equal the events.

    Folds every stream from its first event and compares version, status and state with its head; looks for
    gaps in versions, positions that do not ascend and events that cannot be read; compares command ids and
    views, and in the folder of a build project its local copy. Appends may continue meanwhile, and are not
    reported as differences.

    --repair restores heads, command ids and views that are missing or behind from the events. A head or
    command id that contradicts the events is evidence that events were lost or changed. It is reported and
    not repaired, nor is anything else of that stream, nor any view while there is such evidence; --also
    repairs one kind of it. Events are never changed.

    \b
    Examples:
      pledger verify
      pledger verify --sample 1000
      pledger verify --stream lsm.strip/brain-7/ --repair
      pledger verify --repair --also "head ahead"

    Exits 1 if a difference was not repaired. JSON, one object per difference: difference
    (its kind), about (a stream, a command id), version, position, says, fields (name, kept, events),
    repaired, view, evidence; at the end one object with `summary`.
    """
    session = session_of(context, as_json)
    which = _which(every, stream, category, sample)
    kinds = _kinds(also or [], repair)
    session.know_domains()
    listing = _Listing(session, most(limit, LISTED) or 0)
    checks = _checks(session, check, which)
    how = {"repair": repair, "also": kinds, "processes": processes, "checks": checks, "found": listing.add}
    summary = _run(session, which, how)
    if not (which.everything or summary.streams):
        raise NotThere(f"no stream has a name that begins with {which.prefix!r}: nothing was verified")
    _end(listing, summary)


def _end(listing: _Listing, summary: Summary) -> None:
    """Print the result. Raises typer.Exit if there are differences."""
    listing.end(summary)
    if not summary.equal:
        flush()
        raise typer.Exit(Code.REFUSED)


def _which(every: bool, stream: str | None, category: str | None, sample: int | None) -> Which:
    from projections.fold import Which

    if every and (sample is not None or stream is not None or category is not None):
        raise Misuse("--all excludes --sample, --stream and --category")
    return Which.of(stream, category, sample)


def _kinds(named: list[str], repair: bool) -> list[Kind]:
    """The kinds to repair although they are evidence. Raises Misuse for an unknown kind."""
    from projections.verify.difference import REPAIRABLE

    if named and not repair:
        raise Misuse("--also needs --repair")
    known = {kind.value: kind for kind in REPAIRABLE}
    kinds = [known.get(name.replace("-", " ")) for name in named]
    if None in kinds:
        wrong = named[kinds.index(None)]
        raise Misuse(f"--also {wrong!r} cannot be repaired; give one of {', '.join(known)}")
    return [kind for kind in kinds if kind is not None]


def _run(session: Session, which: Which, how: dict[str, Any]) -> Summary:
    from projections.verify import verify

    with session.ledger() as log, show_progress(session) as shown:
        return verify(log, which, progress=shown.task("verify").update, **how)


def _checks(session: Session, names: list[str] | None, which: Which) -> list[Check]:
    """The checks of the named views; by default of all views, for a part of the ledger of none.

    Comparing a view builds it completely. Raises UnknownView.
    """
    from .views import views_for

    if names is None and not which.everything:
        return []
    from projections.engine.check import ViewCheck

    wanted = [name for name in names or [] if name and name != COPY]
    views = views_for(session, wanted) if wanted or names is None else []
    return [*map(ViewCheck, views), *_check_of_copy(names)]


def _check_of_copy(names: list[str] | None) -> list[Check]:
    """The check of the local copy here or above; none where there is none. Raises NotThere if it is named."""
    from projections.builds.places import copy_near

    folder = copy_near(Path.cwd()) if names is None or COPY in names else None
    if folder is not None:
        try:
            from projections.builds import CopyCheck
        except ImportError as error:
            raise NotThere(f"{folder} is not verified: {error}; `--check VIEW` leaves it out") from error
        return [CopyCheck(folder)]
    if COPY in (names or []):
        raise NotThere("there is no local copy of a build project in this folder or above it")
    return []


class _Listing:
    """Lists the first differences as they are found, and the result at the end."""

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
            self.session.say(f"{self.listed - self.limit} more differences: --limit 0 lists all")
        self.session.say(_told(summary))
        if left := {kind: many for kind, many in summary.evidence.items() if many}:
            self.session.say(_of_evidence(left))


def _object(difference: Difference) -> dict[str, Any]:
    shown: dict[str, Any] = plain(difference)
    return {"difference": shown.pop("kind")} | shown


def _row(difference: Difference) -> list[Any]:
    """The difference, its subject and version, the description, its fields, and whether it was repaired."""
    fields = "; ".join(f"{name}: {kept} -> {events}" for name, kept, events in difference.fields)
    repaired = difference.repaired or ("evidence" if difference.evidence else "")
    return [difference.kind.value, difference.about, difference.version, difference.says, fields, repaired]


def _summed(summary: Summary) -> dict[str, Any]:
    return {**plain(summary), "differences": summary.differences, "equal": summary.equal}


def _of_evidence(left: dict[str, int]) -> str:
    """What was left as it is, and how to repair it."""
    from projections.verify.difference import REPAIRABLE

    kinds = [kind.value for kind in REPAIRABLE if kind.value in left]
    said = f"{sum(left.values())} of these are evidence of lost or changed events, and were not repaired"
    if not kinds:
        return f"{said}: they cannot be repaired"
    options = " ".join(f'--also "{kind}"' for kind in kinds)
    return (
        f"{said}: compare them with your backups first; then `pledger verify --repair {options}` repairs them"
    )


def _told(summary: Summary) -> str:
    looked = f"{summary.streams:,} streams of {summary.events:,} events, {summary.heads:,} heads"
    if summary.commands:
        looked += f", {summary.commands:,} command ids"
    found = ", ".join(f"{many} × {kind}" for kind, many in summary.kinds.most_common()) or "no difference"
    notes = [
        f"{many} {words}"
        for many, words in (
            (summary.repaired, "of these repaired"),
            (summary.old, "heads of older code, which readers fold again"),
            (summary.unsure, "states that could not be checked: import their module with --domain"),
        )
        if many
    ]
    return "; ".join([f"{looked}: {found}", *notes])
