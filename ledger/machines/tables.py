"""The half of a machine's class that declares: what can be added to its table, and taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..errors import InvalidState, StateConstantConflict
from .definition import Callback, Definition, Edge, Function, Kind, State

F = TypeVar("F", bound=Function)


class Table:
    """The table of a machine, as a class: each change is a new definition of this class and no other."""

    table: ClassVar[Sequence[Sequence[Edge]]] = ()
    definition: ClassVar[Definition] = Definition()
    states: ClassVar[tuple[str, ...]] = ()
    successors: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    initial_state: ClassVar[str | None] = None
    callbacks: ClassVar[tuple[Callback, ...]] = ()

    @classmethod
    def state(cls, name: str, *, initial: bool = False) -> None:
        """One state more (spec S2-20)."""
        cls._define(cls.definition.with_state(name, initial=initial))

    @classmethod
    def transition(cls, from_: str, to: str | Sequence[str], **parts: Any) -> None:
        """Transitions from a state to one or several (spec S2-21). parts: those of `From(…).To(…)`."""
        ends = _several(to)
        if not ends:
            raise InvalidState("No to states provided.")
        cls._define(cls.definition.with_edges(*(Edge(from_, end, **parts) for end in ends)))

    @classmethod
    def remove_transitions(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> None:
        """Transitions less (spec S2-22)."""
        cls._define(cls.definition.without_edges(from_, _several(to)))

    @classmethod
    def remove_state(cls, name: str) -> None:
        """A state less, with its transitions (spec S2-23). Histories that were there stay readable."""
        cls._define(cls.definition.without_state(name))

    @classmethod
    def guard_transition(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Ask this function before such moves: (object, last transition or None, metadata); false refuses."""
        return cls._calls(Kind.GUARD, from_, to)

    @classmethod
    def before_transition(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Call this function before such a move is recorded: (object, transition)."""
        return cls._calls(Kind.BEFORE, from_, to)

    @classmethod
    def after_transition(
        cls, from_: str | None = None, to: str | Sequence[str] = (), *, after_commit: bool = False
    ) -> Callable[[F], F]:
        """Call this function after such a move: (object, transition); in its transaction or after it."""
        return cls._calls(Kind.AFTER_COMMIT if after_commit else Kind.AFTER, from_, to)

    @classmethod
    def after_transition_failure(
        cls, from_: str | None = None, to: str | Sequence[str] = ()
    ) -> Callable[[F], F]:
        """Call this function where the state is no successor: (object, error)."""
        return cls._calls(Kind.TRANSITION_FAILURE, from_, to)

    @classmethod
    def after_guard_failure(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Call this function where a guard refused: (object, error)."""
        return cls._calls(Kind.GUARD_FAILURE, from_, to)

    @classmethod
    def _calls(cls, kind: Kind, from_: str | None, to: str | Sequence[str]) -> Callable[[F], F]:
        def take(function: F) -> F:
            cls._define(cls.definition.with_callback(Callback(kind, function, from_, _several(to))))
            return function

        return take

    @classmethod
    def _define(cls, definition: Definition) -> None:
        """Let this be the table, and make the constants of its states. Raises StateConstantConflict."""
        constants: dict[str, str] = {}
        for state in definition.states:
            constant = re.sub(r"\W", "_", state).upper()
            there = constants.get(constant, getattr(cls, constant, state))
            if there != state:
                raise StateConstantConflict(constant, state, there)
            constants[constant] = state
        for constant, state in constants.items():
            if constant.isidentifier() and not hasattr(cls, constant):
                setattr(cls, constant, State(state, initial=state == definition.initial_state))
        cls.definition = definition
        cls.states, cls.successors = definition.states, definition.successors
        cls.initial_state, cls.callbacks = definition.initial_state, definition.callbacks


def _several(states: str | Sequence[str]) -> tuple[str, ...]:
    return (states,) if isinstance(states, str) else tuple(states or ())
