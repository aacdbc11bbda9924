"""Readers that tail the log, the right way and the wrong ways, and what became of the events."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ledger import Ledger, Recorded, ServerUnavailable
from tests.faults.writers import Event

Step = Callable[[Ledger, int, Callable[[], None], int], list[Recorded]]
"""One look at the log: ledger, cursor, what pauses between statements, limit -> events to deliver."""

SELECT = (
    "SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at "
    "FROM ledger.events WHERE position > %s AND position <= %s ORDER BY position LIMIT %s"
)


def bound_then_rows(log: Ledger, cursor: int, pause: Callable[[], None], limit: int) -> list[Recorded]:
    """The right way."""
    bound = log.bound()
    pause()
    return log.log(cursor, bound, limit)


def without_bound(log: Ledger, cursor: int, pause: Callable[[], None], limit: int) -> list[Recorded]:
    """Wrong: all there is behind the cursor."""
    pause()
    return log.log(cursor, 2**62, limit)


def rows_then_bound(log: Ledger, cursor: int, pause: Callable[[], None], limit: int) -> list[Recorded]:
    """Wrong: what commits between the two statements is below the bound, and not among the rows."""
    rows = log.log(cursor, 2**62, limit)
    pause()
    bound = log.bound()
    return [row for row in rows if row.position <= bound]


def in_one_snapshot(log: Ledger, cursor: int, pause: Callable[[], None], limit: int) -> list[Recorded]:
    """Wrong: the bound is of now, the rows are of when the snapshot was taken."""
    with log.reader() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1 FROM ledger.identity")
        pause()
        ((bound,),) = connection.execute("SELECT ledger.bound()").fetchall()
        pause()
        return [Recorded(*row) for row in connection.execute(SELECT, (cursor, bound, limit)).fetchall()]


@dataclass
class Tail:
    """A reader on a thread of its own; its cursor is the last position that it delivered."""

    log: Ledger
    step: Step = bound_then_rows
    pause: float = 0.003
    seed: int = 0
    cursor: int = 0
    delivered: list[Recorded] = field(default_factory=list)
    outages: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            while self.once():
                self.wait()
        except BaseException as error:
            self.error = error

    def once(self) -> bool:
        """One look. False when nothing is left after everybody has ended."""
        ending = self.ending.is_set()
        try:
            rows = self.step(self.log, self.cursor, self.wait, self.random.choice([1, 10, 1000, 1000]))
        except ServerUnavailable:
            self.outages += 1
            return True
        self.delivered += rows
        self.cursor = rows[-1].position if rows else self.cursor
        return bool(rows) or not ending

    def wait(self) -> None:
        if not self.ending.is_set():
            time.sleep(self.random.random() * self.pause)

    def end(self) -> list[Recorded]:
        """Deliver what is left, and stop. Call it when every writer has ended."""
        self.ending.set()
        self.thread.join(120)
        assert not self.thread.is_alive(), "the reader does not come to an end"
        if self.error is not None:
            raise self.error
        return self.delivered


def skipped(committed: dict[int, Event], delivered: Iterable[Recorded]) -> set[int]:
    """Positions that were committed, and never delivered."""
    return set(committed) - {event.position for event in delivered}


def check_order(delivered: list[Recorded]) -> None:
    """Each once, positions ascending; within a stream the versions are 1, 2, 3 …"""
    last, versions = 0, dict[str, int]()
    for event in delivered:
        assert event.position > last, f"{event.position} was delivered after {last}"
        assert event.version == versions.get(event.stream, 0) + 1, f"{event.stream} at {event.position}"
        last, versions[event.stream] = event.position, event.version


def check_delivery(committed: dict[int, Event], delivered: list[Recorded]) -> None:
    """Every committed event was delivered once, in order, as its writer knows it; and nothing else was."""
    assert not skipped(committed, delivered), (
        f"{len(skipped(committed, delivered))} skipped of {len(committed)}"
    )
    check_order(delivered)
    for event in delivered:
        known = committed.get(event.position)
        assert known is not None, f"{event.position} was delivered and not committed"
        value = event.event.value  # type: ignore[union-attr]
        assert known == (event.position, event.stream, event.version, value)
