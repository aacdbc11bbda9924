"""Reads the body of a machine's class: its states, its table, and the functions that are marked as
callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..errors import BadDefinition, InvalidCallback, InvalidState, shown
from .definition import Callback, Definition, Edge, Function, Kind, State, several

F = TypeVar("F", bound=Function)


class MarkedFunction(Generic[F]):
    """A function in a machine's class that is a guard or callback. As an attribute it is the plain
    function.
    """

    def __init__(self, kind: Kind, function: F, moves: Sequence[tuple[str | None, tuple[str, ...]]]) -> None:
        self.kind, self.function, self.moves = kind, function, moves

    def __get__(self, _: object, owner: type | None = None) -> F:
        return self.function


def _mark(
    kind: Kind, on: Sequence[Edge | Sequence[Edge]], from_: str | None, to: str | Sequence[str]
) -> Callable[[F], MarkedFunction[F]]:
    if callable(on):
        raise InvalidCallback(f"write @{kind.value}(…) with parentheses, and give it its moves there")
    ends = several(to)
    if on and (from_ is not None or ends):
        raise InvalidCallback("give the moves as From(…).To(…) or by from_ and to, not both")
    moves: list[tuple[str | None, tuple[str, ...]]]
    moves = [(edge.from_state, (edge.to_state,)) for edge in _edges(on)] or [(from_, ends)]

    def take(function: F) -> MarkedFunction[F]:
        if isinstance(function, MarkedFunction):
            raise InvalidCallback("a function can be marked only once: give all its moves to one mark")
        return MarkedFunction(kind, function, moves)

    return take


def _edges(lines: Any) -> list[Edge]:
    """The transitions in lines of the form `From(…).To(…)`, or in one such line."""
    found: list[Edge] = []
    for line in lines if isinstance(lines, tuple | list) else (lines,):
        edges = line if isinstance(line, tuple | list) else (line,)
        if not all(isinstance(edge, Edge) for edge in edges):
            raise InvalidState(f"a line of the table must be From(…).To(…), not {shown(line)}")
        found += edges
    return found


def guard(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a guard: it is called with (object, last transition or None, metadata), and false refuses the
    move.

    on: the moves, as `From(A).To(B)`. Or from_ and to: a state and one or several states. By default all
    moves.
    """
    return _mark(Kind.GUARD, on, from_, to)


def before(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a function that is called before a move is recorded, in its transaction: (object, transition)."""
    return _mark(Kind.BEFORE, on, from_, to)


def after(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a function that is called after a move is recorded, in its transaction: (object, transition)."""
    return _mark(Kind.AFTER, on, from_, to)


def after_commit(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a function that is called after a move is committed: (object, transition)."""
    return _mark(Kind.AFTER_COMMIT, on, from_, to)


def transition_failure(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a function that is called if the table does not allow a move: (object, error)."""
    return _mark(Kind.TRANSITION_FAILURE, on, from_, to)


def guard_failure(
    on: Sequence[Edge | Sequence[Edge]] = (), *, from_: str | None = None, to: str | Sequence[str] = ()
) -> Callable[[F], MarkedFunction[F]]:
    """Mark a function that is called if a guard refuses a move: (object, error)."""
    return _mark(Kind.GUARD_FAILURE, on, from_, to)


def definition_of_class(
    inherited: Definition, body: Mapping[str, Any], taken: Container[str] = ()
) -> Definition:
    """The definition of a class: that of its parent, or the `definition` in its body, and what the body adds.

    A function replaces the parent's function of the same name. taken: names that every machine uses
    otherwise. Raises the subclasses of BadDefinition.
    """
    if not isinstance(inherited, Definition):
        raise InvalidState(f"definition must be a Definition, such as discover(…), not {shown(inherited)}")
    made = inherited
    for name, value in body.items():
        if name in taken and isinstance(value, State | MarkedFunction):
            raise BadDefinition(f"every machine has a part named {name}: choose another name")
        if isinstance(value, State):
            made = made.with_state(value, initial=value.initial)
    made = made.with_edges(*_edges(body.get("table", ())))
    for name in body:
        made = made.without_callbacks(name)
    for name, value in body.items():
        value = getattr(value, "__func__", value)  # of a staticmethod around it
        for from_state, to_states in value.moves if isinstance(value, MarkedFunction) else ():
            made = made.with_callback(Callback(value.kind, value.function, from_state, to_states, name))
    return made
