"""
Jobs at work: operations, the workers that run them, what closes parents, and what rescues the lost.

    registry = Registry()

    @registry.operation("ping")
    def ping(session, payload, *, emit): ...

    Worker(log, "mypipeline:registry", concurrency=4).run()
"""

from .operation import Emit, Operation, OperationResult, Payload, Registry, RetryLaterError
from .session import Session
from .taking import LogOffers, Offers, Taken
from .worker import Worker

__all__ = [
    "Emit",
    "LogOffers",
    "Offers",
    "Operation",
    "OperationResult",
    "Payload",
    "Registry",
    "RetryLaterError",
    "Session",
    "Taken",
    "Worker",
]
