"""
Running jobs: operations, the workers that run them, what closes parent jobs, and what requeues the jobs of
dead workers.

    registry = Registry()

    @registry.operation("ping")
    def ping(session, payload, *, emit): ...

    Worker(log, "mypipeline:registry", concurrency=4).run()
"""

from .context import OperationContext
from .operation import Emit, Operation, OperationResult, Payload, Registry, RetryLaterError
from .reaper import Reaper
from .scheduler import Scheduler
from .submitter import submit_when
from .worker import Worker

__all__ = [
    "Emit",
    "Operation",
    "OperationContext",
    "OperationResult",
    "Payload",
    "Reaper",
    "Registry",
    "RetryLaterError",
    "Scheduler",
    "Worker",
    "submit_when",
]
