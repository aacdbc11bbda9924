"""Consumers: what acts on the log. A reactor answers it with events of its own."""

from .reactor import Answer, Reaction, Reactor

__all__ = ["Answer", "Reaction", "Reactor"]
