"""State machines: a class declares the table, and each object of the user's moves through it by events."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

from ..domain.known import KNOWN
from ..domain.names import stream_name
from ..errors import (
    BadDefinition,
    BadInput,
    InvalidState,
    StateConstantConflict,
    TransitionConflict,
    TransitionFailed,
    shown,
)
from ..log.callbacks import callback_transaction
from ..log.ledger import Ledger
from .backends import Backend, MemoryBackend, Place, backend_at, checked_place
from .declaration import definition_of_class
from .definition import Callback, Definition, Edge, Function, Kind, State, several
from .move import NOTHING, Move, Refusal, callbacks_of, decide, fast_move, record_move
from .transition import MachineStream, Transition, checked_machine, stream_of

F = TypeVar("F", bound=Function)


class Machine:
    """A machine: subclass it, name it, write down its states and its table.

        class Payment(Machine, name="payment"):
            PENDING = State("pending_submission", initial=True)
            SUBMITTED = State("submitted")
            PAID = State("paid")
            CANCELLED = State("cancelled")

            table = (
                From(PENDING).To(SUBMITTED, metadata=Submission),
                From(SUBMITTED).To(PAID, CANCELLED),
            )

            @guard(to=SUBMITTED)
            def has_mandate(payment, last, metadata): ...

        Payment(log, "PM123").transition_to("submitted").with_(submission_id="SB1").execute()

    The object is what guards and callbacks are given; its key names its stream: a text, an integer, a tuple
    of them, or what has an `id`; or override `key_of`. place: a ledger, `ledger.join(connection)`, or None to
    try the machine in memory. initial_transition: record that an object which never moved is in the initial
    state.
    """

    name: ClassVar[str] = ""
    table: ClassVar[Sequence[Sequence[Edge]]] = ()
    definition: ClassVar[Definition] = Definition()
    states: ClassVar[tuple[str, ...]] = ()
    successors: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    initial_state: ClassVar[str | None] = None
    callbacks: ClassVar[tuple[Callback, ...]] = ()

    def __init_subclass__(cls, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parents = [one for one in cls.__bases__ if issubclass(one, Machine)]
        if len(parents) > 1:
            raise BadDefinition(f"{cls.__name__} has {len(parents)} machines as parents: it can have one")
        inherited = set(parents[0].__mro__)
        added = [vars(one) for one in reversed(cls.__mro__) if one not in inherited]
        body = dict(ChainMap(*map(dict, reversed(added))))
        cls._define(definition_of_class(cls.definition, body, vars(Machine)))
        cls.name = checked_machine(name) if name else ""
        if name:
            stream_of(name, cls.__module__)
            KNOWN.machines[name] = cls

    @classmethod
    def streams(cls) -> type[MachineStream]:
        """The class of this machine's streams."""
        if not cls.name:
            raise BadInput(f'{cls.__name__} has no name to record under: class {cls.__name__}(…, name="…")')
        return stream_of(cls.name, cls.__module__)

    # Changing the table: each change makes a new definition, of this class only

    @classmethod
    def state(cls, name: str, *, initial: bool = False) -> None:
        """Add a state (spec S2-20)."""
        cls._define(cls.definition.with_state(name, initial=initial))

    @classmethod
    def transition(cls, from_: str, to: str | Sequence[str], **parts: Any) -> None:
        """Add transitions from a state to one or several (spec S2-21). parts: as in `From(…).To(…)`."""
        ends = several(to)
        if not ends:
            raise InvalidState("No to states provided.")
        cls._define(cls.definition.with_edges(*(Edge(from_, end, **parts) for end in ends)))

    @classmethod
    def remove_transitions(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> None:
        """Remove transitions (spec S2-22)."""
        cls._define(cls.definition.without_edges(from_, several(to)))

    @classmethod
    def remove_state(cls, name: str) -> None:
        """Remove a state and its transitions (spec S2-23). Old histories stay readable."""
        cls._define(cls.definition.without_state(name))

    @classmethod
    def guard_transition(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Add a guard: it is called with (object, last transition or None, metadata); false refuses."""
        return cls._calls(Kind.GUARD, from_, to)

    @classmethod
    def before_transition(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Add a function that is called before such a move is recorded: (object, transition)."""
        return cls._calls(Kind.BEFORE, from_, to)

    @classmethod
    def after_transition(
        cls, from_: str | None = None, to: str | Sequence[str] = (), *, after_commit: bool = False
    ) -> Callable[[F], F]:
        """Add a function that is called after such a move, or after its commit: (object, transition)."""
        return cls._calls(Kind.AFTER_COMMIT if after_commit else Kind.AFTER, from_, to)

    @classmethod
    def after_transition_failure(
        cls, from_: str | None = None, to: str | Sequence[str] = ()
    ) -> Callable[[F], F]:
        """Add a function that is called if the table does not allow the move: (object, error)."""
        return cls._calls(Kind.TRANSITION_FAILURE, from_, to)

    @classmethod
    def after_guard_failure(cls, from_: str | None = None, to: str | Sequence[str] = ()) -> Callable[[F], F]:
        """Add a function that is called if a guard refuses the move: (object, error)."""
        return cls._calls(Kind.GUARD_FAILURE, from_, to)

    @classmethod
    def _calls(cls, kind: Kind, from_: str | None, to: str | Sequence[str]) -> Callable[[F], F]:
        def take(function: F) -> F:
            cls._define(cls.definition.with_callback(Callback(kind, function, from_, several(to))))
            return function

        return take

    @classmethod
    def _define(cls, definition: Definition) -> None:
        """Set the definition, and make the constants of its states. Raises StateConstantConflict."""
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

    # An object in the machine

    def __init__(self, place: Place, about: Any, *, initial_transition: bool = False) -> None:
        self.object = about
        self.key = _key(type(self), about)
        kind = self.streams()
        self._place = place if isinstance(place, Ledger) else checked_place(place, kind, self.key)
        self._stream: MachineStream | None = None
        self._moved: Transition | None = None
        if initial_transition:
            self._begin()
        self.after_initialize()

    def after_initialize(self) -> None:
        """Called at the end of the construction; override it."""

    def __repr__(self) -> str:
        """Its stream, and the state if it is remembered: `<Payment payment/PM123, submitted>`."""
        name, stream = type(self).__name__, getattr(self, "_stream", None)
        if not hasattr(self, "_place"):
            return f"<{name}, not made yet>"
        in_memory = isinstance(self._place, MemoryBackend)
        if stream is None and in_memory:
            stream = self._backend.load()
        state = self._moved.to_state if self._moved is not None else None
        if stream is not None:
            state = stream.state.status or self.initial_state
        known = "" if state is None else f", {state}"
        return f"<{name} {self.stream}{known}{', in memory' * in_memory}>"

    @staticmethod
    def key_of(about: Any) -> Any:
        """The key of an object: the object itself if it is a text, an integer, a UUID or a tuple of them,
        else its `id`.

        A named tuple, such as a row, is an object with an `id`.
        """
        itself = isinstance(about, str | int | UUID | tuple) and not hasattr(about, "_fields")
        return about if itself else about.id

    @classmethod
    def load_each(cls, ledger: Ledger, objects: Iterable[Any]) -> list[Self]:
        """The machines of many objects, read in one query (spec S2-45)."""
        machines = [cls(ledger, about) for about in objects]
        kind = cls.streams()
        found = {stream.name: stream for stream in ledger.load_each(kind(*one.key) for one in machines)}
        for one in machines:
            one._stream = found[one.stream]
        return machines

    @property
    def stream(self) -> str:
        """The name of the object's stream."""
        return stream_name(self.name, *self.key)

    def current_state(self, *, force_reload: bool = False) -> str | None:
        """The state of the object; the initial one if it never moved. Remembered (spec S2-45)."""
        return self._loaded(force_reload).state.status or self.initial_state

    def in_state(self, *states: Any) -> bool:
        """Whether the object is in one of these states. Raises InvalidState for an unknown state."""
        return self.current_state() in self.definition.known(*states)

    def allowed_transitions(self, metadata: Mapping[str, Any] = NOTHING) -> tuple[str, ...]:
        """The states that the object may move to now: successors whose guards pass (spec S2-33)."""
        following = self.successors.get(self.current_state() or "", ())
        return tuple(state for state in following if self.can_transition_to(state, metadata))

    def can_transition_to(self, state: str, metadata: Mapping[str, Any] = NOTHING) -> bool:
        """Whether the object may move to a state now, by the table and the guards (S2-34)."""
        (state,) = self.definition.known(state)
        answer = decide(
            self.name, self.definition, self._loaded(), self.object, state, metadata, is_question=True
        )
        return isinstance(answer, tuple)

    def transition_to(self, state: str, /, **metadata: Any) -> Move:
        """A move to a state, still to be executed or attempted."""
        if type(state) is not str or state not in self.states:
            (state,) = self.definition.known(state)
        return Move(self, state, metadata)

    def move(self, state: str, /, **metadata: Any) -> Transition:
        """Move to a state at once; statesman's `transition_to!`."""
        return self.transition_to(state, **metadata).execute()

    def try_move(self, state: str, /, **metadata: Any) -> bool:
        """Move to a state if that is allowed; returns whether it was. Statesman's `transition_to`."""
        return self.transition_to(state, **metadata).attempt() is not None

    def history(self) -> list[Transition]:
        """All moves of the object, in their order."""
        return self._backend.history()

    def last_transition(self, *, force_reload: bool = False) -> Transition | None:
        """The last move; None if there is none. Remembered."""
        return self._loaded(force_reload).last

    def last_transition_to(self, state: str) -> Transition | None:
        """The last move to a state; reads one event (spec W2-11)."""
        (state,) = self.definition.known(state)
        return self._backend.last_to(state)

    def reset(self) -> None:
        """Forget what is remembered. The history stays."""
        self._stream = self._moved = None

    # Moving

    @property
    def _backend(self) -> Backend:
        """The backend of the moves; in a callback, the one of its transaction."""
        return backend_at(self._place, self.streams(), self.key)

    def run(
        self, to_state: str, metadata: Mapping[str, Any], meta: dict[str, Any], expected: int | None = None
    ) -> Transition | Refusal:
        """Decide a move on what is recorded now, and record it; or return the refusal. `Move` calls this."""
        if (command := meta.get("command")) is not None:
            if (done := self._backend.repeated(command, to_state)) is not None:
                self.reset()  # the object may have moved on since
                return done
        elif expected is None and (done := self._run_fast(to_state, metadata, meta)) is not None:
            return done
        stream = self._loaded(force_reload=True)
        if expected not in (None, stream.version):
            raise TransitionConflict(stream.name, f"version {expected}", stream.version, to_state)
        answer = decide(self.name, self.definition, stream, self.object, to_state, metadata)
        if not isinstance(answer, tuple):
            return self._failed(answer)
        return self._record(stream, *answer, meta)

    def _run_fast(
        self, to_state: str, metadata: Mapping[str, Any], meta: dict[str, Any]
    ) -> Transition | None:
        """The move in one round trip, if the table alone decides it; else None."""
        ledger = self._place
        if not isinstance(ledger, Ledger) or callback_transaction(ledger) is not None:
            return None
        self.reset()
        self._moved = fast_move(
            ledger, self.streams(), self.definition, self.stream, to_state, metadata, meta
        )
        return self._moved

    def _record(
        self, stream: MachineStream, edge: Edge, metadata: Mapping[str, Any], meta: dict[str, Any]
    ) -> Transition:
        backend = self._backend
        record_move(stream, edge, metadata, backend.number(self.name, self.definition))
        calls = callbacks_of(self.definition, self.object, edge.from_state or None, edge.to_state)
        self.reset()  # after an error it is read anew
        transition = backend.record(stream, calls, **meta)
        is_last = not calls.after and not calls.after_commit  # a callback may have moved it again
        if is_last and stream.version == transition.number and backend.is_alone:
            self._stream = stream
        return transition

    def _failed(self, refusal: Refusal) -> Refusal:
        failed = isinstance(refusal, TransitionFailed)
        kind = Kind.TRANSITION_FAILURE if failed else Kind.GUARD_FAILURE
        for callback in self.definition.called(kind, refusal.from_state, refusal.to_state):
            callback.function(self.object, refusal)
        return refusal

    def _begin(self) -> None:
        """Record that the object is in the initial state, if it never moved (spec S2-31)."""
        stream = self._loaded()
        if stream.state.status is not None or self.initial_state is None:
            return
        try:
            self._record(stream, Edge("", self.initial_state), NOTHING, {})
        except TransitionConflict as conflict:  # somebody else began or moved it just now
            if conflict.stream != self.stream:
                raise
            self.reset()

    def _loaded(self, force_reload: bool = False) -> MachineStream:
        """The object's stream: remembered, or read again."""
        backend = self._backend
        if force_reload or not backend.is_alone:
            self.reset()
        if self._stream is None:
            moved = self._moved
            self._stream = backend.load() if moved is None else self.streams().after(self.key, moved)
        return self._stream


def _key(machine: type[Machine], about: Any) -> tuple[str | int, ...]:
    try:
        key = machine.key_of(about)
    except AttributeError as error:
        raise BadInput(
            f"{shown(about)} has no key: give a text, an integer, a tuple of them, an object with an `id`, "
            f"or override {machine.__name__}.key_of ({error})"
        ) from error
    parts = key if isinstance(key, tuple) else (key,)
    parts = tuple(str(part) if isinstance(part, UUID) else part for part in parts)
    fits = (isinstance(part, str | int) and not isinstance(part, bool) and part != "" for part in parts)
    if not parts or not all(fits):
        raise BadInput(
            f"the key {shown(key)} of {shown(about)} must be a text that is not empty, an integer, a UUID, "
            "or a tuple of them"
        )
    return parts
