"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .envelope import Envelope
from .routes import Routes

if TYPE_CHECKING:
    from .cluster import Cluster
    from .relay import Relay
else:  # each loads the client
    __getattr__ = lazily(__name__, {"cluster": "Cluster", "relay": "Relay"})

__all__ = ["Cluster", "Envelope", "Relay", "Routes"]
