"""`pledger rebuild`: views made anew from the log beside the live ones, compared, and switched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .codes import Misuse
from .kept import KEPT, rebuild_kept
from .naming_views import views_for
from .plain import plain
from .printing import Column, flush, json_line, table
from .progress import Board, board
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.views.built import Building, Rebuilt
    from projections.views.view import View

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="VIEW", help="Views (`pledger views` lists them), `heads`, or `commands`."),
]
All = Annotated[bool, typer.Option("--all", help="All views that this process knows, heads, commands.")]
Stream = Annotated[
    str, typer.Option(metavar="PREFIX", help="Only rows of streams whose names start so, in place.")
]
Category = Annotated[str, typer.Option(metavar="C", help="Only rows of streams of this category, in place.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Build and compare, then throw away what was built.")]
Allowed = Annotated[
    int | None,
    typer.Option("--allow", metavar="N", min=0, help="Refuse to switch where more than N rows differ."),
]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew where an earlier rebuild was killed.")]
RollBack = Annotated[
    bool, typer.Option("--roll-back", help="Switch back to the copy before the last rebuild.")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", min=1, help="Views at once; else one a processor.")]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(rebuild)


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
    """Make anew from the log what is derived from it: views, heads, commands.

    A new copy is filled while the live one serves, brought to where that one is, compared with it, and then
    shown to readers instead. Nobody waits for that. The copy before is kept (`--roll-back`). Killed, it goes
    on where it was when it is run again. `heads` (the current states) and `commands` (the command ids) are
    no views: appends keep them, and they are set right where they are.

    Exits 1 where `--allow` refused a switch, 5 where somebody else builds the same view. JSON, one object a
    view: view, copy, before, position, events, seconds, parked, switched, continued, differences: a list of
    table, only_old, only_new, old, new (some of the rows), columns (that only one of them has).
    """
    session = session_of(context, as_json)
    for_views = dry_run or restart or roll_back or allow is not None
    _check(views, everything, stream or category, for_views)
    kept, wanted = _wanted(views or [], bool(stream or category) or for_views, session)
    with session.ledger() as log:
        rebuild_kept(log, kept, stream, category, jobs, session)
        if stream or category:
            _partly(log, wanted, stream, category, session)
        elif wanted:
            act = _going_back(log) if roll_back else _building(log, allow, dry_run, restart)
            _wholly(act, wanted, jobs or os.cpu_count() or 1, session)


def _wholly(act: Any, views: Sequence[View], jobs: int, session: Session) -> None:
    """Rebuild the views, show what came of it, and fail if one of them did."""
    with board(session) as shown:
        made = _each(act, views, shown, jobs)
    _show([one for one in made if not isinstance(one, Exception)], session)
    if failed := [error for error in made if isinstance(error, Exception)]:
        flush()
        raise failed[0]


def _check(views: list[str] | None, everything: bool, part: str, whole: bool) -> None:
    if bool(views) == everything:
        raise Misuse("name the views to rebuild, or give --all; `pledger views` lists them")
    if part and whole:
        raise Misuse("a part (--stream, --category) is made anew in place: it takes no other option")
    if whole and set(views or ()) & set(KEPT):
        raise Misuse("heads and commands are set right in place: that takes no option of a view's rebuild")


def _wanted(names: list[str], part: bool, session: Session) -> tuple[list[str], list[View]]:
    """What appends keep, and the views; where none is named, all of them, and of a part only the views."""
    kept = [name for name in KEPT if name in names or not (names or part)]
    named = [name for name in names if name not in KEPT]
    return kept, views_for(session, named) if named or not names else []


def _building(log: Ledger, allow: int | None, dry_run: bool, restart: bool) -> Any:
    from projections.views.rebuilding import rebuild as build

    def act(view: View, progress: Callable[[Building], None]) -> Rebuilt:
        return build(log, view, allowed=allow, dry_run=dry_run, restart=restart, progress=progress)

    return act


def _going_back(log: Ledger) -> Any:
    from projections.views.rebuilding import roll_back as back

    return lambda view, _progress: back(log, view)


def _each(act: Any, views: Sequence[View], shown: Board, jobs: int) -> list[Rebuilt | Exception]:
    """Rebuild several views at once; what goes wrong with one stops no other."""

    def one(view: View) -> Rebuilt | Exception:
        work = shown.work(view.name)
        try:
            made: Rebuilt = act(view, lambda step: work.at(step.position, step.end))
        except Exception as error:
            return error
        return made

    with ThreadPoolExecutor(min(jobs, len(views))) as pool:
        return list(pool.map(one, views))


def _partly(log: Ledger, views: Sequence[View], stream: str, category: str, session: Session) -> None:
    from projections.views.copies import Shelf, projecting
    from projections.views.refolding import refold

    with projecting(log) as connection:
        shelf = Shelf(connection, log.schema)
        for view in views:
            live = shelf.followed(view)
            many = refold(shelf, view, live.number, prefix=stream, category=category)
            if session.json:
                json_line({"view": view.name, "copy": live.number, "streams": many})
            else:
                table(
                    [Column("view"), Column("streams", number=True)],
                    [(view.name, str(many))],
                    color=session.color,
                )


def _show(made: Sequence[Rebuilt], session: Session) -> None:
    if session.json:
        for one in made:
            json_line(_as_json(one))
        return
    columns = [Column("view"), Column("copy", number=True), Column("events", number=True),
               Column("events/s", number=True), Column("differences", number=True),
               Column("parked", number=True),
               Column("now", keep=True)]  # fmt: skip
    rows = [
        (one.view, str(one.copy), str(one.events), f"{one.events / max(one.seconds, 1e-9):.0f}",
         str(sum(d.rows for d in one.differences)), str(one.parked), _now(one))
        for one in made
    ]  # fmt: skip
    table(columns, rows, color=session.color)
    for line in (line for one in made for line in _told(one)):
        session.say(line)


def _now(one: Rebuilt) -> str:
    if not one.switched:
        return "not switched"
    return "live" if one.before is None else f"live, copy {one.before} is kept"


def _told(one: Rebuilt) -> Iterator[str]:
    """The differences in words, some rows of each."""
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


def _as_json(one: Rebuilt) -> dict[str, Any]:
    shown = {name: getattr(one, name) for name in one.__dataclass_fields__ if name != "differences"}
    shown["differences"] = [
        {name: getattr(difference, name) for name in difference.__dataclass_fields__}
        for difference in one.differences
    ]
    return dict(plain(shown))
