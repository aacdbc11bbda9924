"""Moments as options of commands, and the position of a moment in results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Misuse, NotThere
from .output import iso, local

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.audit import AsOf, Moment

At = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="As of a time: 14:00, 2026-03-01, 2026-03-01T14:00+01:00, now-2h; local time if it has no "
        "offset.",
    ),
]
Position = Annotated[int | None, typer.Option(metavar="P", min=0, help="As of a position of the log.")]


def moment_of(at: str | None = None, position: int | None = None, version: int | None = None) -> Moment:
    """The moment that the options give; now without any. Raises Misuse, BadInput."""
    from projections.audit import Moment
    from projections.audit.moments import parse_time

    wanted = {"--at": at, "--position": position, "--version": version}
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) > 1:
        raise Misuse(f"{' and '.join(given)} mean different moments: give one of them")
    return Moment(version, position, None if at is None else parse_time(at))


def of_stream(log: Ledger, stream: str, moment: Moment) -> AsOf:
    """The version of a stream at a moment. Raises NotThere for a version that it has not reached."""
    from projections.audit import as_of

    found = as_of(log, moment, stream=stream)
    if moment.version is not None and found.beyond:
        message = f"{stream} has no version {moment.version}; its last version is {found.version}"
        raise NotThere(message, stream=stream, version=found.version)
    return found


def told(found: AsOf) -> str:
    """The position of a result, for a person."""
    time = f", {local(found.time)}" if found.time is not None else ""
    end = "; that is beyond the end of the log, so this is the end of the log" if found.beyond else ""
    return f"as of position {found.position}{time}{end}"


def as_of_json(found: AsOf) -> dict[str, Any]:
    """The position of a result, for a program."""
    known = {"position": found.position, "time": None if found.time is None else iso(found.time)}
    known |= {"beyond": found.beyond}
    return known if found.version is None else {**known, "version": found.version}
