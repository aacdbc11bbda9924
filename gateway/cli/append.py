"""`pledger append`: record an event from the command line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Misuse
from .output import iso
from .session import AsJson, session_of

if TYPE_CHECKING:
    from ledger import Body, Event

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name, such as scan/7.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="What happened, such as scan.started.")]
Data = Annotated[
    str, typer.Argument(metavar="JSON", help="The body: a JSON object, or `-` to read one from stdin.")
]
Expected = Annotated[
    str,
    typer.Option(
        metavar="WHAT", help="The version that the stream must be at: any, new, exists, or a number."
    ),
]
Command = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Record the event once: a repeat returns the result of the first call."),
]
Causation = Annotated[
    int | None,
    typer.Option(metavar="POSITION", min=1, help="The position of the event that caused this one."),
]
Correlation = Annotated[
    str | None, typer.Option(metavar="ID", help="The id of the request that this event belongs to.")
]


def append(
    context: typer.Context,
    stream: Name,
    topic: Topic,
    data: Data = "{}",
    expected: Expected = "any",
    command: Command = None,
    causation: Causation = None,
    correlation: Correlation = None,
    as_json: AsJson = False,
) -> None:
    """Record one event.

    If the topic's domain is imported (see --domain), its event class checks the body; otherwise the body is
    recorded unchecked. The domain's rules are not checked: use the domain's own commands for that.

    JSON: stream, version, position, recorded_at, repeated.
    """
    session = session_of(context, as_json)
    at = _expected(expected)
    session.know_domains()
    event = _event(topic, _object(sys.stdin.read() if data == "-" else data))
    with session.ledger() as log:
        done = log.append(
            stream, event, expected=at, command=command, causation=causation, correlation=correlation
        )
    shown: dict[str, Any] = {
        "stream": stream,
        "version": done.version,
        "position": done.first_position,
        "recorded_at": iso(done.recorded_at),
        "repeated": done.repeated,
    }
    session.print_fields(shown)
    if done.repeated:
        session.say(f"the command {command} recorded this before")


def _expected(text: str) -> Any:
    from ledger import ANY, EXISTS, NEW, Exact

    named = {"any": ANY, "new": NEW, "exists": EXISTS}
    if text in named:
        return named[text]
    if text.isascii() and text.isdigit() and len(text) < 20:
        return Exact(int(text))
    raise Misuse(f"--expected {text!r} must be any, new, exists, or a version of 0 or more")


def _object(text: str) -> dict[str, Any]:
    """The body. Raises Misuse if it is not a JSON object."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise Misuse(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Misuse(
            f"the body must be a JSON object, such as '{{\"done\": 3}}', not {json.dumps(value)[:40]}"
        )
    return value


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _event(topic: str, body: dict[str, Any]) -> Event | Body:
    """The event of an imported domain, else the body as it is. Raises Misuse if it does not fit."""
    from pydantic import ValidationError

    from ledger import Body
    from ledger.domain.known import KNOWN

    kind = KNOWN.events.get(topic)
    if kind is None:
        return Body(topic, 1, json.dumps(body, ensure_ascii=False, allow_nan=False))
    try:
        return kind(**body)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
        raise Misuse(f"{topic} does not fit its event {kind.__name__}: {wrong}") from error
