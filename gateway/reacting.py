"""`pledger react`: a reactor that follows the log, until it is stopped or to the log's present end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .codes import Misuse
from .printing import fields, json_line
from .session import AsJson, Session, imported, session_of

if TYPE_CHECKING:
    from consumers import Answer, Reactor
    from ledger import Ledger, Recorded

READINESS: Final = "consumers.project_state:readiness"
EVERY: Final = 5.0
"""Seconds between two lines of progress, while there is any."""

Which = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME",
        help="A function of yours that takes the ledger and returns a Reactor; else that of readiness.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Handle what is there, and end.")]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="NAME=N",
        help="For projects without a plan, such as strips_per_slice=4. Repeatable; only for readiness.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(react)


def react(
    context: typer.Context,
    reactor: Which = READINESS,
    once: Once = False,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Follow the log and answer it with facts, until Ctrl-C.

    By default the facts of readiness: `lsm.channel.ready` and the others, one each time that a set is
    complete. Each is recorded exactly once, also where two reactors of one name run at a time. Where a
    reactor stands is kept in the ledger under its name, and the next one goes on there.

    \b
    Examples:
      pledger react
      pledger react --once
      pledger react my_pipeline.reactions:escalation

    JSON, one object at the end: reactor, seen (events that it looked at), facts (that it answered with),
    position.
    """
    session = session_of(context, as_json)
    make = _factory(reactor, expect or [])
    with session.ledger() as log:
        made = _made(make, log, reactor)
        watched = Watched(made.react)
        made.react = watched
        try:
            if once:
                made.catch_up()
            else:
                _run(made, watched, session)
        finally:
            _report(made, watched, session)


class Watched:
    """A reaction that is counted; one that is asked again counts once."""

    def __init__(self, reaction: Callable[[Recorded], Any]) -> None:
        self.reaction = reaction
        self.seen = self.facts = self.position = 0

    def __call__(self, event: Recorded) -> list[Answer]:
        answers: list[Answer] = list(self.reaction(event))
        if event.position > self.position:
            self.position = event.position
            self.seen += 1
            self.facts += sum(len(answer.events) for answer in answers)
        return answers


def _run(reactor: Reactor, watched: Watched, session: Session) -> None:
    """React in a thread until a signal ends this one; leaving `with` keeps the reactor's position."""
    session.say(f"reactor {reactor.name} runs; Ctrl-C ends it")
    seen, at = 0, monotonic()
    with reactor:
        while not reactor.wait_for(sys.maxsize, EVERY):
            now = monotonic()
            if watched.seen != seen:
                rate = (watched.seen - seen) / (now - at)
                session.say(f"position {reactor.position}: {_told(watched)}; {rate:,.0f} events/s")
            seen, at = watched.seen, now


def _told(watched: Watched) -> str:
    return f"{watched.seen} events seen, answered with {watched.facts} facts"


def _report(reactor: Reactor, watched: Watched, session: Session) -> None:
    counts = {"seen": watched.seen, "facts": watched.facts, "position": reactor.position}
    if session.json:
        json_line({"reactor": reactor.name, **counts})
    else:
        pairs = [("reactor", reactor.name), *((name, str(count)) for name, count in counts.items())]
        fields(pairs, color=session.color)


# Which reactor


def _factory(named: str, expect: list[str]) -> Callable[[Ledger], Any]:
    """What makes the reactor. Raises Misuse where there is no such thing."""
    module, _, name = named.partition(":")
    if not (module and name):
        raise Misuse(f"{named!r} must be MODULE:NAME, such as my_pipeline.reactions:escalation")
    if expect and named != READINESS:
        raise Misuse("`--expect` is for the reactor of readiness; give your own its settings in its function")
    made: Any = getattr(imported(module, "module"), name, None)
    if not callable(made):
        raise Misuse(f"the module {module!r} has no function {name!r}")
    totals = dict(map(_total, expect))
    return lambda ledger: made(ledger, **totals)


def _total(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise Misuse(f"--expect {text!r} must be NAME=N, such as strips_per_slice=4")
    return name, int(number)


def _made(make: Callable[[Ledger], Any], log: Ledger, named: str) -> Reactor:
    """The reactor. Raises Misuse where the function makes none."""
    from consumers import Reactor
    from ledger import LedgerError

    try:
        reactor = make(log)
    except LedgerError:
        raise
    except Exception as error:  # whatever somebody else's function does
        raise Misuse(f"{named} failed: {type(error).__name__}: {error}") from error
    if not isinstance(reactor, Reactor):
        raise Misuse(f"{named} made a {type(reactor).__name__}; it must take the ledger and return a Reactor")
    return reactor
