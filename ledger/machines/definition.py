"""
What a machine is: states, the first of them, which may follow which, and what is asked and called on the way.

A definition is a value: each change makes another one, so that a subclass begins with what its parent has and
changes nothing of it (spec W2-04). What is wrong is refused when it is declared (spec S2-20 to S2-27).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel

from ..errors import InvalidCallback, InvalidState, InvalidTransition, shown
from ..frozen import FrozenDict
from .calling import check_call

Function = Callable[..., Any]


class State(str):
    """A state in the table of a machine: `PAID = State("paid")`; `initial` for the one that all begin in.

    A text like any other, so that it can be compared with one and stored as one.
    """

    initial: bool

    def __new__(cls, name: str, *, initial: bool = False) -> State:
        made = super().__new__(cls, checked_state(name))
        made.initial = initial
        return made


@dataclass(frozen=True, slots=True)
class Edge:
    """One declared transition. metadata: the model that what is said with it must fit. after: time in
    `from_state` after which it is due by itself (`pledger machines timeouts`)."""

    from_state: str
    to_state: str
    metadata: type[BaseModel] | None = None
    after: timedelta | None = None


class From:
    """The left side of a line of the table: `From(SUBMITTED).To(PAID, CANCELLED)`."""

    def __init__(self, *states: str) -> None:
        if not states:
            raise InvalidState("No from states provided.")
        self.states = states

    def To(
        self, *states: str, metadata: type[BaseModel] | None = None, after: timedelta | None = None
    ) -> tuple[Edge, ...]:
        """The transitions from each of the states to each of these; as in Edge."""
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
    """A function and the moves that it is for: `from_state` None is any, no `to_states` are all (S2-27)."""

    kind: Kind
    function: Function
    from_state: str | None = None
    to_states: tuple[str, ...] = ()
    attribute: str = ""

    @property
    def name(self) -> str:
        """The name under which it stands in the class, else the function's."""
        return self.attribute or getattr(self.function, "__name__", type(self.function).__name__)

    def is_for(self, from_state: str | None, to_state: str) -> bool:
        """Whether it is called on this move."""
        return (self.from_state is None or self.from_state == from_state) and (
            not self.to_states or to_state in self.to_states
        )


@dataclass(frozen=True)
class Definition:
    """A machine's table. states: in the order of declaration. edges: the same, without repeats (W2-05)."""

    states: tuple[str, ...] = ()
    initial_state: str | None = None
    edges: tuple[Edge, ...] = ()
    callbacks: tuple[Callback, ...] = ()

    # Reading

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """The states that may follow each state; one that nothing follows is not here."""
        found: dict[str, tuple[str, ...]] = {}
        for state in self.states:
            if following := tuple(edge.to_state for edge in self.edges if edge.from_state == state):
                found[state] = following
        return FrozenDict(found)

    def edge(self, from_state: str | None, to_state: str) -> Edge | None:
        """The declared transition between two states. From nothing there is one to the initial state only."""
        if from_state is None:
            return Edge("", to_state) if to_state == self.initial_state else None
        return self._table.get((from_state, to_state))

    @cached_property
    def _table(self) -> dict[tuple[str, str], Edge]:
        return {(edge.from_state, edge.to_state): edge for edge in self.edges}

    @cached_property
    def straight(self) -> Mapping[str, tuple[Edge, ...]]:
        """By state, the transitions to it that the table alone decides; those of one model of metadata."""
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
        """The states that are meant: texts, or lists of them. Raises InvalidState (W2-13)."""
        if len(states) == 1 and type(states[0]) is str and states[0] in self.states:  # mostly
            return states
        flat: list[str] = []
        for state in states:
            state = plain(state)
            flat += [str(state)] if isinstance(state, str) else self.known(*_each(state))
        for name in flat:
            self._refuse_unknown(name)
        return tuple(dict.fromkeys(flat))

    # Declaring

    def with_state(self, name: str, *, initial: bool = False) -> Definition:
        """One state more. Raises InvalidState for a second initial one (S2-20)."""
        name = checked_state(name)
        if initial and self.initial_state not in (None, name):
            raise InvalidState(
                f"Cannot set initial state to '{name}', already defined as {self.initial_state}."
            )
        states = self.states if name in self.states else (*self.states, name)
        return replace(self, states=states, initial_state=name if initial else self.initial_state)

    def with_edges(self, *edges: Edge) -> Definition:
        """Some transitions more; one that is there already takes what is said of it now (S2-21)."""
        found = {(edge.from_state, edge.to_state): edge for edge in self.edges}
        for edge in edges:
            edge = replace(edge, from_state=plain(edge.from_state), to_state=plain(edge.to_state))
            self._refuse_unknown(edge.from_state)
            self._refuse_unknown(edge.to_state)
            checked_edge(edge)
            found[edge.from_state, edge.to_state] = edge
        return replace(self, edges=tuple(found.values()))

    def without_edges(self, from_state: str | None = None, to_states: Sequence[str] = ()) -> Definition:
        """Some transitions less: all from a state, all to some, or those between them (S2-22)."""
        if from_state is None and not to_states:
            raise InvalidTransition(
                "say from which state or to which states transitions are removed: both are empty"
            )
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
        """One state less, with its transitions and what was only called for it (S2-23).

        A callback of several states loses this one and stays what it is: a guard goes on refusing (W2-03).
        """
        self._refuse_unknown(name)
        return replace(
            self,
            states=tuple(state for state in self.states if state != name),
            initial_state=None if self.initial_state == name else self.initial_state,
            edges=tuple(edge for edge in self.edges if name not in (edge.from_state, edge.to_state)),
            callbacks=tuple(left for one in self.callbacks if (left := _without(one, name)) is not None),
        )

    def with_callback(self, callback: Callback) -> Definition:
        """One callback more. Raises InvalidCallback, InvalidState, InvalidTransition (S2-25, S2-26)."""
        if not callable(callback.function):
            raise InvalidCallback("No callback passed")
        check_call(callback.name, callback.function, callback.kind is Kind.GUARD)
        self._check_condition(callback.from_state, callback.to_states)
        return replace(self, callbacks=(*self.callbacks, callback))

    def without_callbacks(self, name: str) -> Definition:
        """Without the callbacks whose function has this name."""
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
    """The name of a state, if it is text that is not empty. Raises InvalidState."""
    name = plain(name)
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_STATE:
        raise InvalidState(
            f"Invalid state {shown(name)}: it must be printable text, not empty, "
            f"of at most {LONGEST_STATE} characters"
        )
    return str(name)


LONGEST_STATE: Final = 200


def plain(state: Any) -> Any:
    """The text of a state that is given as a member of an enumeration; anything else as it is."""
    return state.value if isinstance(state, Enum) else state


def checked_edge(edge: Edge) -> None:
    """Refuse what cannot be meant by a transition. Raises InvalidTransition."""
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
