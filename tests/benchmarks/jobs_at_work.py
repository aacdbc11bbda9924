"""The processes of `dev.py bench jobs`: `take_part`, with the arguments work|submit WAY DSN [SLOTS]."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ledger
from consumers.jobs import OperationResult, Registry, Worker
from ledger.jobs import Jobs

registry = Registry()


@registry.operation("nothing")
def nothing(session: Any, payload: Any, *, emit: Any) -> None:
    """Do nothing."""


@registry.operation("clock")
def clock(session: Any, payload: Any, *, emit: Any) -> OperationResult:
    """Say when it began."""
    return OperationResult({"began": time.time()})


def theirs(dsn: str, connector: str) -> Any:
    """Procrastinate on a database, with a task that does nothing."""
    import procrastinate

    app = procrastinate.App(connector=getattr(procrastinate, connector)(conninfo=dsn))

    @app.task(name="nothing")
    async def nothing() -> None: ...

    return app


def work(way: str, dsn: str, slots: int) -> None:
    """Be a worker until SIGTERM."""
    if way == "procrastinate":
        theirs(dsn, "PsycopgConnector").run_worker(concurrency=slots, shutdown_graceful_timeout=1)
        return
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ledger.connect(dsn, create=False) as log:
        Worker(log, "tests.benchmarks.jobs_at_work:registry", concurrency=slots).run(stop)


def submit(way: str, dsn: str) -> None:
    """For each number that comes on a line, submit so many jobs."""
    if way == "procrastinate":
        app = theirs(dsn, "SyncPsycopgConnector")
        with app.open():
            _submit(app.tasks["nothing"].defer)
        return
    with ledger.connect(dsn, create=False) as log:
        jobs = Jobs(log)
        _submit(lambda: jobs.submit("nothing"))


def _submit(one: Callable[[], Any]) -> None:
    for line in sys.stdin:
        for _ in range(int(line)):
            one()


def take_part() -> None:
    """Be what the arguments say."""
    role, way, dsn, *slots = sys.argv[1:]
    if role == "work":
        work(way, dsn, int(slots[0]))
    else:
        submit(way, dsn)
