"""
A campaign of faults: a writer, relays and consumers run while all that they stand on is killed and frozen.

    with Campaign(seed) as campaign:
        campaign.run(seconds)
        campaign.heal()
        wrong = campaign.faults()

`python -m tests.kafka.campaign relay …` and `… consume …` are its processes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

import ledger
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from ledger import Recorded, ServerUnavailable
from ledger.embedded import throwaway
from ledger.log.install import init
from tests.faults.crashes import kill
from tests.kafka.topics_oracle import faults_of_effects, faults_of_topics, ledger_rows, topic_copies
from tests.lamp import LampRead

ROOT = Path(__file__).parents[2]
PREFIX, GROUP = "campaign", "effects"
STREAMS, PARTITIONS, LEASE = 40, 3, 2.0
SETTLED = 240.0
"""Seconds for all that was written to arrive once the faults are over."""
EFFECTS = """
CREATE TABLE effects (nr bigint GENERATED ALWAYS AS IDENTITY, position bigint, stream text, version bigint)"""
EFFECT = "INSERT INTO effects (position, stream, version) VALUES (%s, %s, %s)"
Fault = Callable[[], None]


class Member:
    """A process of a kind (`relay`, `consume`), which is started again after it was killed."""

    def __init__(self, words: Sequence[str], output: Path) -> None:
        self.words, self.output = words, output
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.kafka.campaign", *self.words]
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def demand_running(self) -> None:
        """No member may end by itself: each outage is to be waited for."""
        if (code := self.process.poll()) is not None:
            said = self.output.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{' '.join(self.words[:1])} ended with {code}:\n{said}")


class Campaign:
    """Three brokers, a server, members, and a writer; `done` counts the faults by name."""

    def __init__(self, seed: int, *, relays: int = 2, consumers: int = 2) -> None:
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.written = 0
        self._counts = {"relay": relays, "consume": consumers}
        self._stop = threading.Event()
        self._stack = ExitStack()

    # From nothing to running, and to the end

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ledger-campaign-")))
            self.server = stack.enter_context(throwaway(durable=True))
            self.broker = stack.enter_context(Broker(nodes=3))
            self.dsn = self._database("log")
            self.effects = self._database("effects")
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                init(connection)
            with psycopg.connect(self.effects, autocommit=True) as connection:
                connection.execute(EFFECTS)
            self.members: dict[str, list[Member]] = {kind: [] for kind in self._counts}
            stack.callback(self._end_members)
            for kind, many in self._counts.items():
                self.members[kind] = [self._member(kind, number) for number in range(many)]
            self._writer = threading.Thread(target=self._write, daemon=True)
            self._writer.start()
            stack.callback(self._end_writer)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _database(self, name: str) -> str:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
        return self.server.dsn(name)

    def _member(self, kind: str, number: int) -> Member:
        dsn = self.dsn if kind == "relay" else self.effects
        return Member([kind, dsn, self.broker.bootstrap], self.folder / f"{kind}{number}.out")

    def _end_members(self) -> None:
        for members in self.members.values():
            for member in members:
                member.kill()

    def _end_writer(self) -> None:
        self._stop.set()
        self._writer.join(60)

    def _write(self) -> None:
        """Append to many streams, in small steps; an append whose outcome is unknown is not repeated."""
        chance = random.Random(self.chance.random())
        while not self._stop.is_set():
            with suppress(ServerUnavailable), ledger.connect(self.dsn, actor="campaign") as log:
                while not self._stop.wait(0.004):
                    stream = f"lamp/{chance.randrange(STREAMS)}"
                    events = [LampRead(value=self.written + one) for one in range(chance.randint(1, 5))]
                    log.append(stream, *events)
                    self.written += len(events)
            self._stop.wait(0.2)

    # Faults

    def run(self, seconds: float, *, each: bool) -> None:
        """Faults, one after the other, for so long. each: begin with one of each kind."""
        named: dict[str, Fault] = {
            "relay killed": lambda: self._kill_member("relay"),
            "relay frozen": lambda: self._freeze_member("relay", 2.5 * LEASE),
            "broker killed": self._kill_broker,
            "broker frozen": self._freeze_broker,
            "broker ended": self._end_broker,
            "two brokers killed": self._kill_two_brokers,
            "server killed": self._kill_server,
        }
        weights = [8, 3, 2, 2, 1, 1, 2]
        if self.members["consume"]:
            named |= {
                "consumer killed": lambda: self._kill_member("consume"),
                "consumer frozen": lambda: self._freeze_member("consume", 9.0),
            }
            weights += [8, 2]
        deadline = time.monotonic() + seconds
        first = list(named) if each else []
        while time.monotonic() < deadline:
            chosen = first.pop(self.chance.randrange(len(first))) if first else None
            name = chosen or self.chance.choices(list(named), weights)[0]
            named[name]()
            self.done[name] += 1
            self._demand_running()
            time.sleep(self.chance.uniform(0.2, 1.5))

    def _demand_running(self) -> None:
        for members in self.members.values():
            for member in members:
                member.demand_running()

    def _kill_member(self, kind: str) -> None:
        member = self.chance.choice(self.members[kind])
        member.kill()
        member.start()

    def _freeze_member(self, kind: str, seconds: float) -> None:
        """Longer than its lease or session: it goes on as a zombie."""
        member = self.chance.choice(self.members[kind])
        member.signal(signal.SIGSTOP)
        time.sleep(seconds)
        member.signal(signal.SIGCONT)

    def _kill_broker(self) -> None:
        node = self.chance.choice(self.broker.nodes)
        self.broker.kill(node)
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.broker.start(node)

    def _freeze_broker(self) -> None:
        """Longer than its session with the controllers: others lead meanwhile."""
        node = self.chance.choice(self.broker.nodes)
        self.broker.freeze(node)
        time.sleep(4.5)
        self.broker.thaw(node)
        self.broker.wait()

    def _end_broker(self) -> None:
        node = self.chance.choice(self.broker.nodes)
        self.broker.terminate(node)
        self.broker.start(node)

    def _kill_two_brokers(self) -> None:
        nodes = self.chance.sample(list(self.broker.nodes), 2)
        for node in nodes:
            self.broker.kill(node)
        time.sleep(self.chance.uniform(1.0, 5.0))
        for node in nodes:
            self.broker.start(node, wait=False)
        self.broker.wait()

    def _kill_server(self) -> None:
        kill(self.server)
        time.sleep(self.chance.uniform(0.0, 1.0))
        assert self.server.start_again()

    # Afterwards

    def heal(self) -> None:
        """End the writer, and wait until all that was written has arrived."""
        self._end_writer()
        self.broker.wait()
        self.rows = ledger_rows(self.dsn)
        last = self.rows[-1].position
        deadline = time.monotonic() + SETTLED
        while not self._has_arrived(last):
            self._demand_running()
            assert time.monotonic() < deadline, f"not all has arrived: {self._outputs()}"
            time.sleep(0.2)

    def _has_arrived(self, last: int) -> bool:
        with psycopg.connect(self.effects, autocommit=True) as connection:
            effects = connection.execute("SELECT count(*) FROM effects").fetchone()
        if self.members["consume"]:
            return bool(effects and effects[0] >= len(self.rows))
        copies = topic_copies(self.broker.bootstrap, PREFIX)
        return any(int(copy.headers["ce_id"]) == last for copy in copies)

    def _outputs(self) -> str:
        return "\n".join(
            f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in self.folder.glob("*.out")
        )

    def faults(self) -> list[str]:
        """What the oracle finds."""
        wrong = faults_of_topics(self.rows, topic_copies(self.broker.bootstrap, PREFIX))
        return wrong + (faults_of_effects(self.rows, self.effects) if self.members["consume"] else [])


# The processes


def relay(dsn: str, bootstrap: str) -> None:
    from consumers.kafka.relay.relay import Relay

    while True:  # a relay that starts while the server is away is started again by whoever watches it
        with suppress(ServerUnavailable), ledger.connect(dsn, actor="relay") as log:
            cluster = Cluster(bootstrap)
            Relay(log, cluster, prefix=PREFIX, partitions=PARTITIONS, lease=LEASE).run(threading.Event())
        time.sleep(0.2)


def consume(dsn: str, bootstrap: str) -> None:
    from consumers.kafka import Consumer, consumer

    @consumer(topics=[f"{PREFIX}.lamp"], group=GROUP, batch=True)
    def write_effects(events: Sequence[Recorded], transaction: psycopg.Connection[Any]) -> None:
        rows = [(event.position, event.stream, event.version) for event in events]
        transaction.cursor().executemany(EFFECT, rows)

    client = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    Consumer(Cluster(bootstrap), write_effects, dsn, idle=5.0, client=client).run()


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    processes: dict[str, Callable[..., Any]] = {"relay": relay, "consume": consume}
    processes[kind](*words)
    os._exit(0)
