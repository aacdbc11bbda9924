"""The faults of a campaign, in phases: how often each is wanted in all, and how it is done."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.faults.crashes import kill
from tests.kafka.campaign import TOPIC, Campaign
from tests.kafka.members import GROUP, LEASE, PREFIX, Member

Lane = Mapping[str, int]
"""How often each fault happens, one after the other, in an order of chance."""
PHASES: Final[Sequence[Sequence[Lane]]] = (
    (
        {"relay killed": 270, "relay frozen": 50},
        {"consumer killed": 270, "consumer frozen": 50},
        {"duplicates injected": 60},
    ),
    (
        {
            "leader killed": 13, "coordinator killed": 13, "leader frozen": 13, "coordinator frozen": 13,
            "broker ended": 5, "two brokers killed": 2, "two brokers away for 60 s": 1,
            "server killed": 10, "broker's disk full": 2, "server's disk full": 2,
        },
        {"relay killed": 40, "consumer killed": 40},
    ),
)  # fmt: skip
"""Lanes of one phase run at the same time: what stands below the members is hurt once they had their turn."""
PATIENCE: Final = 90.0
"""Seconds within which the members go on, whatever was done to a broker or to the server."""


def wanted(share: float) -> list[list[dict[str, int]]]:
    """The phases with a share of the faults, each at least once."""
    return [
        [{name: max(1, round(many * share)) for name, many in lane.items()} for lane in one] for one in PHASES
    ]


class Faults:
    """Does to a campaign what the phases say; `done` counts it."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.done: Counter[str] = Counter()
        self._admin = AdminClient({"bootstrap.servers": campaign.broker.bootstrap, "log_level": 0})
        self._failed: list[BaseException] = []
        self._named: dict[str, Callable[[random.Random], None]] = {
            "relay killed": self._kill_relay,
            "relay frozen": self._freeze_relay,
            "consumer killed": self._kill_consumer,
            "consumer frozen": self._freeze_consumer,
            "duplicates injected": self._inject,
            "leader killed": lambda chance: self._kill_broker(chance, self._leader(chance)),
            "coordinator killed": lambda chance: self._kill_broker(chance, self._coordinator(chance)),
            "leader frozen": lambda chance: self._freeze_broker(self._leader(chance)),
            "coordinator frozen": lambda chance: self._freeze_broker(self._coordinator(chance)),
            "broker ended": self._end_broker,
            "two brokers killed": lambda chance: self._kill_two_brokers(chance, chance.uniform(1.0, 5.0)),
            "two brokers away for 60 s": lambda chance: self._kill_two_brokers(chance, 60.0),
            "server killed": self._kill_server,
        }
        if campaign.server_disk.can_be_full:
            self._named["broker's disk full"] = self._fill_disk_of_broker
            self._named["server's disk full"] = self._fill_disk_of_server

    def run(self, phases: Sequence[Sequence[Lane]]) -> None:
        """Do them; a fault that is not possible here, as a full disk without root, is left out."""
        for lanes in phases:
            threads = [threading.Thread(target=self._run, args=(lane,), daemon=True) for lane in lanes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._failed:
                raise self._failed[0]

    def _run(self, lane: Lane) -> None:
        chance = random.Random(self.campaign.chance.random())
        names = [name for name, many in lane.items() for _ in range(many) if name in self._named]
        chance.shuffle(names)
        try:
            for name in names:
                if self._failed:
                    return
                self._named[name](chance)
                self.done[name] += 1
                print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)  # pytest shows it with -s
                self.campaign.demand_running()
        except BaseException as error:
            error.add_note(f"after {dict(self.done)}")
            self._failed.append(error)

    def _until(self, is_so: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Whether something became so within some seconds."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    # Relays

    def _publishing(self, chance: random.Random) -> Member:
        """The elected relay, some time after it has published something, so probably within a block."""
        begin = self.campaign.published()
        self._until(lambda: self.campaign.published() > begin)
        time.sleep(chance.uniform(0.0, 0.4))
        return self.campaign.elected() or chance.choice(self.campaign.relays)

    def _kill_relay(self, chance: random.Random) -> None:
        self._publishing(chance).restart()

    def _freeze_relay(self, chance: random.Random) -> None:
        """Until another one publishes: then it goes on as a zombie. Some, until a transaction times out."""
        relay = self._publishing(chance)
        relay.freeze()
        time.sleep(2 * LEASE)
        begin = self.campaign.published()
        self._until(lambda: self.campaign.published() > begin)
        time.sleep(16.0 if chance.random() < 0.1 else chance.uniform(0.0, 0.5))
        relay.thaw()

    # Consumers

    def _handled(self, every: bool) -> None:
        """Wait until some partition's offset moved, or that of every one."""
        begin = self.campaign.places()

        def is_so() -> bool:
            moved = [offset > begin.get(place, 0) for place, offset in self.campaign.places().items()]
            return all(moved) and bool(moved) if every else any(moved)

        self._until(is_so)

    def _kill_consumer(self, chance: random.Random) -> None:
        self._handled(every=chance.random() < 0.5)
        time.sleep(chance.uniform(0.0, 0.3))
        chance.choice(self.campaign.consumers).restart()

    def _freeze_consumer(self, chance: random.Random) -> None:
        """Until others have its partitions: then it goes on as a zombie."""
        member = chance.choice(self.campaign.consumers)
        member.freeze()
        self._handled(every=True)
        member.thaw()

    def _inject(self, chance: random.Random) -> None:
        time.sleep(chance.uniform(2.0, 12.0))
        self._until(lambda: self.campaign.published() > 0)
        self.campaign.foreign.write_again(chance)

    # Brokers

    def _leader(self, chance: random.Random) -> int:
        """The node that leads a partition of events."""
        return chance.choice(self._leaders(TOPIC))

    def _coordinator(self, chance: random.Random) -> int:
        """The node that coordinates the relay's transactions, or the consumers' group."""
        topic, name = chance.choice(
            [("__transaction_state", f"pledger-relay-{PREFIX}"), ("__consumer_offsets", GROUP)]
        )
        leaders = self._leaders(topic)
        return leaders[_java_hash(name) % len(leaders)]

    def _leaders(self, topic: str) -> list[int]:
        """The node that leads each partition; a topic or a leader that is not yet there is waited for."""
        found: list[int] = []

        def are_there() -> bool:
            known = self._admin.list_topics(timeout=PATIENCE).topics.get(topic)
            partitions = {} if known is None else known.partitions
            found[:] = [partitions[number].leader for number in sorted(partitions)]
            return bool(found) and min(found) > 0

        assert self._until(are_there), f"topic {topic} has no leaders: {found}"
        return found

    def _kill_broker(self, chance: random.Random, node: int) -> None:
        """For a moment, or until others lead."""
        self.campaign.broker.kill(node)
        if chance.random() < 0.5:
            self._goes_on(f"while node {node} was dead")
        time.sleep(chance.uniform(0.0, 2.0))
        self.campaign.broker.start(node)

    def _freeze_broker(self, node: int) -> None:
        """Longer than its session, and until others lead: then it goes on as a zombie."""
        self.campaign.broker.freeze(node)
        time.sleep(4.5)
        self._goes_on(f"while node {node} was frozen")
        self.campaign.broker.thaw(node)
        self.campaign.broker.wait()

    def _goes_on(self, when: str) -> None:
        """Two brokers of three are enough: relays go on publishing."""
        begin = self.campaign.published()
        assert self._until(lambda: self.campaign.published() > begin), f"nothing was published {when}"

    def _end_broker(self, chance: random.Random) -> None:
        node = chance.choice(self.campaign.broker.nodes)
        self.campaign.broker.terminate(node)
        self.campaign.broker.start(node)

    def _kill_two_brokers(self, chance: random.Random, seconds: float) -> None:
        broker = self.campaign.broker
        nodes = chance.sample(list(broker.nodes), 2)
        for node in nodes:
            broker.kill(node)
        time.sleep(seconds)
        for node in nodes:
            broker.start(node, wait=False)
        broker.wait()

    def _fill_disk_of_broker(self, chance: random.Random) -> None:
        """Kafka ends a node that cannot write. It is started again where there is room again."""
        broker, node = self.campaign.broker, self._leader(chance)
        self.campaign.disks[node].fill()
        ended = self._until(lambda: not broker.is_running(node), 60.0)
        if ended:
            self._goes_on(f"while the disk of node {node} was full")
        self.campaign.disks[node].free()
        assert ended, f"node {node} goes on with a full disk"
        broker.kill(node)
        broker.start(node)

    # The server

    def _kill_server(self, chance: random.Random) -> None:
        kill(self.campaign.server)
        time.sleep(chance.uniform(0.0, 1.0))
        assert self.campaign.server.start_again()

    def _fill_disk_of_server(self, chance: random.Random) -> None:
        """Until the writer was refused. The server may have ended, where its log found no room."""
        campaign, refused = self.campaign, self.campaign.refused
        campaign.server_disk.fill()
        is_refused = self._until(lambda: campaign.refused > refused)
        time.sleep(chance.uniform(0.0, 3.0))
        campaign.server_disk.free()
        assert is_refused, "the server goes on with a full disk"
        assert campaign.server.start_again()


def _java_hash(text: str) -> int:
    """The hash by which Kafka finds the partition of a name, of which the sign is left out."""
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


def table(done: Mapping[str, int], asked: Mapping[str, int]) -> str:
    """How often each fault was asked for, and how often it happened."""
    lines = [f"{'fault':28} {'asked':>6} {'done':>6}"]
    lines += [f"{name:28} {many:6} {done.get(name, 0):6}" for name, many in asked.items()]
    return "\n".join(lines)
