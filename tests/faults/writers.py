"""
Writers as processes: they append in every way there is, with pauses, savepoints and roll-backs, and
write down what they committed. Their record is the oracle of the tests of the order.

    python -m tests.faults.writers '{"dsn": …, "number": 3, "record": FILE, …}'    until its stdin is closed
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import ledger
from ledger import ANY, Append, Appended, Body, Exact, Expected, LedgerBusy, ServerUnavailable
from ledger.log.append import body_of
from tests.fork_server import python
from tests.lamp import LampRead

ROOT = Path(__file__).parents[2]
ROLLED_BACK = 0.2
"""The share of transactions, and of savepoints, that are rolled back."""


class Event(NamedTuple):
    """One event as its writer knows it: its place in the log, its place in its stream, whose append it is."""

    position: int
    stream: str
    version: int
    value: str


class Writer:
    """Appends at random until it is told to end. `shared` streams are everybody's, others are its own."""

    def __init__(
        self, number: int, dsn: str, record: str, shared: int = 5, pause: float = 0.003, seed: int = 0
    ) -> None:
        self.number, self.shared, self.pause = number, shared, pause
        self.random = random.Random(seed * 1000 + number)
        self.log = ledger.connect(dsn, actor=f"writer {number}", max_size=2, timeout=60)
        self.connection = psycopg.connect(dsn)
        self.record = Path(record).open("a", encoding="utf-8")  # noqa: SIM115 (for the life of the process)
        self.versions = dict.fromkeys((f"own{number}/{i}" for i in range(4)), 0)
        self.appended = 0

    def run(self) -> None:
        """Append until stdin is closed, or has something to say."""
        while not select.select([sys.stdin], [], [], 0)[0]:
            act = self.random.choice(
                [self.single, self.single, self.exact, self.block, self.many, self.transaction]
            )
            try:
                self.note(act())
            except LedgerBusy:  # a deadlock in a transaction of the user's: rolled back
                assert act == self.transaction

    def note(self, events: list[Event]) -> None:
        """These are committed."""
        if events:
            self.record.write(json.dumps(events) + "\n")
            self.record.flush()

    # Transactions of the ledger's own

    def single(self) -> list[Event]:
        append = self.make(self.anyone(), 1)
        return self.seen([append], self.log.append_all([append]))

    def exact(self) -> list[Event]:
        """At the version that this writer, alone on its streams, knows; without a head on half of them."""
        stream = self.random.choice(list(self.versions))
        append = self.make(stream, 1, Exact(self.versions[stream]), head=stream.endswith(("1", "3")))
        events = self.seen([append], self.log.append_all([append]))
        self.versions[stream] = events[-1].version
        return events

    def block(self) -> list[Event]:
        append = self.make(self.anyone(), self.random.randint(2, 20))
        return self.seen([append], self.log.append_all([append]))

    def many(self) -> list[Event]:
        streams = {self.anyone() for _ in range(self.random.randint(2, 5))}
        appends = [self.make(stream, self.random.randint(1, 4)) for stream in streams]
        return self.seen(appends, self.log.append_all(appends))

    # Appends that join a transaction of the user's

    def transaction(self) -> list[Event]:
        """Some appends, each plain or in a savepoint, with pauses while the transaction is open."""
        events: list[Event] = []
        with self.connection.transaction() as transaction:
            for nth in range(self.random.randint(1, 4)):
                # Only the first may wait for others: so these transactions cannot wait for each other.
                streams = [self.anyone()] if nth == 0 else []
                events += self.step([*streams, f"joined{self.number}/{nth}"])
                self.wait()
            if self.random.random() < ROLLED_BACK:
                events.clear()
                raise psycopg.Rollback(transaction)
        return events

    def step(self, streams: list[str]) -> list[Event]:
        if self.random.random() < 0.5:
            return self.joined(streams)
        with self.connection.transaction() as savepoint:
            events = self.joined(streams)
            self.wait()
            if self.random.random() < 2 * ROLLED_BACK:
                raise psycopg.Rollback(savepoint)
            return events
        return self.joined(streams) if self.random.random() < 0.7 else []

    def joined(self, streams: list[str]) -> list[Event]:
        appends = [self.make(stream, self.random.choice([1, 1, 3])) for stream in streams]
        with self.log.join(self.connection) as joined:
            for append in appends:
                joined.append(append.stream, *[LampRead(value=value_of(body)) for body in append.events])
        assert joined.appended is not None
        return self.seen(appends, joined.appended)

    # What an append is

    def anyone(self) -> str:
        return f"shared/{self.random.randrange(self.shared)}"

    def make(self, stream: str, count: int, expected: Expected = ANY, *, head: bool = True) -> Append:
        self.appended += 1
        bodies = [body_of(LampRead(value=f"{self.number}:{self.appended}/{count}"))] * count
        return Append(stream, bodies, expected, head=head)

    def seen(self, appends: list[Append], appended: Appended) -> list[Event]:
        """The events of an append, as its answer places them."""
        position, events = appended.first_position, []
        for append in appends:
            before = appended.versions[append.stream] - len(append.events)
            for version, body in enumerate(append.events, before + 1):
                events.append(Event(position, append.stream, version, value_of(body)))
                position += 1
        assert position == appended.last_position + 1
        return events

    def wait(self) -> None:
        time.sleep(self.random.random() * self.pause)


class Survivor(Writer):
    """A writer that goes on over crashes of the server: it says what it tries, and what was answered."""

    def run(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            act = self.random.choice([self.single, self.block, self.many])
            try:
                self.note(act())
            except ServerUnavailable:
                time.sleep(0.01)


def value_of(body: Body) -> str:
    return str(json.loads(body.data or "{}")["value"])


@contextmanager
def writing(folder: Path, count: int, kind: str = "Writer", **settings: Any) -> Iterator[list[Path]]:
    """Writer processes for the length of the block; the files that they write their record to."""
    records = [folder / f"writer{number}" for number in range(count)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = []
    for number, record in enumerate(records):
        words = json.dumps({"number": number, "record": str(record)} | settings)
        command = [*python(), "-m", "tests.faults.writers", kind, words]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT))
    try:
        yield records
        for process in processes:
            assert process.poll() is None, "a writer ended before it was told to"
            process.communicate(timeout=120)  # closes its stdin
        assert [process.returncode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def committed(records: list[Path]) -> dict[int, Event]:
    """What the writers committed, by position."""
    events: dict[int, Event] = {}
    for record in records:
        for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else []:
            for event in json.loads(line):
                assert event[0] not in events, f"position {event[0]} was given twice"
                events[event[0]] = Event(*event)
    return events


if __name__ == "__main__":
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it speaks of every attempt
    {"Writer": Writer, "Survivor": Survivor}[sys.argv[1]](**json.loads(sys.argv[2])).run()
