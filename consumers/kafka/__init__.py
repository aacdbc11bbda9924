"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .envelope import Envelope
from .routes import Routes

if TYPE_CHECKING:
    from .cluster import Cluster
    from .feed import KafkaFeed
    from .hints import KafkaHints
    from .relay import Relay
    from .relay_verify import verify
    from .states import StateTopics, ViewTopics
else:  # each loads the client
    __getattr__ = lazily(
        __name__,
        {
            "cluster": "Cluster",
            "feed": "KafkaFeed",
            "hints": "KafkaHints",
            "relay": "Relay",
            "relay_verify": "verify",
            "states": "StateTopics ViewTopics",
        },
    )

__all__ = [
    "Cluster",
    "Envelope",
    "KafkaFeed",
    "KafkaHints",
    "Relay",
    "Routes",
    "StateTopics",
    "ViewTopics",
    "verify",
]
