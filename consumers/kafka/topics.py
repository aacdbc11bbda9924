"""Topics: created when they are first needed, and checked against what the relay knows of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError

from ledger import KafkaUnavailable, TopicMismatch

from .cluster import Cluster

PARTITIONS: Final = 12
"""Partitions of a new topic of events. Their number is for ever: another one would move the keys."""
EVENTS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": "1048588",
}
"""Settings of topics of events: kept for ever, with the broker's times (the ledger's is in `ce_time`)."""
COMPACTED: Final = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
"""Settings of topics that hold the last value of each key."""


CERTAIN: Final = 2.0
"""Seconds for which a topic must be missing: a broker that was away learns late of topics that are there."""
VISIBLE: Final = 30.0
"""Seconds that a new topic may take to be seen."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it. id: Kafka gives each topic a new one, also under a former name."""

    name: str
    id: str
    partitions: int


class Topics:
    """The topics of a cluster. partitions: of new ones; replicas: of new ones, -1 as the brokers are set."""

    def __init__(self, cluster: Cluster, *, partitions: int = PARTITIONS, replicas: int = -1) -> None:
        self.cluster, self.partitions, self.replicas = cluster, partitions, replicas

    def found(self, names: Collection[str]) -> dict[str, Topic]:
        """Those of the topics that are there, by name. Raises KafkaUnavailable."""
        if not names:
            return {}
        with self.cluster.admin() as admin:
            return _found_within(admin, names, CERTAIN)

    def below(self, prefix: str) -> dict[str, Topic]:
        """All topics whose names begin with a prefix and a dot. Raises KafkaUnavailable."""
        with self.cluster.admin() as admin:
            names = [name for name in admin.list_topics() if name.startswith(f"{prefix}.")]
            return _found(admin, names) if names else {}

    def ensure(
        self, name: str, settings: Mapping[str, str] = EVENTS, partitions: int | None = None
    ) -> tuple[Topic, bool]:
        """The topic, created where it is missing, and whether it was. Raises KafkaUnavailable, TopicMismatch.

        One that is there is checked: its settings must keep what they should.
        """
        with self.cluster.admin() as admin:
            topic = _found(admin, [name]).get(name)
            if topic is not None:
                _check_settings(admin, name, settings)
                return topic, False
            wanted = {
                "num_partitions": partitions or self.partitions,
                "replication_factor": self.replicas,
                "configs": dict(settings),
            }
            try:
                admin.create_topics({name: wanted})
            except TopicAlreadyExistsError:  # another one made it just now
                pass
            except KafkaError as error:
                raise KafkaUnavailable(f"topic {name} cannot be created: {error}") from error
            if (topic := _found_within(admin, [name], VISIBLE).get(name)) is None:
                raise KafkaUnavailable(f"topic {name} was created, and cannot be seen after {VISIBLE:g} s")
            return topic, True

    def check(self, known: Iterable[Topic], settings: Mapping[str, str] = EVENTS) -> None:
        """Check that topics are those that are known. Raises TopicMismatch, KafkaUnavailable."""
        known = list(known)
        found = self.found([topic.name for topic in known])
        for topic in known:
            _check_topic(topic, found.get(topic.name))
        if known:
            with self.cluster.admin() as admin:
                for topic in known:
                    _check_settings(admin, topic.name, settings)


def _check_topic(known: Topic, found: Topic | None) -> None:
    again = "publish the log anew under another prefix: pledger relay replay --prefix NEW"
    if found is None:
        raise TopicMismatch(known.name, "the topic was deleted since the relay's checkpoint", again)
    if found.id != known.id:
        raise TopicMismatch(known.name, "the topic was deleted and made anew since the checkpoint", again)
    if found.partitions != known.partitions:
        differs = f"the topic has {found.partitions} partitions, but had {known.partitions}"
        raise TopicMismatch(known.name, f"{differs}: keys would move to others", again)


def _check_settings(admin: Any, name: str, settings: Mapping[str, str]) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    found = admin.describe_configs([resource], config_filter="all")["topic"][name]
    for setting, wanted in settings.items():
        value = str(found[setting]["value"])
        enough = setting == "max.message.bytes" and int(value) >= int(wanted)
        if value != wanted and not enough:
            remedy = f"kafka-configs --alter --topic {name} --add-config {setting}={wanted}"
            raise TopicMismatch(name, f"the topic has {setting}={value}, which needs to be {wanted}", remedy)


def _found_within(admin: Any, names: Collection[str], seconds: float) -> dict[str, Topic]:
    """Those of the topics that are there. What is missing is asked for again for so long."""
    deadline = time.monotonic() + seconds
    while len(found := _found(admin, names)) < len(set(names)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _found(admin: Any, names: Collection[str]) -> dict[str, Topic]:
    rows = admin.describe_topics(list(names))
    return {
        row["name"]: Topic(row["name"], str(row["topic_id"]), len(row["partitions"]))
        for row in rows
        if row["error_code"] == 0
    }
