"""`pledger reactors`: where reactors stand, what they leave out, and asking for another try."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .errors import Code, Misuse, NotThere
from .output import Column, clean, flush, is_terminal, json_line, titled, write
from .session import AsJson, Session, imported, session_of
from .stderr import log_to_stderr

if TYPE_CHECKING:
    from consumers import Answer, Reactor
    from ledger import Ledger, Recorded
    from ledger.log.readers import ParkedByReader

Name = Annotated[
    str, typer.Argument(metavar="REACTOR", help="A reactor; `pledger reactors list` lists them.")
]
OneName = Annotated[str | None, typer.Argument(metavar="REACTOR", help="Only of this reactor.")]
Stream = Annotated[str | None, typer.Argument(metavar="STREAM", help="A parked stream.")]
Everything = Annotated[bool, typer.Option("--all", help="All parked streams of the reactor.")]


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the reactors, with their positions and parked streams.

    A reactor is listed after it has stored a position. `last` is the last position of the log.

    JSON, one object per line: reactor, position, last, updated_at, parked.
    """
    session = session_of(context, as_json)
    from ledger.log.readers import ParkedStreams

    with session.ledger() as log:
        found = ParkedStreams(log).readers()
    columns = [Column("reactor", keep=True), *titled("position", "last", number=True), Column("since"),
               Column("parked", number=True)]  # fmt: skip
    session.print_rows(found, columns, attrgetter("reactor", "position", "last", "updated_at", "parked"))


def parked(context: typer.Context, reactor: OneName = None, as_json: AsJson = False) -> None:
    """List the streams that reactors leave out, with the reason.

    Shows the position and topic of the event that failed, the error, how often it was tried, and when last.
    The reactor handles no later event of the stream; all other streams continue.

    JSON, one object per line: reactor, stream, position, topic, error, tries, parked_at, again (whether a
    retry was requested).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = _parked(log, reactor)
    columns = [Column("reactor"), Column("stream", keep=True), Column("position", number=True),
               Column("topic", keep=True), Column("tries", number=True), Column("last"),
               Column("error", keep=True)]  # fmt: skip
    cells = attrgetter("reactor", "stream", "position", "topic", "tries", "parked_at", "error")
    session.print_rows(found, columns, cells)
    if not (found or session.json):
        session.say("nothing is parked")


def retry(
    context: typer.Context,
    reactor: Name,
    stream: Stream = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Retry parked streams of a reactor, from the event that failed.

    The reactor itself retries: within about a second if it runs (`pledger react`, or in a worker), otherwise
    when it starts. It reads the log again from there, and records only what is missing. A stream that fails
    again stays parked; `pledger reactors parked` shows one more try.

    JSON, one object per line: reactor, stream, position (of the event that is handled first).
    """
    session = session_of(context, as_json)
    if (stream is None) != everything:
        raise Misuse("give the stream to handle again, or --all")
    from ledger.log.readers import ParkedStreams

    with session.ledger() as log:
        chosen = [one for one in _parked(log, reactor) if stream in (None, one.stream)]
        if stream is not None and not chosen:
            raise NotThere(f"reactor {reactor} does not leave out {stream}", reactor=reactor, stream=stream)
        ParkedStreams(log).retry(reactor, stream)
    for one in chosen:
        _tell_asked(one, session)
    if not chosen:
        session.say("nothing is parked")


def _tell_asked(one: ParkedByReader, session: Session) -> None:
    if session.json:
        json_line({"reactor": one.reactor, "stream": one.stream, "position": one.position})
    elif is_terminal():
        write(f"{clean(one.stream)} will be handled again from position {one.position}\n")
    else:
        write(f"{clean(one.stream)}\t{one.position}\n")


def _parked(log: Ledger, reactor: str | None) -> list[ParkedByReader]:
    """The parked streams. Raises NotThere for a reactor that never ran."""
    from ledger.log.readers import ParkedStreams

    streams = ParkedStreams(log)
    found = streams.all(reactor)
    if reactor is not None and not found:
        known = [one.reactor for one in streams.readers()]
        if reactor not in known:
            there = f"; there are {', '.join(known)}" if known else ""
            raise NotThere(f"no reactor {reactor} has run on this ledger{there}", reactor=reactor)
    return found


READINESS: Final = "consumers.pipelines:readiness"
EVERY: Final = 5.0
"""Seconds between two lines of progress, if there is any."""

Which = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME",
        help="Your function that takes the ledger and returns a Reactor, or the name of your pipeline, for "
        "its readiness. Default: the readiness of LSM and PS-OCT.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Handle the present events, and end.")]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="NAME=N",
        help="A total for projects without a plan, such as strips_per_slice=4. Repeatable; only for "
        "readiness.",
    ),
]


