"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .envelope import Envelope
from .routes import Routes

if TYPE_CHECKING:
    from .cluster import Cluster
    from .consumer_loop import Consumer
    from .feed import KafkaFeed
    from .handler import Consumed, consumer
    from .hints import KafkaHints
    from .memory import Faults, MemoryBus
    from .relay import Relay
    from .relay_verify import verify
    from .states import StateTopics, ViewTopics
else:  # each loads the client
    __getattr__ = lazily(
        __name__,
        {
            "cluster": "Cluster",
            "consumer_loop": "Consumer",
            "feed": "KafkaFeed",
            "handler": "Consumed consumer",
            "hints": "KafkaHints",
            "memory": "Faults MemoryBus",
            "relay": "Relay",
            "relay_verify": "verify",
            "states": "StateTopics ViewTopics",
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
