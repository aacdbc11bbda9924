"""Consumers: what acts on the log. A reactor answers it with events of its own."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

from .reactor import Answer, Reaction, Reactor

if TYPE_CHECKING:
    from .pipelines import readiness
    from .timeouts import Timeouts
else:  # each loads a domain
    __getattr__ = lazily(__name__, {"pipelines": "readiness", "timeouts": "Timeouts"})

__all__ = ["Answer", "Reaction", "Reactor", "Timeouts", "readiness"]
