"""`pledger log` and `pledger tail`: the log in order, from the start or its end, and new events."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from .errors import Misuse, ReaderGone
from .moments import moment_of, told
from .output import body, brief, clean, event_json, flush, is_terminal, iso, local, terminal, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from rich.console import Console

    from ledger import Cursor, Ledger, Recorded
    from projections.audit import Moment
    from projections.engine.follower import BaseFollower

END = "end"
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C.")]
After = Annotated[
    str,
    typer.Option(metavar="POSITION", help="Only after this position; `end`: only new events."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only from this time, such as 14:00 or now-2h; local time if it has no offset."
    ),
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after N.")]
Topics = Annotated[list[str] | None, typer.Option(metavar="T", help="Only this topic. Repeatable.")]
Prefix = Annotated[str, typer.Option(metavar="PREFIX", help="Only streams whose names have this prefix.")]


Lines = Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many events.")]


def log_(
    context: typer.Context,
    follow: Follow = False,
    after: After = "0",
    since: Since = None,
    limit: Limit = None,
    topic: Topics = None,
    stream: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Show the whole log, in order.

    The events of all streams: from the first event, after a position, or from a time. `--since` starts at the
    first event that was recorded after the time; the order is always the position.

    POSITION may also be a cursor (LEDGER:POSITION:MARK); a cursor of another ledger is refused. JSON, one
    object per line: position, stream, version, topic, schema, recorded_at, actor, data, raw, meta.
    """
    session = session_of(context, as_json)
    start = _start(after, since)
    with session.ledger() as log:
        position = _position_of(log, start, session)
        found = _after(log, position, topic, follow)
        _print(islice((event for event in found if event.stream.startswith(stream)), limit), session, follow)


def tail(
    context: typer.Context,
    lines: Lines = 10,
    follow: Follow = False,
    topic: Topics = None,
    stream: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Show the last events of the log, in order.

    With -f, also new events until Ctrl-C; `-n 0 -f` shows only new events. `pledger log` shows the whole log.

    JSON, one object per line: position, stream, version, topic, schema, recorded_at, actor, data, raw, meta.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        bound = log.bound()
        _print(iter(log.last(lines, bound, topics=topic, prefix=stream)), session, follow)
        if follow:
            found = _after(log, bound, topic, follow)
            _print((event for event in found if event.stream.startswith(stream)), session, follow)


def _after(log: Ledger, position: int | Cursor, topics: list[str] | None, follow: bool) -> Iterator[Recorded]:
    from projections.engine.follower import Follower

    follower = Follower(log, position, topics=topics or None)
    return (event for events in batches_of(follower, log, follow) for event in events)


def _print(events: Iterator[Recorded], session: Session, follow: bool) -> None:
    line = _line_of(session)
    for event in events:
        write(line(event) + "\n")
        if follow:
            flush()


class Positioned(Protocol):
    """Something with a position in the log: an event, or a change that an event made."""

    @property
    def position(self) -> int: ...


P = TypeVar("P", bound=Positioned)


def batches_of(follower: BaseFollower[P], log: Ledger, follow: bool) -> Iterator[list[P]]:
    """Batches up to the present end; then, if `follow`, new ones, while the output has a reader."""
    if follow:
        stop = threading.Event()
        threading.Thread(target=_await_end_of_reader, args=(stop,), daemon=True).start()
        yield from follower.batches(stop)
        raise ReaderGone
    end = log.bound()
    while follower.position < end and (events := follower.poll()):
        yield [event for event in events if event.position <= end]


def _await_end_of_reader(stop: threading.Event) -> None:
    """Set `stop` when the other end of our pipe is closed: a process that writes nothing never notices."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # not a real file, as in tests
        return
    while not any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll()):
        pass
    stop.set()


def _line_of(session: Session) -> Callable[[Recorded], str]:
    if session.json:
        return event_json
    return _drawn(terminal(color=session.color)) if is_terminal() else _tabbed


def _tabbed(event: Recorded) -> str:
    """Position, time, stream, version, topic, actor and body; uncut, between tabs."""
    values = (str(event.position), iso(event.recorded_at), event.stream, str(event.version), event.topic)
    return "\t".join(map(clean, (*values, event.meta.actor or "", body(event))))


def _drawn(console: Console) -> Callable[[Recorded], str]:
    from rich.text import Text

    def draw(event: Recorded) -> str:
        text = Text(f"{event.position:>8} ", "bold")
        text.append(f"{local(event.recorded_at)} ", "not bold dim").append(
            clean(event.stream), "not bold cyan"
        )
        text.append(f"@{event.version} ", "not bold dim").append(f"{clean(event.topic)} ", "not bold green")
        text.append(f"{clean(event.meta.actor or '')} ", "not bold").append(brief(event), "not bold dim")
        with console.capture() as drawn:
            console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        return drawn.get().rstrip("\n")

    return draw


def _position_of(log: Ledger, start: int | Cursor | Moment | None, session: Session) -> int | Cursor:
    """The position or cursor to start after; that of a given time is reported."""
    from ledger import Cursor

    if start is None:
        return log.bound()
    if isinstance(start, int | Cursor):
        return start
    from projections.audit import as_of

    found = as_of(log, start)
    session.say(told(found))
    return found.position


def _start(after: str, since: str | None) -> int | Cursor | Moment | None:
    """Where to start; None is the present end."""
    if since is not None:
        if after != "0":
            raise Misuse("`--after` and `--since` exclude each other")
        return moment_of(since)
    if after == END:
        return None
    if after.isascii() and after.isdigit():
        return int(after)
    from ledger import Cursor

    if ":" in after:
        return Cursor.parse(after)
    raise Misuse(f"--after {after!r} is not a position: give a number of 0 or more, a cursor, or `end`")
