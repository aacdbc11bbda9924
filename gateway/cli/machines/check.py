"""`pledger machines check`: find recorded moves that a definition does not allow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Code, Misuse
from ..output import Column, flush, json_line, most, plain, titled
from ..session import AsJson, Session, session_of
from .lookup import Modules, Number, imported_machines, names, numbered
from .picture import amount

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.machines import Machine
    from projections.machines import IllegalPair

LISTED = 100
"""How many moves of a machine are listed by default."""

MaybeName = Annotated[str | None, typer.Argument(metavar="NAME", help="The machine. Required without --all.")]
All = Annotated[bool, typer.Option("--all", help="Check every machine in the ledger.")]
Listed = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        help=f"List at most N per machine; 0 lists all. Default: {LISTED} on a terminal, otherwise all.",
    ),
]


def check(
    context: typer.Context,
    name: MaybeName = None,
    every: All = False,
    number: Number = None,
    machines: Modules = None,
    limit: Listed = None,
    as_json: AsJson = False,
) -> None:
    """Find recorded moves that the definition does not allow.

    There can be such moves after a change of the definition, and after an import. They are listed with the
    reason: `not allowed`, the definition has no such transition; `not there`, the object was not in the state
    that the move names; `not by its own`, the definition that the move names does not allow it either. A
    summary by states follows. Nothing is changed.

    Checks the last definition in the ledger; with --machines or LEDGER_MACHINES the definition in that
    module, for instance before it is deployed.

    \b
    Examples:
      pledger machines check payment
      pledger machines check payment --machines my_shop.payments
      pledger machines check --all --limit 0 --json

    Exits 1 if a move is not allowed. JSON, one object per move: machine, stream, key, version, position, at,
    from_state, to_state, definition (the number that the move names, 0 for an import), stood, why (a list);
    then for each machine one object with `summary`: machine, definition (null for that of a module), moves,
    pairs (from_state, to_state, why, moves, objects, first_at, last_at).
    """
    session = session_of(context, as_json)
    if (name is None) is not every:
        raise Misuse("give a machine or --all, not both")
    if every and number is not None:
        raise Misuse("--number is the definition of one machine: give its name instead of --all")
    declared = imported_machines(machines) if machines or os.environ.get("LEDGER_MACHINES") else {}
    with session.ledger() as log:
        checked = [name] if name else _defined(session, log, declared)
        listed = most(limit, LISTED) or 0
        wrong = [_checked(session, log, one, declared.get(one), number, listed) for one in checked]
    if not wrong:
        session.say("the ledger has no machine: the first move of an object records its machine")
    if any(wrong):
        flush()
        raise typer.Exit(Code.REFUSED)


def _defined(session: Session, log: Ledger, declared: Mapping[str, type[Machine]]) -> list[str]:
    """The machines that can be checked; reports the others."""
    from projections.machines.info import undefined

    without = [name for name in undefined(log) if name not in declared]
    for name in without:
        session.say(f"{name} was adopted and has no definition: check it with --machines MODULE")
    return [name for name in names(log) if name not in without]


def _checked(
    session: Session, log: Ledger, name: str, declared: type[Machine] | None, number: int | None, limit: int
) -> bool:
    """Check one machine and print the result; returns whether a move is not allowed."""
    from projections.machines import illegal, illegal_pairs

    chosen = None
    if declared is None or number is not None:
        chosen = numbered(log, name, number)[1].number
    pairs = illegal_pairs(log, declared or name, number)
    with closing(illegal(log, declared or name, number, limit=limit or None)) as moves:
        session.print_rows(
            moves, COLUMNS, attrgetter(*CELLS), data=lambda one: {"machine": name, **plain(one)}
        )
    total = sum(pair.moves for pair in pairs)
    if session.json:
        json_line({"summary": _summary_json(name, chosen, total, pairs)})
    if limit and total > limit:
        session.say(f"{total - limit} more moves: --limit 0 lists all")
    for line in _summary(name, chosen, total, pairs):
        session.say(line)
    return bool(total)


COLUMNS = [
    *(Column("stream", keep=True), *titled("ver", "pos", number=True), Column("time")),
    *(*titled("from", "to", keep=True), Column("by", number=True), *titled("stood", "why", keep=True)),
]
CELLS = ("stream", "version", "position", "at", "from_state", "to_state", "definition", "stood", "why")


def _summary_json(name: str, number: int | None, total: int, pairs: Sequence[IllegalPair]) -> dict[str, Any]:
    return {"machine": name, "definition": number, "moves": total, "pairs": plain(pairs)}


def _summary(name: str, number: int | None, total: int, pairs: Sequence[IllegalPair]) -> Iterator[str]:
    """The result in words: the total, and the pairs of states."""
    under = f"{name}, as its module declares it" if number is None else f"{name}, definition {number}"
    if not total:
        yield f"{under}: every move is allowed"
        return
    yield f"{under}: {amount(total, 'move')} not allowed"
    for pair in pairs:
        way, why = f"{pair.from_state or 'nothing'} -> {pair.to_state}", ", ".join(pair.why)
        yield f"  {amount(pair.moves, 'move')} {way} of {amount(pair.objects, 'object')}: {why}"