def react(
    context: typer.Context,
    reactor: Which = READINESS,
    once: Once = False,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Follow the log and answer events with events until Ctrl-C.

    By default it records the facts of readiness, such as `lsm.channel.ready`: one each time that a set is
    complete. Each is recorded exactly once, even if two reactors of one name run at a time. The ledger stores
    a reactor's position under its name, and the next run continues there. If an event cannot be read or
    handled, its stream is parked (`pledger reactors parked`, `retry`) and the others continue.

    \b
    Examples:
      pledger react
      pledger react --once
      pledger react my_pipeline.reactions:escalation
      pledger --domain scenes react scenes

    Exits 1 if --once parked a stream. JSON, one object at the end: reactor, seen (events read), facts (events
    recorded), position, parked (streams that it leaves out).
    """
    session = session_of(context, as_json)
    make = _factory(session, reactor, expect or [])
    with session.ledger("pledger react") as log, log_to_stderr(session, "consumers"):
        made = _made(make, log, reactor)
        counted = CountedReaction(made.react)
        made.react = counted
        before = {one.stream: one.tries for one in parked_by(log, made.name)}
        try:
            if once:
                made.catch_up()
            else:
                _run(made, counted, session)
        finally:
            _report(made, counted, session)
        if any(before.get(one.stream) != one.tries for one in parked_by(log, made.name)):
            flush()
            raise typer.Exit(Code.REFUSED)


def parked_by(log: Ledger, name: str) -> list[ParkedByReader]:
    """The streams that the reactor of this name has parked."""
    from ledger.log.readers import ParkedStreams

    return ParkedStreams(log).all(name)


class CountedReaction:
    """A reaction that is counted; a repeated call counts once."""

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

    def forget(self) -> None:
        """Clear what the reaction has cached, if it can."""
        getattr(self.reaction, "forget", lambda: None)()


def _run(reactor: Reactor, counted: CountedReaction, session: Session) -> None:
    """React in a thread until a signal ends this one; leaving `with` stores the reactor's position."""
    session.say(f"reactor {reactor.name} runs; Ctrl-C ends it")
    seen, at = 0, monotonic()
    with reactor:
        while not reactor.wait_for(sys.maxsize, EVERY):
            now = monotonic()
            if counted.seen != seen:
                rate = (counted.seen - seen) / (now - at)
                session.say(f"position {reactor.position}: {_counted(counted)}; {rate:,.0f} events/s")
            seen, at = counted.seen, now


def _counted(counted: CountedReaction) -> str:
    return f"{counted.seen} events read, {counted.facts} facts recorded"


def _report(reactor: Reactor, counted: CountedReaction, session: Session) -> None:
    counts = {"seen": counted.seen, "facts": counted.facts, "position": reactor.position}
    counts["parked"] = len(reactor.parked)
    session.print_fields({"reactor": reactor.name, **counts})


# Which reactor


def _factory(session: Session, named: str, expect: list[str]) -> Callable[[Ledger], Any]:
    """The function that makes the reactor. Raises Misuse if it does not exist."""
    module, _, name = named.partition(":")
    if expect and named != READINESS and name:
        raise Misuse(
            "`--expect` is only for the reactor of readiness; pass settings to your own reactor in its "
            "function"
        )
    totals = dict(map(_total, expect))
    if module and not name and (pipeline := session.pipeline(module)):
        from consumers.pipelines import readiness

        return lambda ledger: readiness(ledger, pipeline, **totals)
    if not (module and name):
        raise Misuse(f"{named!r} must be MODULE:NAME, such as my_pipeline.reactions:escalation")
    made: Any = getattr(imported(module, "module"), name, None)
    if not callable(made):
        raise Misuse(f"the module {module!r} has no function {name!r}")
    return lambda ledger: made(ledger, **totals)


def _total(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise Misuse(f"--expect {text!r} must be NAME=N, such as strips_per_slice=4")
    return name, int(number)


def _made(make: Callable[[Ledger], Any], log: Ledger, named: str) -> Reactor:
    """The reactor. Raises Misuse if the function returns something else."""
    from consumers import Reactor
    from ledger import LedgerError

    try:
        reactor = make(log)
    except LedgerError:
        raise
    except Exception as error:  # the user's function may raise anything
        raise Misuse(f"{named} failed: {type(error).__name__}: {error}") from error
    if not isinstance(reactor, Reactor):
        raise Misuse(f"{named} made a {type(reactor).__name__}; it must take the ledger and return a Reactor")
    return reactor
