"""
Processes that append in every way there is and write down what each call said: acknowledged, refused, or
uncertain. What they wrote, held against the log, is the oracle of the campaign of durability.

    python -m tests.faults.appenders '{"dsn": …, "number": 3, "record": FILE}'    until its stdin is closed

With "believe": "first" a process takes the first result of a call for the whole answer, as the ledger once
did: the negative control.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import generators

import ledger
from ledger import (
    ANY,
    NEW,
    Append,
    Appended,
    AppendUncertain,
    Exact,
    Expected,
    LedgerBusy,
    Refused,
    ServerUnavailable,
    StreamNotFound,
)
from ledger.log.append import body_of
from ledger.log.connection import CallingConnection
from ledger.machines import From, Machine, State
from tests.fork_server import python
from tests.lamp import LampRead

ROOT = Path(__file__).parents[2]
WRONG = 0.02
"""The share of appends that a deferred constraint refuses at their commit."""
CROWD = 16
"""Threads of one process that append at once."""


class Switch(Machine, name="campaign_switch"):
    """Moves that its table alone decides: the append of one round trip."""

    ON, OFF = State("on", initial=True), State("off")
    table = (From(ON).To(OFF), From(OFF).To(ON))


class Event(NamedTuple):
    """An acknowledged event. position: 0 where the call does not tell it."""

    stream: str
    version: int
    value: str
    position: int


class Appender:
    """Appends at random until it is told to end."""

    def __init__(self, number: int, dsn: str, record: str, seed: int = 0, believe: str = "") -> None:
        if believe == "first":
            CallingConnection._only_result = _first_result  # type: ignore[method-assign,assignment]
        self.number = number
        self.random = random.Random(seed * 1000 + number)
        self.log = ledger.connect(dsn, actor=f"appender {number}", max_size=2, timeout=60)
        self.dsn = dsn
        self.connection: psycopg.Connection[Any] | None = None
        self.record = Path(record).open("a", encoding="utf-8")  # noqa: SIM115 (for the life of the process)
        self.versions: dict[str, int] = {}
        self.made = 0

    def run(self) -> None:
        """Append until stdin is closed, or has something to say."""
        acts = (
            [self.exact] * 6
            + [self.any] * 3
            + [self.many, self.block, self.again, self.transaction, self.move]
        )
        while not select.select([sys.stdin], [], [], 0)[0]:
            for _ in range(20):
                self.step(self.random.choice(acts))
            self.crowd()
        self.record.close()

    def step(self, act: Callable[[], list[Event]]) -> None:
        """One call, and what it said."""
        first = self.made
        said, events = told(act)
        self.record.write(json.dumps([said, [*range(first + 1, self.made + 1)], events]) + "\n")
        if said == "uncertain":
            self.versions.clear()
            time.sleep(0.01)

    def crowd(self) -> None:
        """Threads append at once, so that their appends share commits: what each of them was told.

        Half of the crowds append one event at a time to streams of their own: a group has a shorter way then.
        """
        single = self.random.random() < 0.5
        makers = [self.exact_one, self.any_one] if single else [self.exact_one, self.any_one, self.again_one]
        tasks = []
        for thread in range(CROWD):
            own, appends = f"own/{self.number}/crowd-{thread}", []
            for maker in self.random.choices(makers, k=5):
                append = self.append(
                    f"{own}-any" if single else self.shared(), 1 if single else self.random.choice([1, 1, 3])
                )
                appends.append((maker, self.made, append))
            tasks.append((own, appends))
        with ThreadPoolExecutor(CROWD) as threads:
            for lines in threads.map(lambda task: self.work(*task), tasks):
                self.record.writelines(json.dumps(line) + "\n" for line in lines)

    def work(self, stream: str, appends: Sequence[tuple[Any, int, Append]]) -> list[list[Any]]:
        """What one thread of the crowd was told of its appends, one after the other."""
        lines: list[list[Any]] = []
        for maker, number, append in appends:
            said, events = told(partial(maker, stream, number, append))
            lines.append([said, [number], events])
        return lines

    def exact_one(self, stream: str, _: int, append: Append) -> list[Event]:
        version = 0
        with suppress(StreamNotFound):
            version = self.log.read(stream)[-1].version
        append = append._replace(stream=stream, expected=Exact(version))
        return self.seen([append], self.log.append_all([append]))

    def any_one(self, _: str, __: int, append: Append) -> list[Event]:
        return self.seen([append], self.log.append_all([append]))

    def again_one(self, _: str, number: int, append: Append) -> list[Event]:
        append = append._replace(stream=f"new/{self.number}/{number}", expected=NEW)
        return self.repeated(append, f"{self.number}:{number}")

    # The ways to append

    def exact(self) -> list[Event]:
        """One event at a version that this process, alone on the stream, knows; half without a head."""
        stream = f"own/{self.number}/{self.random.randrange(20)}"
        if stream not in self.versions:
            with suppress(StreamNotFound):
                self.versions[stream] = self.log.read(stream)[-1].version
        append = self.append(
            stream, 1, Exact(self.versions.get(stream, 0)), head=stream.endswith(("1", "3", "5", "7", "9"))
        )
        events = self.seen([append], self.log.append_all([append]))
        self.versions[stream] = events[-1].version
        return events

    def any(self) -> list[Event]:
        append = self.append(self.shared(), 1)
        return self.seen([append], self.log.append_all([append]))

    def block(self) -> list[Event]:
        append = self.append(self.shared(), self.random.randint(2, 20))
        return self.seen([append], self.log.append_all([append]))

    def many(self) -> list[Event]:
        appends = [self.append(stream, 2) for stream in {self.shared() for _ in range(3)}]
        return self.seen(appends, self.log.append_all(appends))

    def again(self) -> list[Event]:
        """Under a command id, repeated until it is acknowledged or refused."""
        expected: Expected = NEW if self.random.random() < 0.5 else ANY
        append = self.append(f"new/{self.number}/{self.made}", self.random.choice([1, 3]), expected)
        return self.repeated(append, f"{self.number}:{self.made}")

    def repeated(self, append: Append, command: str) -> list[Event]:
        while True:
            try:
                return self.seen([append], self.log.append_all([append], command=command))
            except (AppendUncertain, ServerUnavailable):
                time.sleep(0.01)

    def transaction(self) -> list[Event]:
        """Joined to a transaction of the user's."""
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect(self.dsn, autocommit=True)
        append = self.append(self.shared(), self.random.choice([1, 1, 3]))
        with self.log.transaction(self.connection) as joined:
            joined.add(append)
        assert joined.appended is not None
        return self.seen([append], joined.appended)

    def move(self) -> list[Event]:
        switch = Switch(self.log, f"{self.number}-{self.random.randrange(5)}")
        self.made += 1
        value = f"{self.number}:{self.made}/1"
        moved = switch.move(self.random.choice(["on", "off"]), value=value)
        return [Event(switch.stream, moved.number, value, 0)]

    # What an append is

    def shared(self) -> str:
        return f"shared/{self.random.randrange(8)}"

    def append(self, stream: str, count: int, expected: Expected = ANY, *, head: bool = True) -> Append:
        self.made += 1
        wrong = self.random.random() < WRONG
        value = f"{self.number}:{self.made}/{count}{'!' if wrong else ''}"
        return Append(stream, [body_of(LampRead(value=value))] * count, expected, head=head)

    def seen(self, appends: Sequence[Append], appended: Appended) -> list[Event]:
        """The events of an append, as its answer places them."""
        position, events = appended.first_position, []
        for append in appends:
            before = appended.versions[append.stream] - len(append.events)
            for version, body in enumerate(append.events, before + 1):
                events.append(Event(append.stream, version, json.loads(body.data or "")["value"], position))
                position += 1
        assert position == appended.last_position + 1
        return events


