"""The context of an operation: its job, its ledger, and the one transaction that may end it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NoReturn

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger
from ledger.domain.claimant import Claimant
from ledger.errors import ClaimLost, GuardFailed, WorkStopped
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.jobs import job_within
from ledger.jobs.work import OpenWork
from ledger.log import sql
from ledger.log.append import Append
from ledger.log.connection import opened, prepare_nothing_behind_a_proxy
from ledger.log.dsn import resolve
from ledger.log.server_errors import ledger_errors

from .messages import Prepared, Task

_log = logging.getLogger(__name__)
_OVER: Final = "it was cancelled, or given to another worker"

Connection = psycopg.Connection[Any]
Place = str | Connection | None
"""Where rows are written: a DSN, a connection of the user's, or None for the ledger's database."""


class OperationTransaction:
    """An open transaction. result, progress (progress_current, …_total): kept in the fact of the end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.result: dict[str, Any] = {}
        self.progress: dict[str, int | None] = {}

    def execute(self, statement: Any, parameters: Any = None) -> psycopg.Cursor[Any]:
        """Execute a statement in the transaction."""
        return self.connection.execute(statement, parameters)


class OperationContext:
    """The claim under which an operation runs; its first argument.

    job_id: of the job, also in a batch of it; batch: the number of the batch, None in the job itself.
    attempt: from 1. recorded: its end is recorded already, in a transaction with its rows.
    """

    def __init__(self, task: Task, connect: Callable[[], Ledger]) -> None:
        self.task, self._connect = task, connect
        self.job_id, self.batch, self.attempt = task.job, task.batch, task.attempt
        self.prepared: list[Prepared] = []
        self.recorded = False
        self._stopped: str | None = None
        self._work: OpenWork[Any, Any] | None = None
        self._emit_lock = threading.Lock()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, on a connection of this process."""
        return self._connect()

    @property
    def claimant(self) -> Claimant:
        """The claimant, for `claiming_for` in other processes; in this process it is set."""
        return Claimant(self.task.stream, self.task.token)

    @property
    def stopped(self) -> str | None:
        """Why the operation must stop; None while it need not. A cheap read."""
        return self._stopped

    def stop(self, reason: str) -> None:
        """Note that the claim is over."""
        self._stopped = self._stopped or reason

    def lost(self, reason: str = _OVER) -> NoReturn:
        """The claim is over. Raises WorkStopped."""
        self.stop(reason)
        raise WorkStopped(self.task.stream, self._stopped or reason)

    def check(self) -> None:
        """Raise WorkStopped once the job was cancelled or its lease lost."""
        if self._stopped is not None:
            raise WorkStopped(self.task.stream, self._stopped)

    def submit(self, operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Submit a job together with the outcome of this operation; its id. No job if the operation fails.

        fields: as in `Jobs.submit`, but unique; of a deferred job they are its children. Raises BadInput.
        """
        job = job_within(operation, payload, **fields).id
        fields.pop("id", None)
        self.prepared.append(Prepared(job, operation, dict(payload or {}), fields))
        return job

    def opened(self) -> OpenWork[Any, Any]:
        """The stream of this claim, opened as it is now."""
        if self.batch is None:
            return self.ledger.load(OpenJob, self.job_id)
        return self.ledger.load(OpenBatch, self.job_id, self.batch)

    # Emit

    def emit(
        self,
        event: str,
        message: str | None = None,
        fields: Mapping[str, Any] | None = None,
        level: str = "info",
    ) -> None:
        """As in `operation.Emit`."""
        self.check()
        if self.recorded:
            _log.warning("%s has ended already; this was not recorded: %s", self.task.stream, event)
            return
        try:
            values = dict(fields or {})
            progress = {
                name: int(values.pop(f"_{name}"))
                for name in ("progress_current", "progress_total")
                if values.get(f"_{name}") is not None
            }
            with self._emit_lock:
                self._report(event, message=message, fields=values, level=level, **progress)
        except (GuardFailed, ClaimLost):
            self.lost()
        except Exception:  # spec S1-15: it never fails the operation
            _log.exception("%s: what was emitted could not be recorded: %s", self.task.stream, event)

    def _report(self, event: str, **fields: Any) -> None:
        """Record a report under the claim. The stream is opened again only where another writer wrote."""
        work, self._work = self._work or self._claimed(), None
        work.report(event, **fields)
        expected = work.next_version - 1
        appended = self.ledger.append_all([work.under_lease(self.task.token)])
        if appended.version == expected:
            work.settle(appended.recorded_at)
            self._work = work

    def _claimed(self) -> OpenWork[Any, Any]:
        """The stream of this claim. Raises WorkStopped where that is over."""
        opened = self.opened()
        try:
            opened.check_lease(self.task.token)
        except ClaimLost:
            self.lost()
        return opened

    # Rows and end in one transaction

    @contextmanager
    def transaction(self, connection: Place = None) -> Iterator[OperationTransaction]:
        """A transaction whose rows commit together with the end of this batch or job, or neither does.

            with session.transaction() as writing:
                writing.execute("INSERT INTO counts …", […])
                writing.result["rows"] = 20

        connection: one of the user's own, or a DSN, to the ledger's database; by default, the ledger's. Jobs
        that were submitted before are recorded with it. It is allowed once and ends the work: what the
        operation returns is ignored. Raises WorkStopped where the claim is over: the rows are rolled back. An
        exception in the block rolls them back too, and ends nothing.
        """
        self.check()
        if self.recorded:
            raise BadInput(
                f"{self.task.stream} has ended in a transaction already: an operation can have only one"
            )
        with connected(self.ledger, connection) as own:
            try:
                with self.ledger.transaction(own) as joined:
                    writing = OperationTransaction(own)
                    yield writing
                    for append in self._ends(writing):
                        joined.add(append)
            except GuardFailed as error:
                if error.stream != self.task.stream:
                    raise
                self.lost()
        self.recorded = True
        self.prepared.clear()

    def _ends(self, writing: OperationTransaction) -> list[Any]:
        """The appends that end this work, under its claim."""
        self.check()
        work = self._claimed()
        if isinstance(work, OpenBatch):
            work.complete(dict(writing.result))
        elif isinstance(work, OpenJob):
            work.succeed(dict(writing.result), **writing.progress)
        return [work.under_lease(self.task.token), *map(_append_of, self.prepared)]


def _append_of(job: Prepared) -> Append:
    return job_within(job.operation, job.payload, id=job.id, **job.fields).append


@contextmanager
def connected(ledger: Ledger, place: Place) -> Iterator[Connection]:
    """The connection on which rows are written; one that is opened here is closed afterwards.

    Raises BadInput where it is not of the ledger's database: two databases cannot commit together.
    """
    if isinstance(place, psycopg.Connection):
        _check(ledger, place)
        yield place
        return
    with ledger_errors():
        own = opened(ledger.address.conninfo if place is None else resolve(place).conninfo)
    try:
        with ledger_errors():
            prepare_nothing_behind_a_proxy(own)
        if place is not None:
            _check(ledger, own)
        yield own
    finally:
        own.close()


def _check(ledger: Ledger, connection: Connection) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        return  # beginning the transaction there is refused
    try:
        statement = sql.statement("identity", ledger.schema)
        row = psycopg.Cursor(connection, row_factory=tuple_row).execute(statement).fetchone()
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.InvalidSchemaName,
    ):
        row = None
    finally:
        if not connection.autocommit:
            connection.rollback()
    if row is None or row[0] != ledger.identity.ledger:
        raise BadInput(
            "the connection is not to the ledger's database: rows and events can commit together only in one "
            "database; give a connection to the ledger's"
        )
