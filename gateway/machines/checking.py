"""`pledger machines check`: moves in histories that a definition does not allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..codes import Code, Misuse
from ..plain import iso, local, plain
from ..printing import Column, flush, is_terminal, json_line, table
from ..session import AsJson, Session, session_of
from .asking import Number, names, numbered
from .picture import amount

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.machines import Illegal, IllegalPair

LISTED = 100
"""Moves of a machine that are listed where nobody says how many."""

MaybeName = Annotated[str | None, typer.Argument(metavar="NAME", help="The machine; or give --all.")]
All = Annotated[bool, typer.Option("--all", help="Every machine that the ledger knows.")]
Listed = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="List at most N of a machine; 0 lists all.")
]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(check)


def check(
    context: typer.Context,
    name: MaybeName = None,
    every: All = False,
    number: Number = None,
    limit: Listed = LISTED,
    as_json: AsJson = False,
) -> None:
    """Find moves in histories that the definition does not allow.

    A definition may change after objects moved under an older one, and an import brings what it brings. Each
    such move is listed, with what is wrong with it: `not allowed`, the definition has no such transition;
    `not there`, the object did not stand where the move says; `not by its own`, the definition that the move
    names did not allow it either. At the end they are counted by their states. Nothing is changed.

    \b
    Examples:
      pledger machines check payment
      pledger machines check --all --limit 0 --json

    Exits 1 where a move is not allowed. JSON, one object a move: machine, stream, key, version, position, at,
    from_state, to_state, definition (the number that the move names, 0 for an import), stood, why (a list);
    at the end of each machine one object with `summary`: machine, definition, moves, pairs (from_state,
    to_state, why, moves, objects, first_at, last_at).
    """
    session = session_of(context, as_json)
    if (name is None) is not every:
        raise Misuse("name a machine, or give --all; not both")
    if every and number is not None:
        raise Misuse("a number is of one machine: name it instead of --all")
    with session.ledger() as log:
        wrong = [_checked(session, log, one, number, limit) for one in ([name] if name else names(log))]
    if not wrong:
        session.say("no machine is known yet: one is once an object moved")
    if any(wrong):
        flush()
        raise typer.Exit(Code.REFUSED)


def _checked(session: Session, log: Ledger, name: str, number: int | None, limit: int) -> bool:
    """Check one machine and print what is found; whether something is. Raises UnknownMachine, NotThere."""
    from projections.machines import illegal, illegal_pairs

    chosen = numbered(log, name, number)[1].number
    pairs = illegal_pairs(log, name, number)
    with closing(illegal(log, name, number, limit=limit or None)) as moves:
        if session.json:
            for one in moves:
                json_line({"machine": name, **plain(one._asdict())})
        else:
            table(COLUMNS, map(_row, moves), color=session.color)
    total = sum(pair.moves for pair in pairs)
    if session.json:
        json_line({"summary": _summed(name, chosen, total, pairs)})
    if limit and total > limit:
        session.say(f"{total - limit} moves more: --limit 0 lists all")
    for line in _told(name, chosen, total, pairs):
        session.say(line)
    return bool(total)


COLUMNS = [
    *(Column("stream", keep=True), Column("ver", number=True), Column("pos", number=True), Column("time")),
    *(Column("from", keep=True), Column("to", keep=True), Column("by", number=True)),
    *(Column("stood", keep=True), Column("why", keep=True)),
]


def _row(one: Illegal) -> list[str]:
    at = local(one.at) if is_terminal() else iso(one.at)
    states = [one.from_state or "", one.to_state, str(one.definition), one.stood or ""]
    return [one.stream, str(one.version), str(one.position), at, *states, ", ".join(one.why)]


def _summed(name: str, number: int, total: int, pairs: Sequence[IllegalPair]) -> dict[str, Any]:
    counted: list[Any] = [plain(pair._asdict()) for pair in pairs]
    return {"machine": name, "definition": number, "moves": total, "pairs": counted}


def _told(name: str, number: int, total: int, pairs: Sequence[IllegalPair]) -> Iterator[str]:
    """What was found, for a person: in all, and by pair of states."""
    under = f"{name}, definition {number}"
    if not total:
        yield f"{under}: every move is allowed"
        return
    yield f"{under}: {amount(total, 'move')} not allowed"
    for pair in pairs:
        way, why = f"{pair.from_state or 'nothing'} -> {pair.to_state}", ", ".join(pair.why)
        yield f"  {amount(pair.moves, 'move')} {way} of {amount(pair.objects, 'object')}: {why}"
