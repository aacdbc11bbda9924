"""Histories from elsewhere replayed through a machine: the allowed moves recorded, the refused told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ..append import Append, append_of, body_of
from ..errors import StreamConflict
from ..recorded import Meta
from ..store.ledger import Ledger
from .defining import declare
from .definition import Definition, Edge
from .machine import Machine
from .moving import NOTHING, Refusal, decided, fitting, news
from .transition import MachineStream

PIECE: Final = 1000
"""Moves an append, about: more are not faster, and followers of the log wait for the end of each."""


@dataclass(frozen=True, slots=True)
class PastMove:
    """A move that happened elsewhere. at: when, aware; it becomes the claimed time. actor: who did it."""

    to_state: str
    at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """A move that the machine refuses. nth: its place in the object's history, from 1. why: the error that
    `execute` would raise: TransitionFailed or GuardRefused."""

    about: Any
    nth: int
    move: PastMove
    why: Refusal


@dataclass(slots=True)
class Replayed:
    """What came of a replay. objects: with a move recorded. moves: recorded. refused: in their order. left:
    objects that had moved before, and were left as they are."""

    objects: int = 0
    moves: int = 0
    refused: list[NotReplayed] = field(default_factory=list)
    left: list[Any] = field(default_factory=list)


def replay(
    machine: type[Machine],
    ledger: Ledger,
    histories: Iterable[tuple[Any, Iterable[PastMove]]],
    *,
    strict: bool = False,
) -> Replayed:
    """Record the histories of objects as moves, each object whole in one append, many objects in each.

    Each move is decided as `execute` decides it, table first, guards second. One that is refused is left out
    and told, and the next is decided where the object then stands; strict: of an object with a refused move
    nothing is recorded. A first move to the initial state is the beginning of a history.

    The order is that given, the time of each move its claimed time. No callbacks but guards are called: what
    happened long ago is not announced again; `at` of the last transition that guards see is the time of the
    replay. An object that has moved before is left as it is, so a replay
    that was killed can be run again. Raises BadMetadata, and what a guard raises; pieces recorded before
    stay.
    """
    done = Replayed()
    for piece in _pieces(machine, ledger, histories):
        while not _record(machine, ledger, piece, done, strict=strict):
            pass  # somebody moved one of them just now: it is left the next time, so this ends
    return done


@dataclass(frozen=True, slots=True)
class _Object:
    about: Any
    key: tuple[str | int, ...]
    past: Sequence[PastMove]


def _pieces(
    machine: type[Machine], ledger: Ledger, histories: Iterable[tuple[Any, Iterable[PastMove]]]
) -> Iterator[dict[str, _Object]]:
    """The objects of one append after the other, by stream; a stream that comes again is of another one."""
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
    """Record one piece and count it; False where somebody came before, and nothing was done."""
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
    """What comes of a piece, decided on what is recorded now, and the appends that make it so."""
    kind = machine.streams()
    number = declare(ledger, machine.name, kind.MOVED.topic, machine.definition)
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
) -> tuple[list[Meta], list[NotReplayed]]:
    """Let the stream make the moves that are allowed: the Meta of each, and the moves that are not."""
    metas: list[Meta] = []
    refused: list[NotReplayed] = []
    for nth, move in enumerate(one.past, 1):
        answer = _decided(machine, stream, one.about, move)
        if isinstance(answer, Edge):
            news(stream, answer, fitting(answer, move.metadata), number)
            metas.append(ledger.meta(claimed_at=move.at, actor=move.actor))
        else:
            refused.append(NotReplayed(one.about, nth, move, answer))
    return metas, refused


def _decided(machine: type[Machine], stream: MachineStream, about: Any, move: PastMove) -> Edge | Refusal:
    definition: Definition = machine.definition
    if stream.state.status is None and move.to_state == definition.initial_state:
        return Edge("", move.to_state)
    return decided(machine.name, definition, stream, about, move.to_state, move.metadata)


def _append(stream: MachineStream, metas: Sequence[Meta]) -> Append:
    append = append_of(stream)
    bodies = (body_of(event) for event in append.events)
    return append._replace(
        events=[body._replace(meta=meta.body()) for body, meta in zip(bodies, metas, strict=True)]
    )


__all__ = ["NotReplayed", "PastMove", "Replayed", "replay"]
