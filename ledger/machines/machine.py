"""A state machine for any object of the user's: a class that reads as its table, moved by events."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Self, TypeVar
from uuid import UUID

from ..errors import (
    BadDefinition,
    BadInput,
    TransitionConflict,
    TransitionFailed,
    shown,
)
from ..store.joining import Joined
from ..store.ledger import Ledger
from .declaring import collected
from .defining import declare
from .definition import Edge, Function, Kind
from .keeping import InLedger, InMemory, InTransaction, Keeper
from .moving import NOTHING, Move, Refusal, calls_for, decided, fitting, news
from .straight import move_straight
from .tables import Table
from .transition import MachineStream, Transition, checked_machine, stream_of

F = TypeVar("F", bound=Function)
Place = Ledger | Joined | None

MACHINES: Final[dict[str, type[Machine]]] = {}
"""Every machine that this process has imported, by name; of two with one name, the later."""


class Machine(Table):
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

    def __init_subclass__(cls, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parents = [one for one in cls.__bases__ if issubclass(one, Machine)]
        if len(parents) > 1:
            raise BadDefinition(f"{cls.__name__} has {len(parents)} machines as parents: a table has one")
        inherited = set(parents[0].__mro__)
        added = [vars(one) for one in reversed(cls.__mro__) if one not in inherited]
        body = dict(ChainMap(*map(dict, reversed(added))))
        cls._define(collected(cls.definition, body, {**vars(Table), **vars(Machine)}))
        cls.name = checked_machine(name) if name else ""
        if name:
            stream_of(name, cls.__module__)
            MACHINES[name] = cls

    @classmethod
    def streams(cls) -> type[MachineStream]:
        """The class of this machine's streams."""
        if not cls.name:
            raise BadInput(f'{cls.__name__} has no name to record under: class {cls.__name__}(…, name="…")')
        return stream_of(cls.name, cls.__module__)

    # An object in the machine

    def __init__(self, place: Place, about: Any, *, initial_transition: bool = False) -> None:
        self.object = about
        self.key = _key(type(self), about)
        self._keeper = _keeper(place, self.streams(), self.key)
        self._stream: MachineStream | None = None
        self._place = place
        if initial_transition:
            self._begin()
        self.after_initialize()

    def after_initialize(self) -> None:
        """Called at the end of the construction; here it does nothing."""

    @staticmethod
    def key_of(about: Any) -> Any:
        """The key of an object: itself, if it is text, an integer, a UUID or a tuple of them, else its `id`.

        A named tuple is an object, such as a row.
        """
        itself = isinstance(about, str | int | UUID | tuple) and not hasattr(about, "_fields")
        return about if itself else about.id

    @classmethod
    def load_each(cls, ledger: Ledger, objects: Iterable[Any]) -> list[Self]:
        """The machines of many objects, read at once; their first questions need no query (spec S2-45)."""
        machines = [cls(ledger, about) for about in objects]
        kind = cls.streams()
        found = {stream.name: stream for stream in ledger.load_each(kind(*one.key) for one in machines)}
        for one in machines:
            one._stream = found[one.stream]
        return machines

    @property
    def stream(self) -> str:
        """The name of the object's stream."""
        return self.streams().name_of(*self.key)

    def current_state(self, *, force_reload: bool = False) -> str | None:
        """The state that the object is in; the initial one where it never moved. Remembered (spec S2-45)."""
        return self._known(force_reload).state.status or self.initial_state

    def in_state(self, *states: Any) -> bool:
        """Whether the object is in one of these states. Raises InvalidState for an unknown one."""
        return self.current_state() in self.definition.known(*states)

    def allowed_transitions(self, metadata: Mapping[str, Any] = NOTHING) -> tuple[str, ...]:
        """The states that the object may move to now: successors whose guards pass (spec S2-33)."""
        following = self.successors.get(self.current_state() or "", ())
        return tuple(state for state in following if self.can_transition_to(state, metadata))

    def can_transition_to(self, state: str, metadata: Mapping[str, Any] = NOTHING) -> bool:
        """Whether the object may move to a state now; first the table, then the guards (S2-34)."""
        (state,) = self.definition.known(state)
        said = NOTHING if not metadata else dict(metadata)
        answer = decided(self.name, self.definition, self._known(), self.object, state, said)
        return isinstance(answer, Edge)

    def transition_to(self, state: str, /, **metadata: Any) -> Move:
        """A move to a state, to be executed or attempted."""
        (state,) = self.definition.known(state)
        return Move(self, state, metadata)

    def move(self, state: str, /, **metadata: Any) -> Transition:
        """Move to a state at once; statesman's `transition_to!`."""
        return self.transition_to(state, **metadata).execute()

    def try_move(self, state: str, /, **metadata: Any) -> bool:
        """Move to a state if that is allowed; whether it was. Statesman's `transition_to`."""
        return self.transition_to(state, **metadata).attempt() is not None

    def history(self) -> list[Transition]:
        """All moves of the object, in their order."""
        return self._keeper.history()

    def last_transition(self, *, force_reload: bool = False) -> Transition | None:
        """The last move; None where there was none. Remembered."""
        return self._known(force_reload).state.last

    def last_transition_to(self, state: str) -> Transition | None:
        """The last move to a state, found by itself, without the history (spec W2-11)."""
        (state,) = self.definition.known(state)
        return self._keeper.last_to(state)

    def reset(self) -> None:
        """Forget what is remembered; the history stays."""
        self._stream = None

    # Moving

    def run(
        self, to_state: str, metadata: Mapping[str, Any], meta: dict[str, Any], expected: int | None = None
    ) -> Transition | Refusal:
        """Decide a move on what is recorded now, and record it; or the refusal. What `Move` does."""
        if (done := self._repeated(meta, to_state)) is not None:
            self.reset()
            return done
        if expected is None and (done := self._straight(to_state, metadata, meta)) is not None:
            return done
        stream = self._known(force_reload=True)
        if expected not in (None, stream.version):
            raise TransitionConflict(stream.name, f"version {expected}", stream.version, to_state)
        answer = decided(self.name, self.definition, stream, self.object, to_state, metadata)
        if not isinstance(answer, Edge):
            return self._failed(answer)
        said = fitting(answer, metadata)
        return self._record(stream, answer, said, meta)

    def _straight(
        self, to_state: str, metadata: Mapping[str, Any], meta: dict[str, Any]
    ) -> Transition | None:
        """The move in one round trip, where only the table decides; None where it must be decided here."""
        ledger = self._place
        if not isinstance(ledger, Ledger) or to_state not in self.definition.straight:
            return None
        stream, self._stream = self.streams()(*self.key), None
        done = move_straight(ledger, self.name, self.definition, stream, to_state, metadata, meta)
        self._stream = None if done is None else stream
        return done

    def _record(
        self, stream: MachineStream, edge: Edge, said: Mapping[str, Any], meta: dict[str, Any]
    ) -> Transition:
        news(stream, edge, said, self._definition_number())
        from_state = edge.from_state or None
        calls = calls_for(self.definition, self.object, from_state, edge.to_state)
        self._stream = None  # what comes of it is read, unless all went well
        transition = self._keeper.record(stream, calls, **meta)
        if stream.version == transition.number and not isinstance(self._place, Joined):
            self._stream = stream
        return transition

    def _repeated(self, meta: dict[str, Any], to_state: str) -> Transition | None:
        """What a command did before, where it is a repeat: the object may have moved on since."""
        command = meta.get("command")
        return None if command is None else self._keeper.repeated(command, to_state)

    def _failed(self, refusal: Refusal) -> Refusal:
        failed = isinstance(refusal, TransitionFailed)
        kind = Kind.TRANSITION_FAILURE if failed else Kind.GUARD_FAILURE
        for callback in self.definition.called(kind, refusal.from_state, refusal.to_state):
            callback.function(self.object, refusal)
        return refusal

    def _begin(self) -> None:
        """Record that the object is in the initial state, if it never moved (spec S2-31)."""
        stream = self._known()
        if stream.state.status is not None or self.initial_state is None:
            return
        try:
            self._record(stream, Edge("", self.initial_state), NOTHING, {})
        except TransitionConflict as conflict:  # somebody else began or moved it just now
            if conflict.stream != self.stream:
                raise
            self.reset()

    def _known(self, force_reload: bool = False) -> MachineStream:
        if self._stream is None or force_reload or isinstance(self._place, Joined):
            self._stream = self._keeper.load()
        return self._stream

    def _definition_number(self) -> int:
        ledger, kind = self._keeper.ledger, self.streams()
        return 0 if ledger is None else declare(ledger, self.name, kind.MOVED.topic, self.definition)


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


def _keeper(place: Place, kind: type[MachineStream], key: tuple[str | int, ...]) -> Keeper:
    match place:
        case None:
            return InMemory(kind, key)
        case Ledger():
            return InLedger(place, kind, key)
        case Joined():
            return InTransaction(place, kind, key)
    raise BadInput(
        "a machine is kept in a ledger, in `ledger.join(connection)`, or in memory (None), "
        f"not in {shown(place)}"
    )


__all__ = ["MACHINES", "Machine"]
