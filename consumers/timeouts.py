"""Timeouts of machines: moves objects that have been in a state for longer than a transition's `after`.

    Timeouts(log, [Payment]).run()

The view in_state nominates objects. Before a move, the object's head is read again, and the table and guards
are checked as for any other move. Any number of runners may run; each object moves once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from ledger import BadInput, Ledger, SchemaMismatch, ServerUnavailable
from ledger.domain.names import split_name
from ledger.errors import (
    BadMetadata,
    DamagedLedger,
    GuardRefused,
    InvalidTransition,
    TransitionConflict,
    TransitionFailed,
)
from ledger.log.sql import Statements
from ledger.machines import Machine
from ledger.machines.definition import Edge
from ledger.machines.move import checked_metadata
from ledger.roles import require_roles
from projections.engine.follower import retry_outages
from projections.feeds import filling_of

SQL = Statements(__package__, "timeouts")
LONGEST_PAUSE: Final = 5.0
"""Seconds between two looks, at most: what the view shows late, or others move, is seen then."""
SHORTEST_PAUSE: Final = 0.05
"""Seconds between two looks, at least, however much is recorded meanwhile."""
AGAIN: Final = 60.0
"""Seconds until an object whose guard refused is asked again by the same runner."""
PAGE: Final = 500
"""Objects that are looked up at once."""
ACTOR: Final = "timeouts"
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Failure(NamedTuple):
    """An object that could not be moved, because a guard or callback raised an error."""

    stream: str
    to_state: str
    error: Exception


@dataclass(frozen=True, slots=True)
class TimeoutCounts:
    """The result of a pass: `due` is the sum of the others.

    moved: by this runner, or at the same moment by another. refused: by a guard; tried again later. waiting:
    refused a moment ago, not tried. gone: no longer in the state, or not for so long; the view is behind, or
    another runner was faster. failed: a guard or callback raised an error.
    """

    moved: int = 0
    refused: int = 0
    waiting: int = 0
    gone: int = 0
    failed: int = 0
    failures: tuple[Failure, ...] = field(default=(), compare=False)

    @property
    def due(self) -> int:
        """The objects that the view nominated."""
        return self.moved + self.refused + self.waiting + self.gone + self.failed

    def with_one(self, outcome: str, *failures: Failure) -> TimeoutCounts:
        """The counts with one more of this outcome."""
        counts = {name: getattr(self, name) + (name == outcome) for name in OUTCOMES}
        return TimeoutCounts(**counts, failures=(*self.failures, *failures))

    def __add__(self, other: TimeoutCounts) -> TimeoutCounts:
        counts = {name: getattr(self, name) + getattr(other, name) for name in OUTCOMES}
        return TimeoutCounts(**counts, failures=(*self.failures, *other.failures))


OUTCOMES: Final = ("moved", "refused", "waiting", "gone", "failed")


class Due(NamedTuple):
    """An object that the view nominates. version: of the move into the state; now: the database's time."""

    stream: str
    since: datetime
    version: int
    position: int
    now: datetime


