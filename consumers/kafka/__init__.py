"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .envelope import Envelope
from .routes import Routes

if TYPE_CHECKING:
    from .cluster import Cluster
    from .consumer_loop import Consumer
    from .handler import Consumed, consumer
    from .memory import Faults, MemoryBus
    from .relay import Relay
else:
    __getattr__ = lazily(
        __name__,
        {
            "cluster": "Cluster",
            "consumer_loop": "Consumer",
            "handler": "Consumed consumer",
            "memory": "Faults MemoryBus",
            "relay": "Relay",
        },
    )

__all__ = [
    "Cluster",
    "Consumed",
    "Consumer",
    "Envelope",
    "Faults",
    "MemoryBus",
    "Relay",
    "Routes",
    "consumer",
]