def told(act: Callable[[], list[Event]]) -> tuple[str, list[Event]]:
    """What a call said, and the events that it acknowledged."""
    try:
        return "acknowledged", act()
    except (Refused, LedgerBusy, psycopg.IntegrityError, psycopg.errors.TransactionRollback):
        return "refused", []
    except (AppendUncertain, ServerUnavailable, psycopg.OperationalError):
        return "uncertain", []


def _first_result(connection: CallingConnection, _: Any) -> Any:
    """What the ledger did before: keep the first result, read the others and throw them away."""
    results = connection.wait(generators.execute(connection.pgconn))
    if results[0].status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(results[0])
    return results[0]


@contextmanager
def appending(folder: Path, ways: Sequence[str], **settings: Any) -> Iterator[list[Path]]:
    """A process for each way into the database while the block runs; the files of what they were told."""
    records = [folder / f"appender{number}" for number in range(len(ways))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = []
    for number, (dsn, record) in enumerate(zip(ways, records, strict=True)):
        words = json.dumps({"number": number, "dsn": dsn, "record": str(record)} | settings)
        command = [*python(), "-m", "tests.faults.appenders", words]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT))
    try:
        yield records
        for process in processes:
            assert process.poll() is None, "an appender ended before it was told to"
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(timeout=120) for process in processes] == [0] * len(ways)
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Faults(NamedTuple):
    """What the log and what the appenders were told do not agree on; all empty where all is well."""

    missing: list[Event]
    """Acknowledged, and not in the log."""
    elsewhere: list[Event]
    """Acknowledged at another place than where it is."""
    stored: list[str]
    """Refused, and in the log all the same."""
    torn: list[str]
    """Of an append some events only, or some twice."""
    gaps: list[str]
    """Streams whose versions are not 1, 2, 3, … as positions ascend."""


