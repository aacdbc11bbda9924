"""What a cluster is: its brokers with their versions, and the topics below a prefix."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import Cluster


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """One broker. version: of Kafka, as far as its protocol tells it, such as 4.3."""

    id: int
    address: str
    version: str


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """One topic. copies: of each record. short: partitions with too few copies in step."""

    topic: str
    partitions: int
    copies: int
    short: int


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster that can be used."""

    cluster: str
    brokers: list[BrokerSeen]
    topics: list[TopicSeen]


def survey(cluster: Cluster, prefix: str) -> Survey:
    """Look at a cluster, and at the topics `PREFIX.…`. Raises KafkaUnavailable with the reason."""
    with cluster.admin() as admin:
        said = admin.describe_cluster()
        brokers = [
            BrokerSeen(
                each["broker_id"],
                f"{each['host']}:{each['port']}",
                ".".join(map(str, admin.get_broker_version_data(each["broker_id"]).broker_version)),
            )
            for each in sorted(said["brokers"], key=lambda each: int(each["broker_id"]))
            if not each.get("is_fenced")
        ]
        names = sorted(name for name in admin.list_topics() if name.startswith(f"{prefix}."))
        topics = [_seen(each) for each in (admin.describe_topics(names) if names else [])]
    return Survey(said["cluster_id"], brokers, sorted(topics, key=lambda topic: topic.topic))


def _seen(said: dict[str, object]) -> TopicSeen:
    partitions = said["partitions"]
    assert isinstance(partitions, list)
    copies = [len(each["replica_nodes"]) for each in partitions]
    short = sum(len(each["isr_nodes"]) < len(each["replica_nodes"]) for each in partitions)
    return TopicSeen(str(said["name"]), len(partitions), min(copies, default=0), short)
