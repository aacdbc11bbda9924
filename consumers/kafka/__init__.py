"""Kafka: the relay publishes the log as topics; consumers apply their records, each once."""

from .envelope import Envelope
from .routes import Routes

__all__ = ["Envelope", "Routes"]
