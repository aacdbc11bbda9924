"""`pledger lsm show`: the state of an imaging project, or of a part of it (spec S0-80)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .codes import Misuse, NotThere
from .plain import iso, local
from .printing import Column, fields, is_terminal, json_line, table
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from rich.text import Text

    from ledger.project_state import LSMStateService

STATES = {"completed": "green", "running": "yellow", "failed": "red", "pending": "dim"}
BAR = 10
"""Cells of a bar."""
FILL = {"completed": "█", "running": "▓", "failed": "×", "pending": "░"}
"""What a bar is drawn with, so that it can be read without colours too."""
LEVELS = ("slice", "channel", "strip")
STRIP_FLAGS = ("compressed", "archived", "uploaded")
CHANNEL_FLAGS = ("mip_stitched", "volume_stitched", "volume_uploaded")
MADE = dict(zip(CHANNEL_FLAGS, ("mip", "volume", "uploaded"), strict=True))

OnlySlice = Annotated[int | None, typer.Option("--slice", metavar="N", min=0, help="Only this slice.")]
OnlyChannel = Annotated[
    int | None, typer.Option("--channel", metavar="N", min=0, help="Only this channel of the slice.")
]
OnlyStrip = Annotated[
    int | None, typer.Option("--strip", metavar="N", min=0, help="Only this strip of the channel.")
]

lsm = typer.Typer(help="Projects of the LSM pipeline.", rich_markup_mode=None)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    lsm.command()(show)
    app.add_typer(lsm, name="lsm")


def show(
    context: typer.Context,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name, in any spelling.")],
    slice_id: OnlySlice = None,
    channel_id: OnlyChannel = None,
    strip_id: OnlyStrip = None,
    as_json: AsJson = False,
) -> None:
    """Show a project, slice, channel or strip.

    JSON: the view, indented: processing_state, the times, the flags, and below it slices, channels, strips
    by their ids. Nothing is waited for: what is open for change elsewhere is shown as it was before.
    """
    session = session_of(context, as_json)
    ids = dict(zip(LEVELS, (slice_id, channel_id, strip_id), strict=True))
    for parent, child in (("channel", "strip"), ("slice", "channel"), ("slice", "strip")):
        if ids[child] is not None and ids[parent] is None:
            raise Misuse(f"`--{parent}` is required when `--{child}` is provided.")
    path = {level: number for level, number in ids.items() if number is not None}
    with session.ledger() as log:
        from ledger.project_state import LSMStateService

        view = _found(LSMStateService(log), project, path)
    if session.json:
        json_line(view.to_dict(), indent=2)
    else:
        _print(view, path, session)


def _found(service: LSMStateService, project: str, path: dict[str, int]) -> Any:
    """The view of the last level of the path. Raises NotThere, naming the first level that is missing."""
    view = _peek(service, project, path)
    if view is not None:
        return view
    paths = [dict(list(path.items())[:depth]) for depth in range(len(path) + 1)]
    above = next((above for above in paths if _peek(service, project, above) is None), path)
    level = list(above)[-1].capitalize() if above else "Project"
    where = ", ".join(f"{name}={number}" for name, number in above.items()) or f"project={project!r}"
    raise NotThere(f"{level} not found: {where}", project=project, **above)


def _peek(service: LSMStateService, project: str, path: dict[str, int]) -> Any:
    """The view as it is in this moment, None where there is none."""
    ids = {f"{level}_id": number for level, number in path.items()}
    level = list(path)[-1] if path else "project"
    view = getattr(service, f"peek_{level}_by_parts")(project, **ids)
    return view if view is not None and view.exists else None


def _print(view: Any, path: dict[str, int], session: Session) -> None:
    shown = [(name, _told(value)) for name, value in _own(view) if value is not None]
    if "strip" in path or is_terminal():
        fields(shown, color=session.color)
    if "channel" in path and "strip" not in path:
        _print_strips(view.strips.values(), session)
    elif "strip" not in path:
        slices = [view] if "slice" in path else [view.slices[number] for number in sorted(view.slices)]
        _print_channels(slices, session)


def _own(view: Any) -> Iterator[tuple[str, Any]]:
    """What the item says of itself, without its children."""
    for name, value in view.to_dict().items():
        if not isinstance(value, dict):
            yield name, getattr(view, name)


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "isoformat"):
        return local(value) if is_terminal() else iso(value)
    return str(value)


def _print_strips(strips: Iterable[Any], session: Session) -> None:
    """A row a strip: id, state, the flags, attempts, when it was finished, why it failed."""
    ordered = sorted(strips, key=lambda strip: strip.strip_id)
    if not is_terminal():
        table([], map(_strip_row, ordered), color=False)
        return
    columns = [
        Column("strip", number=True),
        Column("state"),
        Column("compr/arch/upl"),
        Column("tries", number=True),
    ]
    columns += [Column("finished"), Column("reason", keep=True)]
    rows = ([*row[:2], "/".join(row[2:5]), *row[5:]] for row in map(_strip_row, ordered))
    table(columns, rows, color=session.color, styles=STATES)


def _strip_row(strip: Any) -> list[str]:
    flags = [_told(getattr(strip, flag)) for flag in STRIP_FLAGS]
    ended = [_told(strip.processing_finished_at or ""), strip.reason or ""]
    return [str(strip.strip_id), strip.processing_state.value, *flags, str(strip.attempts), *ended]


def _print_channels(slices: Iterable[Any], session: Session) -> None:
    """A row a channel: ids, state, how many strips are in which state and have which flag, its own flags."""
    pairs = [
        (a_slice.slice_id, a_slice.channels[number])
        for a_slice in slices
        for number in sorted(a_slice.channels)
    ]
    if not is_terminal():
        table([], (_whole_row(slice_id, channel) for slice_id, channel in pairs), color=False)
        return
    columns = [
        Column("slice", number=True),
        Column("channel", number=True),
        Column("state"),
        Column("strips"),
    ]
    columns += [Column("done", number=True), Column("failed", number=True)]
    columns += [Column("compr/arch/upl", number=True), Column("made", keep=True)]
    rows = [_drawn_row(slice_id, channel) for slice_id, channel in pairs]
    table(columns, rows, color=session.color, styles=STATES)


def _counted(channel: Any) -> tuple[Counter[str], list[int]]:
    """How many strips are in each state, and how many have each flag."""
    strips = channel.strips.values()
    states = Counter(strip.processing_state.value for strip in strips)
    return states, [sum(getattr(strip, flag) for strip in strips) for flag in STRIP_FLAGS]


def _whole_row(slice_id: int, channel: Any) -> list[str]:
    states, flags = _counted(channel)
    counts = [len(channel.strips), *(states[state] for state in STATES), *flags]
    own = [_told(getattr(channel, flag)) for flag in CHANNEL_FLAGS]
    return [str(slice_id), str(channel.channel_id), channel.processing_state.value, *map(str, counts), *own]


def _drawn_row(slice_id: int, channel: Any) -> list[str | Text]:
    states, flags = _counted(channel)
    total = len(channel.strips)
    made = ", ".join(MADE[flag] for flag in CHANNEL_FLAGS if getattr(channel, flag))
    counts = [f"{states['completed']}/{total}", str(states["failed"] or ""), "/".join(map(str, flags))]
    ids = [str(slice_id), str(channel.channel_id)]
    return [*ids, channel.processing_state.value, _bar(states, total), *counts, made]


def _bar(states: Counter[str], total: int) -> Text:
    """BAR cells, shared among the states; each state that occurs has at least one."""
    from rich.text import Text

    bar = Text(no_wrap=True)
    for state, style in STATES.items():
        if states[state]:
            bar.append(FILL[state] * max(1, round(BAR * states[state] / total)), style)
    bar.truncate(BAR, pad=True)
    return bar
