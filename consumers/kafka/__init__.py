"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .envelope import Envelope
from .routes import Routes

if TYPE_CHECKING:
    from .cluster import Cluster
    from .consumer_group.consumer import Consumer
    from .consumer_group.handler import Consumed, consumer
    from .consumer_group.memory import Faults, MemoryBus
    from .feed import KafkaFeed
    from .hints import KafkaHints
    from .relay.relay import Relay
    from .relay.states import StateTopics, ViewTopics
    from .relay_verify import verify
else:  # each loads the client
    __getattr__ = lazily(
        __name__,
        {
            "cluster": "Cluster",
            "consumer_group.consumer": "Consumer",
            "feed": "KafkaFeed",
            "consumer_group.handler": "Consumed consumer",
            "hints": "KafkaHints",
            "consumer_group.memory": "Faults MemoryBus",
            "relay.relay": "Relay",
            "relay_verify": "verify",
            "relay.states": "StateTopics ViewTopics",
        },
    )

__all__ = [
    "Cluster",
    "Consumed",
    "Consumer",
    "Envelope",
    "Faults",
    "KafkaFeed",
    "KafkaHints",
    "MemoryBus",
    "Relay",
    "Routes",
    "StateTopics",
    "ViewTopics",
    "consumer",
    "verify",
]
