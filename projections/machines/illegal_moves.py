"""Moves that a machine's present definition, or the definition that they name, does not allow."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger
from ledger.domain.names import split_name
from ledger.errors import shown
from ledger.log.sql import Statements

from .definitions import definition, definitions
from .info import MachineInfo, MachineRef, machine_info

SQL = Statements(__package__, "illegal_moves")
PAGE: Final = 2_000
"""Rows that are fetched at once."""


class Why(StrEnum):
    """What is wrong with a move."""

    NOT_ALLOWED = "not allowed"
    """The definition to check against has no such transition, or another initial state."""
    NOT_THERE = "not there"
    """The object was in another state than the move says it came from."""
    NOT_BY_ITS_OWN = "not by its own"
    """The definition that it names did not allow it either, or has no such number."""


class Illegal(NamedTuple):
    """A move that is not allowed. stood: the state of the object before it. definition: 0 for an import."""

    stream: str
    key: tuple[str, ...]
    version: int
    position: int
    at: datetime
    from_state: str | None
    to_state: str
    definition: int
    stood: str | None
    why: tuple[Why, ...]


class IllegalPair(NamedTuple):
    """The number of moves between two states that are not allowed, and of objects; first and last time."""

    from_state: str | None
    to_state: str
    why: tuple[Why, ...]
    moves: int
    objects: int
    first_at: datetime
    last_at: datetime


def illegal(
    ledger: Ledger, machine: MachineRef, number: int | None = None, *, limit: int | None = None
) -> Generator[Illegal, None, None]:
    """The moves of a machine that its definition does not allow, by stream and version (spec W2-15).

    number: of the definition to check against; by default that of the class, or the ledger's last. The moves
    are read from one snapshot while they are consumed: a connection is held until the generator ends or is
    closed. Raises UnknownMachine, BadInput.
    """
    if limit is not None and limit < 0:
        raise BadInput(f"limit {shown(limit)} must be 0 or more")
    parameters = _parameters(ledger, machine, number) | {"limit": limit}
    return _illegal(ledger, parameters)


def illegal_pairs(ledger: Ledger, machine: MachineRef, number: int | None = None) -> list[IllegalPair]:
    """The same, counted by states and reasons, the most frequent first. Raises UnknownMachine, BadInput."""
    parameters = _parameters(ledger, machine, number)
    composed = SQL.judged_moves.filled(ledger.schema) + SQL.illegal_pairs.filled(ledger.schema)
    with ledger.reader() as connection:
        rows = psycopg.Cursor(connection, row_factory=tuple_row).execute(composed, parameters).fetchall()
    return [
        IllegalPair(old, new, _why(row[:3]), *row[3:5], *(at.astimezone(UTC) for at in row[5:]))
        for old, new, *row in rows
    ]


def _illegal(ledger: Ledger, parameters: Mapping[str, Any]) -> Generator[Illegal, None, None]:
    composed = SQL.judged_moves.filled(ledger.schema) + SQL.illegal_moves.filled(ledger.schema)
    with (
        ledger.reader() as connection,
        connection.transaction(),
        psycopg.ServerCursor(connection, "illegal", row_factory=tuple_row) as cursor,
    ):
        cursor.itersize = PAGE
        for stream, version, position, at, old, new, number, stood, *flags in cursor.execute(
            composed, parameters
        ):
            key, at = split_name(stream)[1], at.astimezone(UTC)
            yield Illegal(stream, key, version, position, at, old, new, number, stood, _why(flags))


def _why(flags: Sequence[bool]) -> tuple[Why, ...]:
    return tuple(why for why, wrong in zip(Why, flags, strict=True) if wrong)


def _defined(known: MachineInfo) -> MachineInfo:
    """The machine, if it has a definition. Raises BadInput."""
    if known.states or known.number:
        return known
    raise BadInput(
        f"machine {known.name} has moves but no definition to check them against: import its class "
        "(`pledger machines check --machines MODULE`), or make a first move with it"
    )


def _parameters(ledger: Ledger, machine: MachineRef, number: int | None) -> dict[str, Any]:
    """The allowed transitions by definition; 0 is the definition to check against."""
    known = _defined(machine_info(ledger, machine))
    every = {one.number: one.defined for one in definitions(ledger, known)}
    pairs, initial = known.pairs, known.initial_state
    if number is not None:
        chosen = definition(ledger, known, number).defined
        pairs, initial = tuple(chosen.pairs), chosen.initial_state
    allowed = [(0, *pair) for pair in pairs]
    allowed += [(nth, *pair) for nth, one in every.items() for pair in one.pairs]
    begins = {0: initial} | {nth: one.initial_state for nth, one in every.items()}
    return {
        "numbers": [nth for nth, _, _ in allowed],
        "from_states": [old for _, old, _ in allowed],
        "to_states": [new for _, _, new in allowed],
        "defined": list(begins),
        "initial_states": list(begins.values()),
        "low": f"{known.name}/",
        "high": f"{known.name}0",  # 0 is the character after /
        "topic": f"{known.name}.moved",
        "bound": ledger.bound(),
    }
