"""What an operation is given to work with: who it is, its ledger, and the one transaction that may end it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NoReturn

from ledger import BadInput, Ledger
from ledger.append import append_of
from ledger.errors import ClaimLost, GuardFailed, WorkStopped
from ledger.jobs import OpenBatch, OpenJob, OpenWork
from ledger.jobs.submitting import job_within

from .messages import Prepared, Task
from .writing import Place, Writing, connected

_log = logging.getLogger(__name__)
_OVER: Final = "it was cancelled, or given to another worker"


class Session:
    """A claim, seen by the operation that runs under it.

    job_id: of the job, also in a batch of it; batch: its number there, else None. attempt: from 1. recorded:
    its end is recorded already, in a transaction with its rows.
    """

    def __init__(self, task: Task, connect: Callable[[], Ledger]) -> None:
        self.task, self._connect = task, connect
        self.job_id, self.batch, self.attempt = task.job, task.batch, task.attempt
        self.prepared: list[Prepared] = []
        self.recorded = False
        self._stopped: str | None = None
        self._work: OpenWork[Any, Any] | None = None
        self._saying = threading.Lock()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, on a connection of this process's own."""
        return self._connect()

    @property
    def stopped(self) -> str | None:
        """Why the operation shall stop, None while it shall not. It costs nothing to ask."""
        return self._stopped

    def stop(self, reason: str) -> None:
        """Tell the operation that its claim is over."""
        self._stopped = self._stopped or reason

    def lost(self, reason: str = _OVER) -> NoReturn:
        """Its claim turned out to be over. Raises WorkStopped."""
        self.stop(reason)
        raise WorkStopped(self.task.stream, self._stopped or reason)

    def check(self) -> None:
        """Raise WorkStopped once the job was cancelled or its lease lost."""
        if self._stopped is not None:
            raise WorkStopped(self.task.stream, self._stopped)

    def submit(self, operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Submit a job together with what comes of this operation; its id. Nothing is submitted if it fails.

        fields: as in `Jobs.submit`, but unique; of a deferred job they are its children. Raises BadInput.
        """
        job = job_within(operation, payload, **fields).state.id
        fields.pop("id", None)
        self.prepared.append(Prepared(job, operation, dict(payload or {}), fields))
        return job

    def opened(self) -> OpenWork[Any, Any]:
        """The stream of this claim, opened as it is now."""
        if self.batch is None:
            return self.ledger.load(OpenJob, self.job_id)
        return self.ledger.load(OpenBatch, self.job_id, self.batch)

    # Saying something

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
            _log.warning("%s is over already; not recorded: %s", self.task.stream, event)
            return
        try:
            said = dict(fields or {})
            progress = {
                name: int(said.pop(f"_{name}"))
                for name in ("progress_current", "progress_total")
                if said.get(f"_{name}") is not None
            }
            with self._saying:
                self._say(event, message=message, fields=said, level=level, **progress)
        except (GuardFailed, ClaimLost):
            self.lost()
        except Exception:  # spec S1-15: it never fails the operation
            _log.exception("%s: what was emitted could not be recorded: %s", self.task.stream, event)

    def _say(self, event: str, **fields: Any) -> None:
        """Record it under the claim. The stream is opened once: only where somebody else wrote, again."""
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
    def transaction(self, connection: Place = None) -> Iterator[Writing]:
        """A transaction whose rows commit together with the end of this batch or job, or neither does.

            with session.transaction() as writing:
                writing.execute("INSERT INTO counts …", […])
                writing.result["rows"] = 20

        connection: one of the user's own, or a DSN, to the ledger's database; by default, the ledger's. What
        was submitted before is recorded with it too. Once, and the operation's last deed: what it returns is
        not looked at any more. Raises WorkStopped where the claim is over: the rows are rolled back. An
        exception in the block rolls them back too, and ends nothing.
        """
        self.check()
        if self.recorded:
            raise BadInput(f"{self.task.stream} has ended in a transaction already; an operation has one")
        with connected(self.ledger, connection) as own:
            try:
                with self.ledger.transaction(own) as joined:
                    writing = Writing(own)
                    yield writing
                    for append in self._ends(writing):
                        joined.add(append)
            except GuardFailed as error:
                if error.stream != self.task.stream:
                    raise
                self.lost()
        self.recorded = True
        self.prepared.clear()

    def _ends(self, writing: Writing) -> list[Any]:
        """The appends that end this work, under its claim."""
        self.check()
        work = self._claimed()
        if isinstance(work, OpenBatch):
            work.complete(dict(writing.result))
        elif isinstance(work, OpenJob):
            work.succeed(dict(writing.result), **writing.progress)
        return [work.under_lease(self.task.token), *(append_of(_job(job)) for job in self.prepared)]


def _job(prepared: Prepared) -> OpenJob:
    return job_within(prepared.operation, prepared.payload, id=prepared.id, **prepared.fields)
