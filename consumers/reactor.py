"""
A reactor: follows the log and answers what it sees with events of its own, each recorded exactly once.

    Reactor(log, "escalation", escalate, topics={"lsm.strip.failed"}).run()

An answer is recorded under a command id made of the reactor's name, the position of the event that it
answers, and a key. So a reactor that was killed, started again, or runs twice at once repeats itself and
records nothing twice, as long as what it answers follows from the log up to that event and nothing else: no
clock, no random numbers, no state of now.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from ledger import (
    ANY,
    BadName,
    Body,
    Cursor,
    CursorMismatch,
    Event,
    Expected,
    Ledger,
    Recorded,
    SchemaMismatch,
    ServerUnavailable,
    acting,
)
from ledger.errors import (
    BadInput,
    CommandReused,
    GuardFailed,
    NoPermission,
    ReactionFailed,
    ReadOnly,
    StorageFull,
    StreamConflict,
)
from ledger.store.positions import Positions
from projections import Follower

LONGEST_PAUSE: Final = 0.01
"""Seconds between looks at a log that stands still: an answer comes within 50 ms, of other processes too."""
KEEPING: Final = 1.0
"""Seconds between two writes of the position, at least, while a reactor runs."""

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
_THEIRS = (ServerUnavailable, CursorMismatch, SchemaMismatch)
"""What is wrong with the server or the ledger, and not with the reaction."""


@dataclass(frozen=True)
class Answer:
    """Events for one stream. key: tells apart the answers to one event, where there are several.

    The answer to an event must be the same whenever it is given; `key` too. command: the id under which it is
    recorded, once for all events that are answered under it. harmless: it may be refused, because of what it
    expects or because the command recorded something else before: it was too late then, and is left out.
    """

    stream: str
    events: Sequence[Event | Body]
    key: str = ""
    expected: Expected = ANY
    command: str | None = None
    harmless: bool = False


Reaction = Callable[[Recorded], Iterable[Answer]]
"""What a reactor answers to an event. It may be asked again for an event that it was asked for before."""


class Reactor:
    """Follows a ledger and records what `react` answers to each event, in order.

    topics: only these events are shown to `react`. after: where a reactor begins that never ran; the start of
    the log by default. One that ran goes on where it stood: its position is kept in the ledger under its
    name, about once a second, and always after the answers. Answers carry the actor `reactor NAME`, the
    position of the event as causation, and its correlation. longest_pause, gather: as in Follower.

    `run` works until it is stopped, `catch_up` to the end of the log, `with reactor:` in a thread meanwhile.
    Each raises ReactionFailed where `react` raised or an answer was refused; nothing is passed over, and the
    next run begins with that event. CursorMismatch: this position is of a history that was rolled back.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        react: Reaction,
        *,
        topics: Collection[str] | None = None,
        after: int | Cursor = 0,
        batch: int = 500,
        longest_pause: float = LONGEST_PAUSE,
        gather: float = 0.0,
    ) -> None:
        if not _NAME.match(name):
            wrong = "must be lower-case letters, digits, '_', '.', '-', a letter first, at most 100"
            raise BadName("name of a reactor", name, wrong)
        self.ledger, self.name, self.react = ledger, name, react
        self._follower = partial(
            Follower, ledger, topics=topics, batch=batch, longest_pause=longest_pause, gather=gather
        )
        self._after = after
        self._positions = Positions(ledger)
        self._last: Recorded | Cursor | None = None
        self._kept, self._kept_at = -1, 0.0
        self._busy = threading.Lock()
        self._moved = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def position(self) -> int:
        """The last event that is done with, answers and all; 0 before it ran."""
        return 0 if self._last is None else self._last.position

    # Running

    def run(self, stop: threading.Event | None = None) -> None:
        """React for ever, or until `stop` is set."""
        with self._running() as follower:
            for events in follower.batches(stop, empty=True):
                self._handle(follower, events, stop)
                self._keep(KEEPING)

    def catch_up(self) -> int:
        """React to all that is there, and return; to how many events."""
        handled = 0
        with self._running() as follower:
            while events := follower.patiently(follower.poll):
                handled += self._handle(follower, events, None)
            self._handle(follower, [], None)
        return handled

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise self._runs_already()
        self._stop.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._in_thread, name=f"reactor {self.name}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._failure is not None:
            if error is None:
                raise self._failure
            error.add_note(f"The reactor had failed too: {self._failure}")

    def wait_for(self, position: int, seconds: float = 30.0) -> bool:
        """Whether it is done with all up to a position within the time. Raises its failure, if it failed."""
        with self._moved:
            self._moved.wait_for(lambda: self.position >= position or self._failure is not None, seconds)
        if self._failure is not None:
            raise self._failure
        return self.position >= position

    def _in_thread(self) -> None:
        try:
            self.run(self._stop)
        except BaseException as error:
            with self._moved:
                self._failure = error
                self._moved.notify_all()

    @contextmanager
    def _running(self) -> Iterator[Follower]:
        """One run at a time, from where this reactor stands; where it then stands is kept at the end."""
        if not self._busy.acquire(blocking=False):
            raise self._runs_already()
        try:
            yield self._started()
            self._keep(0)
        except (ReactionFailed, KeyboardInterrupt):
            self._keep(0)
            raise
        finally:
            self._busy.release()

    def _runs_already(self) -> BadInput:
        return BadInput(f"reactor {self.name} runs already; make another object for a second one")

    def _started(self) -> Follower:
        """A follower from where this reactor stands."""
        if self._last is None:
            kept = self._positions.kept(self.name)
            self._kept = -1 if kept is None else kept.position
            return self._follower(self._after if kept is None else kept)
        return self._follower(self._stands(self._last))

    # Reacting

    def _handle(self, follower: Follower, events: Sequence[Recorded], stop: threading.Event | None) -> int:
        """Answer the events of a batch; how many were done with before `stop` was set."""
        for nth, event in enumerate(events):
            if (stop and stop.is_set()) or not self._answer(follower, event, stop):
                return nth
            self._done(event)
        if follower.position != self.position:
            self._done(follower.cursor)
        return len(events)

    def _answer(self, follower: Follower, event: Recorded, stop: threading.Event | None) -> bool:
        """Record what is answered to one event; False where it was stopped before that was done."""
        try:
            answers = follower.patiently(lambda: list(self.react(event)), stop)
            if answers is None:
                return False
            return all(
                follower.patiently(partial(self._record, event, answer), stop) is not None
                for answer in answers
            )
        except _THEIRS:
            raise
        except Exception as error:
            raise ReactionFailed(self.name, event.position, event.topic, error) from error

    def _record(self, event: Recorded, answer: Answer) -> bool:
        """Record an answer; also True where it was refused, and may be."""
        command = answer.command or f"{self.name}:{event.position}:{answer.key}"
        why = {"correlation": event.meta.correlation, "causation": event.position}
        try:
            with acting(actor=f"reactor {self.name}", command=command, claimed_at=None, **why):
                self.ledger.append(answer.stream, *answer.events, expected=answer.expected)
        except (StreamConflict, GuardFailed, CommandReused):
            if not answer.harmless:
                raise
        return True

    def _done(self, last: Recorded | Cursor) -> None:
        with self._moved:
            self._last = last
            self._moved.notify_all()

    def _stands(self, last: Recorded | Cursor) -> Cursor:
        """The cursor after the last event; made only when it is wanted, since it has a digest."""
        return last if isinstance(last, Cursor) else Cursor.after(self.ledger.identity.ledger, last)

    def _keep(self, seconds: float) -> None:
        """Keep the position if it moved, and was not kept in the last seconds. All before it is recorded.

        It is no harm if that fails because the server is away: the answers would be repeated.
        """
        now = time.monotonic()
        if (last := self._last) is None or last.position == self._kept or now < self._kept_at + seconds:
            return
        self._kept_at = now
        try:
            self._positions.keep(self.name, self._stands(last))
        except (NoPermission, ReadOnly, StorageFull):
            raise
        except ServerUnavailable:
            return
        self._kept = last.position
