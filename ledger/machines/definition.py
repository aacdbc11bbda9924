"""What a machine is: its states, its initial state, its transitions, its guards and callbacks.

A definition is a value. A change makes a new one, so a subclass starts with its parent's definition and does
not change it (spec W2-04). Errors are raised when something is declared (spec S2-20 to S2-27).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ..domain.frozen import FrozenDict
from ..errors import InvalidCallback, InvalidState, InvalidTransition, shown

Function = Callable[..., Any]


class State(str):
    """A state in the table of a machine: `PAID = State("paid")`; `initial=True` for the state that all begin
    in.

    It is a text, and can be compared and stored as one.
    """

    initial: bool

    def __new__(cls, name: str, *, initial: bool = False) -> State:
        made = super().__new__(cls, checked_state(name))
        made.initial = initial
        return made


@dataclass(frozen=True, slots=True)
class Edge:
    """One declared transition. metadata: the model that the move's metadata must fit. after: the time in
    `from_state` after which the move is due (`pledger machines timeouts`).
    """

    from_state: str
    to_state: str
    metadata: type[BaseModel] | None = None
    after: timedelta | None = None


class From:
    """The left side of a line in the table: `From(SUBMITTED).To(PAID, CANCELLED)`."""

    def __init__(self, *states: str) -> None:
        if not states:
            raise InvalidState("No from states provided.")
        self.states = states

    def To(
        self, *states: str, metadata: type[BaseModel] | None = None, after: timedelta | None = None
    ) -> tuple[Edge, ...]:
        """The transitions from each of these states to each of those; the other parameters as in Edge."""
        if not states:
            raise InvalidState("No to states provided.")
        return tuple(Edge(one, to, metadata, after) for one in self.states for to in states)


class Kind(StrEnum):
    """When a callback is called, and with what."""

    GUARD = "guard"
    """Before anything else: (object, last transition or None, metadata); false refuses. Pure."""
    BEFORE = "before"
    """Before the move is recorded, in its transaction: (object, transition)."""
    AFTER = "after"
    """After it is recorded, in its transaction: (object, transition)."""
    AFTER_COMMIT = "after_commit"
    """After the outermost transaction is committed: (object, transition)."""
    TRANSITION_FAILURE = "after_transition_failure"
    """The state is no successor: (object, error), before the error is raised."""
    GUARD_FAILURE = "after_guard_failure"
    """A guard refused: (object, error), before the error is raised."""


@dataclass(frozen=True, slots=True)
class Callback:
    """A function and its moves: any `from_state` if None, all `to_states` if empty (S2-27)."""

    kind: Kind
    function: Function
    from_state: str | None = None
    to_states: tuple[str, ...] = ()
    attribute: str = ""

    @property
    def name(self) -> str:
        """Its name in the class, else the name of the function."""
        return self.attribute or getattr(self.function, "__name__", type(self.function).__name__)

    def is_for(self, from_state: str | None, to_state: str) -> bool:
        """Whether it is called on this move."""
        return (self.from_state is None or self.from_state == from_state) and (
            not self.to_states or to_state in self.to_states
        )


@dataclass(frozen=True)
class Definition:
    """A machine's definition. states: in the order of declaration. edges: in that order, each once
    (W2-05).
    """

    states: tuple[str, ...] = ()
    initial_state: str | None = None
    edges: tuple[Edge, ...] = ()
    callbacks: tuple[Callback, ...] = ()

    # Reading

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """The states that may follow each state. A terminal state is not a key."""
        found: dict[str, tuple[str, ...]] = {}
        for state in self.states:
            if following := tuple(edge.to_state for edge in self.edges if edge.from_state == state):
                found[state] = following
        return FrozenDict(found)

    def edge(self, from_state: str | None, to_state: str) -> Edge | None:
        """The declared transition between two states. From None there is only the one to the
        initial state.
        """
        if from_state is None:
            return Edge("", to_state) if to_state == self.initial_state else None
        return self._table.get((from_state, to_state))

    @cached_property
    def _table(self) -> dict[tuple[str, str], Edge]:
        return {(edge.from_state, edge.to_state): edge for edge in self.edges}

    @cached_property
    def numbers(self) -> WeakKeyDictionary[Any, dict[str, int]]:
        """The recorded number of this definition, by ledger and machine; filled by `declare`."""
        return WeakKeyDictionary()

    @cached_property
    def choices(self) -> dict[tuple[str, int, str], Any]:
        """What `fast_move` prepared, by machine, number and state."""
        return {}

    @cached_property
    def decided_by_table(self) -> Mapping[str, tuple[Edge, ...]]:
        """By target state, the transitions without guards and callbacks; those with the same model only."""
        asked = (Kind.GUARD, Kind.BEFORE, Kind.AFTER, Kind.AFTER_COMMIT)
        found: dict[str, tuple[Edge, ...]] = {}
        for edge in self.edges:
            before = found.get(edge.to_state, ())
            if any(self.called(kind, edge.from_state, edge.to_state) for kind in asked):
                continue
            if not before or before[0].metadata is edge.metadata:
                found[edge.to_state] = (*before, edge)
        return found

    def called(self, kind: Kind, from_state: str | None, to_state: str) -> list[Callback]:
        """The callbacks of a kind for a move, in the order of declaration."""
        if not self.callbacks:
            return []
        return [one for one in self.callbacks if one.kind is kind and one.is_for(from_state, to_state)]

    def known(self, *states: Any) -> tuple[str, ...]:
        """The given states as texts; each may be a list. Raises InvalidState for unknown ones (W2-13)."""
        flat: list[str] = []
        for state in states:
            state = plain(state)
            flat += [str(state)] if isinstance(state, str) else self.known(*_each(state))
        for name in flat:
            self._refuse_unknown(name)
        return tuple(dict.fromkeys(flat))

    # Declaring

    def with_state(self, name: str, *, initial: bool = False) -> Definition:
        """Add a state. Raises InvalidState for a second initial state (S2-20)."""
        name = checked_state(name)
        if initial and self.initial_state not in (None, name):
            raise InvalidState(
                f"Cannot set initial state to '{name}', already defined as {self.initial_state}."
            )
        states = self.states if name in self.states else (*self.states, name)
        return replace(self, states=states, initial_state=name if initial else self.initial_state)

    def with_edges(self, *edges: Edge) -> Definition:
        """Add transitions; one that is declared again is replaced (S2-21)."""
        found = {(edge.from_state, edge.to_state): edge for edge in self.edges}
        for edge in edges:
            edge = replace(edge, from_state=plain(edge.from_state), to_state=plain(edge.to_state))
            self._refuse_unknown(edge.from_state)
            self._refuse_unknown(edge.to_state)
            checked_edge(edge)
            found[edge.from_state, edge.to_state] = edge
        return replace(self, edges=tuple(found.values()))

    def without_edges(self, from_state: str | None = None, to_states: Sequence[str] = ()) -> Definition:
        """Remove transitions: all from a state, all to some states, or those between them (S2-22)."""
        if from_state is None and not to_states:
            raise InvalidTransition(
                "give from_state or to_states, whose transitions are removed: both are empty"
            )
        from_state, to_states = plain(from_state), several(to_states)
        for name in (*([from_state] if from_state is not None else []), *to_states):
            self._refuse_unknown(name)
        kept = tuple(
            edge
            for edge in self.edges
            if (from_state is not None and edge.from_state != from_state)
            or (to_states and edge.to_state not in to_states)
        )
        return replace(self, edges=kept)

    def without_state(self, name: str) -> Definition:
        """Remove a state, its transitions, and the callbacks for it alone (S2-23).

        A callback for several states loses this state and stays: a guard goes on refusing (W2-03).
        """
        self._refuse_unknown(name := plain(name))
        return replace(
            self,
            states=tuple(state for state in self.states if state != name),
            initial_state=None if self.initial_state == name else self.initial_state,
            edges=tuple(edge for edge in self.edges if name not in (edge.from_state, edge.to_state)),
            callbacks=tuple(left for one in self.callbacks if (left := _without(one, name)) is not None),
        )

    def with_callback(self, callback: Callback) -> Definition:
        """Add a callback. Raises InvalidCallback, InvalidState, InvalidTransition (S2-25, S2-26)."""
        if not callable(callback.function):
            raise InvalidCallback("No callback passed")
        check_call(callback.name, callback.function, callback.kind is Kind.GUARD)
        from_state, to_states = plain(callback.from_state), several(callback.to_states)
        callback = replace(callback, from_state=from_state, to_states=to_states)
        self._check_condition(callback.from_state, callback.to_states)
        return replace(self, callbacks=(*self.callbacks, callback))

    def without_callbacks(self, name: str) -> Definition:
        """Remove the callbacks of this name."""
        return replace(self, callbacks=tuple(one for one in self.callbacks if one.name != name))

    def _check_condition(self, from_state: str | None, to_states: Sequence[str]) -> None:
        for name in (*([from_state] if from_state is not None else []), *to_states):
            self._refuse_unknown(name)
        if from_state is not None and from_state not in self.successors:
            raise InvalidTransition(f"Cannot transition away from terminal state '{from_state}'")
        reached = {edge.to_state for edge in self.edges}
        for name in to_states:
            if name not in reached:
                raise InvalidTransition(f"Cannot transition to initial state '{name}'")
            if from_state is not None and self.edge(from_state, name) is None:
                raise InvalidTransition(f"Cannot transition from '{from_state}' to '{name}'")

    def _refuse_unknown(self, name: str) -> None:
        if name not in self.states:
            raise InvalidState(
                f"Invalid state {shown(name)}; the states are {', '.join(self.states) or 'none'}"
            )


def checked_state(name: Any) -> str:
    """The name of a state. Raises InvalidState unless it is printable text, not empty and not too long."""
    name = plain(name)
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_STATE:
        raise InvalidState(
            f"Invalid state {shown(name)}: it must be printable text, not empty, "
            f"of at most {LONGEST_STATE} characters"
        )
    return str(name)


LONGEST_STATE: Final = 200


def plain(state: Any) -> Any:
    """The value of a member of an enumeration; anything else unchanged."""
    return state.value if isinstance(state, Enum) else state


def several(states: Any) -> tuple[str, ...]:
    """The texts of one state, of several, or of none."""
    if isinstance(states, str | Enum):
        return (plain(states),)
    return tuple(plain(state) for state in states or ())


def checked_edge(edge: Edge) -> None:
    """Check the model and the time of a transition. Raises InvalidTransition."""
    given: Any = edge.metadata
    if given is not None and not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise InvalidTransition(f"metadata {shown(edge.metadata)} of a transition must be a pydantic model")
    span: Any = edge.after
    if span is not None and not (isinstance(span, timedelta) and span > timedelta(0)):
        raise InvalidTransition(f"after {shown(edge.after)} of a transition must be a timedelta above 0")


def _without(callback: Callback, name: str) -> Callback | None:
    if callback.from_state == name or callback.to_states == (name,):
        return None
    return replace(callback, to_states=tuple(state for state in callback.to_states if state != name))


def _each(states: Any) -> Iterable[Any]:
    if isinstance(states, Iterable):
        return states
    raise InvalidState(f"Invalid state {shown(states)}")


def check_call(name: str, function: Callable[..., Any], is_guard: bool) -> None:
    """Refuse a function that cannot be called with its arguments, or that is async. Raises InvalidCallback.

    is_guard: it is called as a guard. A function in C without a signature is accepted.
    """
    parts = "(object, last transition, metadata)" if is_guard else "(object, what happens)"
    if inspect.iscoroutinefunction(function):
        raise InvalidCallback(f"{name} is async and would never be awaited: it must be a plain function")
    try:
        inspect.signature(function).bind(*parts.split(","))
    except TypeError as error:
        raise InvalidCallback(
            f"{name} is called with {parts}, but its parameters do not fit: {error}"
        ) from None
    except ValueError:
        pass
