"""`pledger rebuild`: make views anew from the log beside the live ones, compare them, and switch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .errors import Misuse
from .output import Column, flush, titled
from .session import AsJson, Session, session_of
from .stderr import Progress, show_progress
from .views import views_for

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.engine.rebuild import Building, Rebuilt
    from projections.engine.view import View
    from projections.verify import Summary

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="VIEW", help="Views (`pledger views` lists them), `heads`, or `commands`."),
]
All = Annotated[bool, typer.Option("--all", help="All known views, heads and commands.")]
Stream = Annotated[
    str,
    typer.Option(
        metavar="PREFIX", help="Rebuild only rows of streams whose names have this prefix, in place."
    ),
]
Category = Annotated[
    str, typer.Option(metavar="C", help="Rebuild only rows of streams of this category, in place.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Build and compare, then discard the new copy.")]
Allowed = Annotated[
    int | None,
    typer.Option("--allow", metavar="N", min=0, help="Refuse to switch where more than N rows differ."),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Start from the beginning, even if an earlier rebuild was killed.")
]
RollBack = Annotated[
    bool, typer.Option("--roll-back", help="Switch back to the copy before the last rebuild.")
]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many views at once. Default: one per processor.")
]


def rebuild(
    context: typer.Context,
    views: Names = None,
    everything: All = False,
    stream: Stream = "",
    category: Category = "",
    dry_run: DryRun = False,
    allow: Allowed = None,
    restart: Restart = False,
    roll_back: RollBack = False,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild what is derived from the log: views, heads, command ids.

    A new copy is filled while the live one serves readers. It is brought to the same position, compared with
    the live one, and then replaces it. No reader waits. The former copy is kept (`--roll-back`). If a rebuild
    is killed, run it again: it continues where it stopped. `heads` (the current states) and `commands` (the
    command ids) are not views: appends write them, and they are repaired in place.

    Exits 1 if `--allow` refused a switch, 5 if another process builds the same view. JSON, one object per
    view: view, copy, before, position, events, seconds, parked, switched, continued, differences: a list of
    table, only_old, only_new, old, new (some of the rows), columns (that only one of them has),
    unknown_topics (topics of the view that no event and no class has).
    """
    session = session_of(context, as_json)
    for_views = dry_run or restart or roll_back or allow is not None
    _check(views, everything, stream or category, for_views)
    kept, wanted = _wanted(views or [], bool(stream or category) or for_views, session)
    with session.ledger("pledger rebuild") as log:
        rebuild_kept(log, kept, stream, category, jobs, session)
        if stream or category:
            _partly(log, wanted, stream, category, session)
        elif wanted:
            act = _going_back(log) if roll_back else _building(log, allow, dry_run, restart)
            _wholly(act, wanted, jobs or os.cpu_count() or 1, session)


def _wholly(act: Any, views: Sequence[View], jobs: int, session: Session) -> None:
    """Rebuild the views, print the results, and fail if one of them failed."""
    with show_progress(session) as shown:
        made = _each(act, views, shown, jobs)
    _show([one for one in made if not isinstance(one, Exception)], session)
    if failed := [error for error in made if isinstance(error, Exception)]:
        flush()
        raise failed[0]


def _check(views: list[str] | None, everything: bool, part: str, whole: bool) -> None:
    if bool(views) == everything:
        raise Misuse("give the views to rebuild, or --all; `pledger views` lists them")
    if part and whole:
        raise Misuse("--stream and --category rebuild in place: they take no other option")
    if whole and set(views or ()) & set(KEPT):
        raise Misuse("heads and commands are repaired in place: they take no option of a view's rebuild")


def _wanted(names: list[str], part: bool, session: Session) -> tuple[list[str], list[View]]:
    """The named tables that appends maintain, and views; by default all, of a part all views."""
    kept = [name for name in KEPT if name in names or not (names or part)]
    named = [name for name in names if name not in KEPT]
    return kept, views_for(session, named) if named or not names else []


def _building(log: Ledger, allow: int | None, dry_run: bool, restart: bool) -> Any:
    from projections.engine.rebuild import rebuild as build

    def act(view: View, progress: Callable[[Building], None]) -> Rebuilt:
        return build(log, view, allowed=allow, dry_run=dry_run, restart=restart, progress=progress)

    return act


def _going_back(log: Ledger) -> Any:
    from projections.engine.rebuild import roll_back as back

    return lambda view, _progress: back(log, view)