ROWS = """
COPY (SELECT stream, version, coalesce(data->>'value', data->'metadata'->>'value', ''), position
        FROM ledger.events WHERE stream ~ '^(own|shared|new|campaign_switch)/' ORDER BY position) TO STDOUT
"""


def judge(connection: psycopg.Connection[Any], records: Sequence[Path]) -> tuple[Faults, Counter[str]]:
    """Hold what the appenders were told against the log; and how often each was told what."""
    connection.execute("SET ROLE ledger_owner")
    faults = Faults([], [], [], [], [])
    there: dict[tuple[str, int], tuple[str, int]] = {}
    values: Counter[str] = Counter()
    heads: Counter[str] = Counter()
    with connection.cursor() as cursor, cursor.copy(ROWS) as copy:
        for row in copy.rows():
            stream, version, value, position = row
            heads[stream] += 1
            if heads[stream] != int(version):
                faults.gaps.append(f"{stream} {version} at {position}")
            there[stream, int(version)] = (value, int(position))
            values[value] += 1
    for value, count in values.items():
        if value and count != int(value.rstrip("!").split("/")[1]):
            faults.torn.append(f"{value}: {count}")
    stored = {tuple(map(int, value.split("/")[0].split(":"))): value for value in values if value}
    faults.stored.extend(value for value in values if value.endswith("!"))
    figures: Counter[str] = Counter()
    for number, record in enumerate(records):
        for line in record.read_text(encoding="utf-8").splitlines():
            said, tried, events = json.loads(line)
            figures[said] += 1
            parts = [stored[number, nth] for nth in tried if (number, nth) in stored]
            if said == "refused":
                faults.stored.extend(parts)
            elif parts and len(parts) < len(tried):
                faults.torn.append(f"{parts} of {len(tried)}")
            for event in map(Event._make, events):
                figures["events"] += 1
                found = there.get((event.stream, event.version))
                if found is None or found[0] != event.value:
                    (faults.elsewhere if event.value in values else faults.missing).append(event)
                elif event.position and found[1] != event.position:
                    faults.elsewhere.append(event)
    return faults, figures


if __name__ == "__main__":
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it speaks of every attempt
    Appender(**json.loads(sys.argv[1])).run()
