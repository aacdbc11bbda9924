"""
A campaign of faults: a writer, relays and consumers run while all that they stand on is killed and frozen.

    with Campaign(seed) as campaign:
        Faults(campaign).run(counts)
        campaign.heal()
        wrong = campaign.wrong()

What can happen to it is in faults.py, its processes are in members.py, and who judges is topics_oracle.py.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

import ledger
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.relay_verify import verify
from ledger import ServerUnavailable
from ledger.embedded import Embedded
from ledger.log.install import init
from tests.kafka.foreign import ForeignProducer
from tests.kafka.members import GROUP, PARTITIONS, PREFIX, Member
from tests.kafka.relaying import relay_all
from tests.kafka.small_disk import Disk
from tests.kafka.topics_oracle import Copy, faults_of_effects, faults_of_topics, ledger_rows, topic_copies
from tests.lamp import LampRead

TOPIC: Final = f"{PREFIX}.lamp"
STREAMS: Final = 40
MEMBERS: Final = 3
"""Relays, and consumers: so a kill costs an election or a rebalance, and no waiting for a start."""
PAUSE: Final = 0.016
"""Seconds between two appends of one to five events."""
SETTLED: Final = 240.0
"""Seconds for all that was written to arrive once the faults are over."""
EFFECTS: Final = """
CREATE TABLE effects (nr bigint GENERATED ALWAYS AS IDENTITY, position bigint, stream text, version bigint)"""


class Campaign:
    """Three brokers and a server, each on a disk of its own that may be full, members, and a writer."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.refused = 0
        """How often the writer was refused."""
        self._held: dict[int, int] = {}
        self._stop = threading.Event()
        self._stack = ExitStack()

    # From nothing to running, and to the end

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ledger-campaign-")))
            self.folder.chmod(0o711)  # the server's user must be able to enter it
            self._start_server(stack)
            self._start_brokers(stack)
            self._make_databases()
            stack.callback(self._end_members)
            self.relays = [self._member("relay", number) for number in range(MEMBERS)]
            self.consumers = [self._member("consumer", number) for number in range(MEMBERS)]
            self._writer = threading.Thread(target=self._write, daemon=True)
            self._writer.start()
            stack.callback(self._end_writer)
            self._ends = Consumer(
                {
                    "bootstrap.servers": self.broker.bootstrap, "group.id": "ends", "log_level": 0,
                    "socket.timeout.ms": 2000, "topic.metadata.refresh.interval.ms": 1000,
                }
            )  # fmt: skip
            stack.callback(self._ends.close)
            self.foreign = ForeignProducer(self.broker.bootstrap, TOPIC, PARTITIONS)
            stack.callback(self.foreign.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_server(self, stack: ExitStack) -> None:
        self.server_disk = stack.enter_context(Disk(self.folder / "server"))
        (self.folder / "server").chmod(0o711)
        self.server = Embedded(self.folder / "server" / "home", durable=True)
        stack.callback(self.server.release)
        stack.callback(lambda: self.server.stop(immediate=True))
        self.server.acquire()

    def _start_brokers(self, stack: ExitStack) -> None:
        root = self.folder / "kafka"
        self.disks = {node: stack.enter_context(Disk(root / f"node{node}")) for node in (1, 2, 3)}
        self.broker = stack.enter_context(Broker(nodes=3, root=root))
        for node in self.broker.nodes:
            stack.callback(self.broker.kill, node)

    def _make_databases(self) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE log")
            connection.execute("CREATE DATABASE effects")
        self.dsn, self.effects = self.server.dsn("log"), self.server.dsn("effects")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            init(connection)
        with psycopg.connect(self.effects, autocommit=True) as connection:
            connection.execute(EFFECTS)

    def _member(self, kind: str, number: int) -> Member:
        dsn = self.dsn if kind == "relay" else self.effects
        return Member(kind, number, dsn, self.broker.bootstrap, self.folder)

    def _end_members(self) -> None:
        for member in self.members:
            member.kill()

    def _end_writer(self) -> None:
        self._stop.set()
        self._writer.join(60)

    def _write(self) -> None:
        """Append to many streams, in small steps; an append whose outcome is unknown is not repeated."""
        chance, number = random.Random(self.chance.random()), 0
        while not self._stop.is_set():
            with suppress(ServerUnavailable), ledger.connect(self.dsn, actor="campaign") as log:
                while not self._stop.wait(PAUSE):
                    number += 1
                    many = chance.randint(1, 5)
                    events = [LampRead(value=f"{number}.{one}") for one in range(many)]
                    log.append(f"lamp/{chance.randrange(STREAMS)}", *events)
            self.refused += not self._stop.is_set()
            self._stop.wait(0.2)

    # How it is at the moment

    @property
    def members(self) -> list[Member]:
        """Those that were started."""
        return [*getattr(self, "relays", ()), *getattr(self, "consumers", ())]

    def demand_running(self) -> None:
        """Raise where a member has ended by itself."""
        for member in self.members:
            member.demand_running()

    def elected(self) -> Member | None:
        """The relay that publishes, as far as the ledger knows."""
        found = self._asked(self.dsn, "SELECT worker FROM ledger.elections WHERE until > clock_timestamp()")
        pids = {int(worker.split("/")[1]) for (worker,) in found}
        return next((relay for relay in self.relays if relay.pid in pids), None)

    def published(self) -> int:
        """How much the partitions hold, or held when their leaders answered."""
        for number in range(PARTITIONS):
            try:
                end = self._ends.get_watermark_offsets(TopicPartition(TOPIC, number), 2.0)[1]
                self._held[number] = max(end, self._held.get(number, 0))
            except KafkaException:
                with suppress(KafkaException):  # its leader is gone: learn of another one
                    self._ends.list_topics(TOPIC, 2.0)
        return sum(self._held.values())

    def places(self) -> dict[int, int]:
        """Where the consumers go on in each partition; nothing while the server is away."""
        query = "SELECT partition, next_offset FROM consumers.offsets"
        return dict(self._asked(self.effects, query))

    def _asked(self, dsn: str, query: str) -> list[Any]:
        with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
            return connection.execute(query).fetchall()
        return []

    # Afterwards

    def heal(self) -> None:
        """End the writer, and wait until all that was written has arrived."""
        self._end_writer()
        self.broker.wait()
        self.rows = ledger_rows(self.dsn)
        deadline = time.monotonic() + SETTLED
        while self._asked(self.effects, "SELECT count(*) FROM effects")[0][0] < len(self.rows):
            self.demand_running()
            assert time.monotonic() < deadline, f"not all has arrived: {self._outputs()}"
            time.sleep(0.2)

    def _outputs(self) -> str:
        return "\n".join(
            f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in self.folder.glob("*.out")
        )

    def rebalances(self) -> int:
        """How often the group was rebalanced: its generation, as a further member is told it."""
        client = KafkaConsumer(
            TOPIC, bootstrap_servers=self.broker.bootstrap, group_id=GROUP, enable_auto_commit=False,
            partition_assignment_strategy=(CooperativeStickyAssignor,),
        )  # fmt: skip
        try:
            while client.group_metadata().generation_id < 0:
                client.poll(timeout_ms=200)
            return int(client.group_metadata().generation_id)
        finally:
            client.close()

    def wrong(self) -> list[str]:
        """What is wrong, as sentences. A foreign producer's records count apart, but each must be there."""
        copies, written = topic_copies(self.broker.bootstrap, PREFIX), self.foreign.written
        own = [copy for copy in copies if (copy.place[1], copy.offset) not in written]
        found = faults_of_topics(self.rows, own) + faults_of_effects(self.rows, self.effects)
        if len(copies) - len(own) != len(written):
            found.append(f"{len(written)} records of another producer: {len(copies) - len(own)} are there")
        if parked := self._asked(self.effects, "SELECT count(*) FROM consumers.parked")[0][0]:
            found.append(f"{parked} events are parked, and no handler failed")
        return found + self._wrong_proofs(copies)

    def _wrong_proofs(self, copies: list[Copy]) -> list[str]:
        """`relay verify` names the first record that another wrote, and proves a replay."""
        cluster, replayed = Cluster(self.broker.bootstrap), f"{PREFIX}-again"
        with ledger.connect(self.dsn, actor="campaign") as log:
            named = verify(log, cluster, PREFIX).difference
            relay_all(log, cluster, replayed)
            again = verify(log, cluster, replayed).difference
        found = faults_of_topics(self.rows, topic_copies(self.broker.bootstrap, replayed))
        if again is not None:
            found.append(f"the replay differs: {again}")
        if named is None and self.foreign.written:
            found.append("verify did not see the records of another producer")
        if named is not None:
            first = min(
                (offset for part, offset in self.foreign.written if part == named.partition), default=-1
            )
            if first != named.offset:
                found.append(f"verify names {named}; the first record of another producer is at {first}")
        return found