def _each(act: Any, views: Sequence[View], shown: Progress, jobs: int) -> list[Rebuilt | Exception]:
    """Rebuild several views at once; an error in one does not stop the others."""

    def one(view: View) -> Rebuilt | Exception:
        task = shown.task(view.name)
        try:
            made: Rebuilt = act(view, lambda step: task.update(step.position, step.end))
        except Exception as error:
            return error
        return made

    with ThreadPoolExecutor(min(jobs, len(views))) as pool:
        return list(pool.map(one, views))


def _partly(log: Ledger, views: Sequence[View], stream: str, category: str, session: Session) -> None:
    from projections.engine.copies import open_copies
    from projections.engine.refold import refold

    with open_copies(log) as copies:
        for view in views:
            live = copies.followed(view)
            many = refold(copies, view, live.number, prefix=stream, category=category)
            row = {"view": view.name, "copy": live.number, "streams": many}
            columns = [Column("view"), Column("streams", number=True)]
            session.print_rows([row], columns, itemgetter("view", "streams"))


def _show(made: Sequence[Rebuilt], session: Session) -> None:
    from projections.engine.topics import warning

    numbers = titled("copy", "events", "events/s", "differences", "parked", number=True)
    session.print_rows(made, [Column("view"), *numbers, Column("now", keep=True)], _row)
    if not session.json:
        for line in (line for one in made for line in _told(one)):
            session.say(line)
    for one in made:
        if one.unknown_topics:
            session.say(warning(one.view, one.unknown_topics))


def _row(one: Rebuilt) -> list[Any]:
    differ = sum(difference.rows for difference in one.differences)
    rate = f"{one.events / max(one.seconds, 1e-9):.0f}"
    return [one.view, one.copy, one.events, rate, differ, one.parked, _now(one)]


def _now(one: Rebuilt) -> str:
    if not one.switched:
        return "not switched"
    return "live" if one.before is None else f"live, copy {one.before} is kept"


def _told(one: Rebuilt) -> Iterator[str]:
    """The differences in words, with some rows of each."""
    for difference in one.differences:
        if difference.columns:
            yield f"{difference.table}: only one of the copies has {', '.join(difference.columns)}"
        for kind, rows, many in (
            ("only before", difference.old, difference.only_old),
            ("only now", difference.new, difference.only_new),
        ):
            for row in rows:
                yield f"{difference.table}, {kind}: {row}"
            if many > len(rows):
                yield f"{difference.table}, {kind}: {many - len(rows)} more"


KEPT: Final = ("heads", "commands")
"""Tables beside views that can be rebuilt (projections/engine/view.py reserves these names)."""


def rebuild_kept(
    log: Ledger, names: Sequence[str], stream: str, category: str, jobs: int | None, session: Session
) -> None:
    """Set heads and command ids to what the events give, while others append; print the changes."""
    session.know_domains()
    for name in names:
        began = monotonic()
        with show_progress(session) as shown:
            summary = _rebuilt_kept(log, name, stream, category, jobs, shown.task(name).update)
        _show_kept(name, summary, monotonic() - began, session)
        for topic, unknown in sorted(summary.unknown.items()):
            session.say(
                f"{topic}: {unknown.difference(topic).says}; the states of these streams were not changed"
            )


def _rebuilt_kept(
    log: Ledger, name: str, stream: str, category: str, jobs: int | None, progress: Any
) -> Summary:
    from projections.fold import Which
    from projections.verify import rebuild_commands, rebuild_heads

    if name == "commands":
        return rebuild_commands(log, processes=jobs, progress=progress)
    which = Which.of(stream or None, category or None)
    return rebuild_heads(log, which, processes=jobs, progress=progress)


def _show_kept(name: str, summary: Summary, seconds: float, session: Session) -> None:
    changed = dict(sorted(summary.changed.items()))
    told = {"view": name, "events": summary.events, "streams": summary.streams, "seconds": seconds,
            "changed": changed}  # fmt: skip
    rows = ", ".join(f"{many} {what}" for what, many in changed.items()) or "nothing changed"
    row = (name, summary.events, f"{summary.events / max(seconds, 1e-9):.0f}", rows)
    columns = [Column("kept"), *titled("events", "events/s", number=True), Column("rows", keep=True)]
    session.print_rows([told], columns, lambda _: row)
