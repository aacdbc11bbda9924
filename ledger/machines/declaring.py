"""The body of a machine's class read as a definition: its states, its table, the functions marked in it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..errors import BadDefinition, InvalidCallback, InvalidState, shown
from .definition import Callback, Definition, Edge, Function, Kind, State

F = TypeVar("F", bound=Function)


class Declared(Generic[F]):
    """A function in a machine's class that is asked or called on moves; as an attribute, the function."""

    def __init__(self, kind: Kind, function: F, moves: Sequence[tuple[str | None, tuple[str, ...]]]) -> None:
        self.kind, self.function, self.moves = kind, function, moves

    def __get__(self, _: object, owner: type | None = None) -> F:
        return self.function


Marker = Callable[[F], Declared[F]]


def _marking(
    kind: Kind, on: Sequence[Edge | Sequence[Edge]], from_: str | None, to: str | Sequence[str]
) -> Callable[[F], Declared[F]]:
    if callable(on):
        raise InvalidCallback(f"write @{kind.value}() with brackets, and in them the moves that it is for")
    ends = (to,) if isinstance(to, str) else tuple(to)
    if on and (from_ is not None or ends):
        raise InvalidCallback("say the moves as From(…).To(…), or by from_ and to: not both")
    moves: list[tuple[str | None, tuple[str, ...]]]
    moves = [(edge.from_state, (edge.to_state,)) for edge in _edges(on)] or [(from_, ends)]

    def take(function: F) -> Declared[F]:
        if isinstance(function, Declared):
            raise InvalidCallback("a function is marked once: give that one mark all its moves")
        return Declared(kind, function, moves)

    return take


def _edges(lines: Any) -> list[Edge]:
    """The transitions in lines as `From(…).To(…)` makes them, or in one such line."""
    found: list[Edge] = []
    for line in lines if isinstance(lines, tuple | list) else (lines,):
        edges = line if isinstance(line, tuple | list) else (line,)
        if not all(isinstance(edge, Edge) for edge in edges):
            raise InvalidState(f"a line of the table must be From(…).To(…), not {shown(line)}")
        found += edges
    return found


def guard(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Ask this function before such moves: (object, last transition or None, metadata); false refuses.

    on: the moves, as `From(A).To(B)`; or from_ a state, to some states; or neither, for all moves.
    """
    return _marking(Kind.GUARD, on, from_, to)


def before(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Call this function before such a move is recorded, in its transaction: (object, transition)."""
    return _marking(Kind.BEFORE, on, from_, to)


def after(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Call this function after such a move is recorded, in its transaction: (object, transition)."""
    return _marking(Kind.AFTER, on, from_, to)


def after_commit(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Call this function once such a move is committed: (object, transition)."""
    return _marking(Kind.AFTER_COMMIT, on, from_, to)


def transition_failure(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Call this function where the state is no successor: (object, error)."""
    return _marking(Kind.TRANSITION_FAILURE, on, from_, to)


def guard_failure(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], Declared[F]]:
    """Call this function where a guard refused: (object, error)."""
    return _marking(Kind.GUARD_FAILURE, on, from_, to)


def collected(inherited: Definition, body: Mapping[str, Any], taken: Container[str] = ()) -> Definition:
    """What a class adds to the definition of its parent, or to the `definition` in its own body. Raises
    BadDefinition's subclasses.

    A function of the same name takes the place of the parent's, as methods do. taken: names that are
    something else in every machine.
    """
    if not isinstance(inherited, Definition):
        raise InvalidState(f"definition must be a Definition, such as discover(…), not {shown(inherited)}")
    made = inherited
    for name, value in body.items():
        if name in taken and isinstance(value, State | Declared):
            raise BadDefinition(f"{name} is a part of every machine: what you give that name needs another")
        if isinstance(value, State):
            made = made.with_state(value, initial=value.initial)
    made = made.with_edges(*_edges(body.get("table", ())))
    for name in body:
        made = made.without_callbacks(name)
    for name, value in body.items():
        value = getattr(value, "__func__", value)  # of a staticmethod around it
        for from_state, to_states in value.moves if isinstance(value, Declared) else ():
            made = made.with_callback(Callback(value.kind, value.function, from_state, to_states, name))
    return made
