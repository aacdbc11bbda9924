"""Replays histories from elsewhere through a machine: allowed moves are recorded, refused ones reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ..errors import StreamConflict
from ..log.append import Append, append_of, body_of
from ..log.ledger import Ledger
from ..log.recorded import Meta
from .definition import Definition, Edge, plain
from .definition_stream import declare
from .machine import Machine
from .move import NOTHING, Refusal, checked_metadata, decide, record_move
from .transition import MachineStream

PIECE: Final = 1000
"""About how many moves one append has: more are not faster, and followers of the log wait for its end."""


@dataclass(frozen=True, slots=True)
class PastMove:
    """A move that happened elsewhere. at: when, with an offset; the claimed time. actor: who made it."""

    to_state: str
    at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedMove:
    """A move that the machine refuses. nth: its place in the object's history, from 1. why: the error that
    `execute` would raise, TransitionFailed or GuardRefused.
    """

    about: Any
    nth: int
    move: PastMove
    why: Refusal


@dataclass(slots=True)
class Replayed:
    """The result of a replay. objects: those with a recorded move. moves: recorded ones. refused: in their
    order. left: objects that had moved before; they were not changed.
    """

    objects: int = 0
    moves: int = 0
    refused: list[RefusedMove] = field(default_factory=list)
    left: list[Any] = field(default_factory=list)


def replay(
    machine: type[Machine],
    ledger: Ledger,
    histories: Iterable[tuple[Any, Iterable[PastMove]]],
    *,
    strict: bool = False,
) -> Replayed:
    """Record the histories of objects as moves: each object whole in one append, many objects in each append.

    Each move is decided as `execute` decides it. A refused move is left out and reported, and the next one is
    decided from the state that the object is in. strict: record nothing of an object with a refused move. A
    first move to the initial state begins the history.

    The moves keep the given order, and their times become claimed times. Only guards are called, no other
    callbacks; the last transition that a guard gets has the time of the replay. An object that has moved
    before is not changed, so a replay that was killed can be run again. Raises BadMetadata, and the errors of
    guards; what was recorded before stays.
    """
    done = Replayed()
    for piece in _pieces(machine, ledger, histories):
        while not _record(machine, ledger, piece, done, strict=strict):
            pass  # another writer moved one of them just now; the next try leaves it out, so this ends
    return done


@dataclass(frozen=True, slots=True)
class _Object:
    about: Any
    key: tuple[str | int, ...]
    past: Sequence[PastMove]


def _pieces(
    machine: type[Machine], ledger: Ledger, histories: Iterable[tuple[Any, Iterable[PastMove]]]
) -> Iterator[dict[str, _Object]]:
    """The objects of one append after the other, by stream. No stream is twice in a piece."""
    piece: dict[str, _Object] = {}
    moves = 0
    for about, moved in histories:
        one = machine(ledger, about)
        past = tuple(moved)
        if piece and (one.stream in piece or moves + len(past) > PIECE):
            yield piece
            piece, moves = {}, 0
        piece[one.stream] = _Object(about, one.key, past)
        moves += len(past)
    if piece:
        yield piece


def _record(
    machine: type[Machine], ledger: Ledger, piece: Mapping[str, _Object], done: Replayed, *, strict: bool
) -> bool:
    """Record one piece and count it; False if another writer came first, and nothing was recorded."""
    made, appends = _made(machine, ledger, piece, strict=strict)
    try:
        if appends:
            ledger.append_all(appends)
    except StreamConflict:
        return False
    done.objects, done.moves = done.objects + made.objects, done.moves + made.moves
    done.refused += made.refused
    done.left += made.left
    return True


def _made(
    machine: type[Machine], ledger: Ledger, piece: Mapping[str, _Object], *, strict: bool
) -> tuple[Replayed, list[Append]]:
    """Decide the moves of a piece; returns the result and the appends."""
    kind = machine.streams()
    number = declare(ledger, machine.name, machine.definition)
    streams = {stream.name: stream for stream in ledger.load_each(kind(*one.key) for one in piece.values())}
    made, appends = Replayed(), []
    for name, one in piece.items():
        stream = streams[name]
        if stream.version:
            made.left.append(one.about)
            continue
        metas, refused = _walk(machine, ledger, stream, one, number)
        made.refused += refused
        if metas and not (strict and refused):
            made.objects, made.moves = made.objects + 1, made.moves + len(metas)
            appends.append(_append(stream, metas))
    return made, appends


def _walk(
    machine: type[Machine], ledger: Ledger, stream: MachineStream, one: _Object, number: int
) -> tuple[list[Meta], list[RefusedMove]]:
    """Record the allowed moves in the stream; returns their Meta, and the refused moves."""
    metas: list[Meta] = []
    refused: list[RefusedMove] = []
    for nth, move in enumerate(one.past, 1):
        answer = _decided(machine, stream, one.about, move)
        if isinstance(answer, tuple):
            record_move(stream, *answer, number)
            metas.append(ledger.meta(claimed_at=move.at, actor=move.actor))
        else:
            refused.append(RefusedMove(one.about, nth, move, answer))
    return metas, refused


def _decided(
    machine: type[Machine], stream: MachineStream, about: Any, move: PastMove
) -> tuple[Edge, Mapping[str, Any]] | Refusal:
    definition: Definition = machine.definition
    to_state = plain(move.to_state)
    if stream.state.status is None and to_state == definition.initial_state:
        edge = Edge("", to_state)
        return edge, checked_metadata(edge, move.metadata)
    return decide(machine.name, definition, stream, about, to_state, move.metadata)


def _append(stream: MachineStream, metas: Sequence[Meta]) -> Append:
    append = append_of(stream)
    bodies = (body_of(event) for event in append.events)
    return append._replace(
        events=[body._replace(meta=meta.body()) for body, meta in zip(bodies, metas, strict=True)]
    )


__all__ = ["RefusedMove", "PastMove", "Replayed", "replay"]
