"""Ports, identifiers and settings of the nodes. Each node is broker and controller."""

from __future__ import annotations

import base64
import json
import random
import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(11_000, 32_000)
"""Below those of outgoing connections on Linux and macOS: a node that restarts finds its own port free."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a cluster that outlive its processes. ports: by node, then by listener."""

    cluster: str
    ports: dict[int, dict[str, int]]

    @classmethod
    def fresh(cls, nodes: Sequence[int], listeners: Sequence[str]) -> Layout:
        """A new identifier, and ports that are free now."""
        names = [*listeners, "CONTROLLER"]
        free = iter(free_ports(len(nodes) * len(names)))
        return cls(unique(), {node: {name: next(free) for name in names} for node in nodes})

    @classmethod
    def read(cls, file: Path) -> Layout | None:
        """The layout that was kept; None if there is none."""
        if not file.exists():
            return None
        said = json.loads(file.read_text())
        return cls(said["cluster"], {int(node): ports for node, ports in said["ports"].items()})

    def write(self, file: Path) -> None:
        """Keep it, whole or not at all."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.rename(file)

    def addresses(self, listener: str) -> dict[int, str]:
        """HOST:PORT of each node."""
        return {node: f"{HOST}:{ports[listener]}" for node, ports in self.ports.items()}

    def settings(self, node: int, folder: Path, extra: Mapping[str, object]) -> dict[str, object]:
        """The properties of a node's configuration file."""
        listeners = [name for name in self.ports[node] if name != "CONTROLLER"]
        voters = self.addresses("CONTROLLER").items()
        return {
            "process.roles": "broker,controller",
            "node.id": node,
            "log.dirs": folder,
            "controller.quorum.voters": ",".join(f"{voter}@{address}" for voter, address in voters),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": listeners[0],
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports[node].items()),
            "advertised.listeners": ",".join(
                f"{name}://{HOST}:{self.ports[node][name]}" for name in listeners
            ),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in listeners)]
            ),
            **SMALL,
            **_copies(len(self.ports)),
            **QUICK,
            **extra,
        }


SMALL: Mapping[str, object] = {
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4 << 20,  # by default 128 MiB of the heap
    "log.index.size.max.bytes": 1 << 20,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
}
QUICK: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,  # a killed node registers again when its old session is over
}


def _copies(nodes: int) -> dict[str, object]:
    """How many copies each topic has, and how many of them a write needs."""
    copies = min(3, nodes)
    enough = max(1, copies - 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
    }


def unique() -> str:
    """A UUID as Kafka writes it: 22 characters of base64url. A leading "-" would read as an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else unique()


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens; all are held until the last is found, so none is given twice."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.SystemRandom().choice(PORTS)
            with suppress(OSError):
                held.enter_context(socket.create_server((HOST, port)))
                found.append(port)
        return found
