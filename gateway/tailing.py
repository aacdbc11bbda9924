"""`pledger tail`: the log in its order, to its present end or for as long as one looks."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from .codes import Misuse, ReaderGone
from .plain import body, clean, event_json, iso, local
from .printing import flush, is_terminal, terminal, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from rich.console import Console

    from ledger import Cursor, Ledger, Recorded
    from projections.follower import Follower

END = "end"
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")]
After = Annotated[
    str,
    typer.Option(metavar="POSITION", help="Only after this position; `end`: only what comes from now on."),
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after so many.")]
Topics = Annotated[list[str] | None, typer.Option(metavar="T", help="Only this topic. Repeatable.")]
Prefix = Annotated[str, typer.Option(metavar="PREFIX", help="Only streams whose names start so.")]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(tail)


def tail(
    context: typer.Context,
    follow: Follow = False,
    after: After = "0",
    limit: Limit = None,
    topic: Topics = None,
    stream: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Show the events of the log, in order.

    All streams together, from the start or after a position.

    POSITION may also be a cursor (LEDGER:POSITION:MARK), which is refused on another history. JSON, one
    object a line: position, stream, version, topic, schema, recorded_at, actor, data, raw, meta.
    """
    session = session_of(context, as_json)
    start = _start(after)
    from projections.follower import Follower

    with session.ledger() as log:
        position = log.bound() if start is None else start
        follower = Follower(log, position, topics=topic or None)
        wanted = (event for events in _batches(follower, log, follow) for event in events)
        line = _line_of(session)
        for event in islice((event for event in wanted if event.stream.startswith(stream)), limit):
            write(line(event) + "\n")
            if follow:
                flush()


def _batches(follower: Follower, log: Ledger, follow: bool) -> Iterator[list[Recorded]]:
    """What there is now, batch by batch; then, if it shall follow, what comes, while somebody reads it."""
    if follow:
        stop = threading.Event()
        threading.Thread(target=_await_end_of_reader, args=(stop,), daemon=True).start()
        yield from follower.batches(stop)
        raise ReaderGone
    end = log.bound()
    while follower.position < end and (events := follower.poll()):
        yield [event for event in events if event.position <= end]


def _await_end_of_reader(stop: threading.Event) -> None:
    """Set `stop` when the other end of our pipe is closed: who has nothing to write never sees that."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no real file, as in tests
        return
    while not any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll()):
        pass
    stop.set()


def _line_of(session: Session) -> Callable[[Recorded], str]:
    if session.json:
        return event_json
    return _drawn(terminal(color=session.color)) if is_terminal() else _tabbed


def _tabbed(event: Recorded) -> str:
    """Position, time, stream, version, topic, actor and body; whole, between tabs."""
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
        text.append(f"{clean(event.meta.actor or '')} ", "not bold").append(body(event), "not bold dim")
        with console.capture() as drawn:
            console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        return drawn.get().rstrip("\n")

    return draw


def _start(after: str) -> int | Cursor | None:
    """Where to start; None is the present end."""
    if after == END:
        return None
    if after.isascii() and after.isdigit():
        return int(after)
    from ledger import Cursor

    if ":" in after:
        return Cursor.parse(after)
    raise Misuse(f"--after {after!r} is no position: a number of 0 or more, a cursor, or `end`")