class Timeouts:
    """Moves the due objects of some machines.

    Guards and callbacks get the object that the machine's classmethod `object_of(key)` returns; without one
    the key: a text, or a tuple of texts. again: seconds until an object that was refused is tried again;
    longest_pause: seconds between two passes, at most.

    The view in_state must be followed or attached. An object that never moved is not in the view, and never
    due. Raises InvalidTransition for a transition whose metadata model does not accept empty metadata.
    """

    def __init__(
        self,
        ledger: Ledger,
        machines: Iterable[type[Machine]],
        *,
        longest_pause: float = LONGEST_PAUSE,
        again: float = AGAIN,
    ) -> None:
        self.ledger, self.again = ledger, again
        machines = [*machines]
        for machine in machines:
            machine.streams()  # refuses one without a name
        self.edges = [(machine, edges) for machine in machines for edges in _timed(machine)]
        if not self.edges:
            raise BadInput("no machine here has a timeout: From(A).To(B, after=timedelta(hours=1)) is one")
        shortest = min(_after(edges[0]) for _, edges in self.edges).total_seconds()
        self.longest_pause = min(longest_pause, max(shortest, SHORTEST_PAUSE))
        self._asked: dict[str, tuple[int, float]] = {}
        self._alive = 0.0

    def run_once(self, stop: threading.Event | None = None) -> TimeoutCounts:
        """Move what is due now. Raises SchemaMismatch without the view, NoPermission, ServerUnavailable."""
        require_roles(self.ledger, "pledger machines timeouts")
        if filling_of(self.ledger, "in_state") is None:
            raise SchemaMismatch(
                "the view in_state does not exist yet: run `pledger views follow in_state`, or let appends "
                "keep it with `pledger views attach in_state`"
            )
        figures, asked, self._asked = TimeoutCounts(), self._asked, {}
        for machine, edges in self.edges:
            for due in self._overdue(machine, edges[0]):
                if stop is not None and stop.is_set():
                    return figures
                version, until = asked.get(due.stream, (0, 0.0))
                if version == due.version and time.monotonic() < until:
                    self._asked[due.stream] = version, until
                    figures = figures.with_one("waiting")
                    continue
                figures += self._move(machine, edges, due)
                self._alive = time.monotonic()
        return figures

    def run(
        self,
        stop: threading.Event | None = None,
        report: Callable[[TimeoutCounts], None] = lambda _: None,
    ) -> None:
        """Move what is due until `stop` is set. report: called after each pass that found something due.

        Waits for a lost server up to the ledger's `timeout`; then raises ServerUnavailable.
        """
        while not (stop and stop.is_set()):
            seen, self._alive = self.ledger.wakeup.seen(), time.monotonic()
            done = retry_outages(
                self.ledger, lambda: (self.run_once(stop), self._pause()), stop, alive=lambda: self._alive
            )
            if done is None:
                return
            if done[0].due:
                report(done[0])
            self._wait(seen, done[1], stop)

    # Finding

    def _overdue(self, machine: type[Machine], edge: Edge) -> Iterator[Due]:
        """The objects that are due by the view, those first that are in the state longest."""
        since, stream = BEGINNING, ""
        while True:
            rows = self.ledger.query(
                SQL.overdue, category=machine.name, status=edge.from_state, after=edge.after, since=since,
                stream=stream, limit=PAGE,
            )  # fmt: skip
            for row in rows:
                yield Due(*row)
            if len(rows) < PAGE:
                return
            stream, since = rows[-1][:2]

    def _pause(self) -> float:
        """Seconds until the next object is due by the view."""
        flat = [
            (machine.name, edge.from_state, edge.after) for machine, edges in self.edges for edge in edges
        ]
        names, states, afters = map(list, zip(*flat, strict=True))
        rows = self.ledger.query(SQL.next_overdue, categories=names, statuses=states, afters=afters)
        seconds = rows[0][0]
        return self.longest_pause if seconds is None else min(self.longest_pause, max(0.0, seconds))

    def _wait(self, seen: int, pause: float, stop: threading.Event | None) -> None:
        """Wait until something is due, is recorded in this process, or `stop` is set."""
        began = time.monotonic()
        while (left := began + pause - time.monotonic()) > 0 and not (stop and stop.is_set()):
            if self.ledger.wakeup.seen() != seen:
                break
            self.ledger.wakeup.wait(seen, left, stop)
        rest = began + SHORTEST_PAUSE - time.monotonic()
        (stop or threading.Event()).wait(max(0.0, rest))

    # Moving

    def _move(self, machine: type[Machine], edges: Sequence[Edge], due: Due) -> TimeoutCounts:
        """Move one object along the first due transition that no guard refuses."""
        outcome = "gone"
        for edge in edges:
            try:
                outcome = "moved" if self._along(machine, edge, due) else outcome
                break
            except GuardRefused:
                outcome = "refused"
            except (TransitionConflict, TransitionFailed):
                return TimeoutCounts(gone=1)
            except (ServerUnavailable, SchemaMismatch, DamagedLedger):
                raise
            except Exception as error:  # whatever the machine's own functions raise
                self._later(due, edges)
                return TimeoutCounts(failed=1, failures=(Failure(due.stream, edge.to_state, error),))
        if outcome == "refused":
            self._later(due, edges)
        return TimeoutCounts().with_one(outcome)

    def _later(self, due: Due, edges: Sequence[Edge]) -> None:
        """Try this object again after a while, or when its next transition is due."""
        rest = [(_after(edge) - (due.now - due.since)).total_seconds() for edge in edges]
        pause = min([self.again, *(seconds for seconds in rest if seconds > 0)])
        self._asked[due.stream] = due.version, time.monotonic() + pause

    def _along(self, machine: type[Machine], edge: Edge, due: Due) -> bool:
        """Move the object if its head confirms that it is due; returns whether it was."""
        one = machine(self.ledger, _object(machine, due.stream))
        if one.stream != due.stream:
            raise BadInput(f"object_of made an object of {one.stream} for the key of {due.stream}")
        last = one.last_transition(force_reload=True)
        if last is None or (last.to_state, last.number) != (edge.from_state, due.version):
            return False
        if due.now - last.at < _after(edge):
            return False
        command = f"timeout:{due.stream}:{due.version}:{edge.to_state}"
        move = one.transition_to(edge.to_state)
        move.execute(command=command, expected=due.version, actor=ACTOR, causation=due.position)
        return True


def _timed(machine: type[Machine]) -> list[list[Edge]]:
    """The transitions with `after`, by state, the earliest first."""
    found: dict[str, list[Edge]] = {}
    for edge in machine.definition.edges:
        if edge.after is not None:
            _check_metadata(machine, edge)
            found.setdefault(edge.from_state, []).append(edge)
    return [sorted(edges, key=_after) for edges in found.values()]


def _check_metadata(machine: type[Machine], edge: Edge) -> None:
    """Refuse a transition whose metadata model does not accept empty metadata."""
    try:
        checked_metadata(edge, {})
    except BadMetadata as error:
        raise InvalidTransition(
            f"{machine.name}: the transition from {edge.from_state} to {edge.to_state} is due by itself, and "
            f"its metadata model must be content with nothing: {'; '.join(error.wrong)}"
        ) from None


def _after(edge: Edge) -> timedelta:
    assert edge.after is not None
    return edge.after


def _object(machine: type[Machine], stream: str) -> Any:
    """The object that guards and callbacks get."""
    parts = split_name(stream)[1]
    key = parts[0] if len(parts) == 1 else parts
    made = getattr(machine, "object_of", None)
    return key if made is None else made(key)
