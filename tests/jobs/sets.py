"""Parents with batches and children, worked on by hand: a test decides about every order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from consumers.jobs.cascade import cascade
from consumers.jobs.claim import Claim
from consumers.jobs.context import OperationContext
from consumers.jobs.dispatch import outcome_of
from consumers.jobs.fan_in import fan_in
from consumers.jobs.messages import Outcome, Task
from consumers.jobs.operation import OperationResult
from consumers.jobs.record import Recorder, outcome_part
from ledger import Ledger
from ledger.jobs import Batch, Jobs, OpenBatch, OpenJob
from ledger.jobs.work import OpenWork


class Sets:
    """A ledger in which jobs are claimed, dispatched and ended."""

    def __init__(self, log: Ledger) -> None:
        self.log, self.jobs = log, Jobs(log)

    def claim(self, *key: str) -> OperationContext:
        """Claim a job (its id) or a batch (the job's id, its number): what its operation would be given."""
        work = self.load(*key)
        work.start("hand")
        payload = self.log.read(work.name, limit=1)[0].data
        self.log.commit(work)
        return OperationContext(
            task_of(work, json.dumps(json.loads(payload or "{}").get("payload"))), lambda: self.log
        )

    def load(self, *key: str) -> OpenWork[Any, Any]:
        return self.log.load(OpenJob if len(key) == 1 else OpenBatch, *key)

    def record(self, session: OperationContext, result: OperationResult | Outcome) -> Outcome:
        """Record what an operation returned, as its worker does."""
        outcome = result if isinstance(result, Outcome) else outcome_of(session, result)
        key = [session.job_id] if session.batch is None else [session.job_id, session.batch]
        kind = OpenJob if session.batch is None else OpenBatch
        seen = self.log.load(kind, *key, version=session.task.version)  # as its worker claimed it
        claimed = Claim(seen, session.task.token)
        Recorder(self.log, "hand").record([outcome_part(claimed, outcome)])
        return outcome

    def deferred(self, batches: int = 0, children: int = 0, **fields: Any) -> str:
        """A job that was dispatched, with so many batches and children; its id. Its children: `children`."""
        job = self.jobs.submit("split", **{"max_attempts": 5, **fields.pop("job", {})})
        self.dispatch(self.claim(job), batches, children, **fields)
        return job

    def dispatch(
        self, session: OperationContext, batches: int = 0, children: int = 0, **fields: Any
    ) -> Outcome:
        for n in range(children):
            session.submit("part", {"n": n})
        operations = (("default", {"operation": "part", "payload": {"n": n}}) for n in range(batches))
        return self.record(session, OperationResult(deferred=True, publish_operations=operations, **fields))

    def children(self, job: str) -> tuple[str, ...]:
        return self.load(job).state.children  # type: ignore[no-any-return]

    def end(self, how: str, *key: str, message: str = "bad") -> None:
        """Let a batch or job end: complete, fail, cancel."""
        work = self.load(*key)
        if how == "cancel":
            work.cancel("by hand")
        else:
            if work.state.token is None:
                work.start("hand")
            if how == "fail":
                work.fail("Bad", message)
            elif isinstance(work, OpenBatch):
                work.complete()
            elif isinstance(work, OpenJob):
                work.succeed()
        self.log.commit(work)

    def batch(self, job: str, nr: str) -> Batch:
        return self.log.load(OpenBatch, job, nr).state

    def statuses(self, job: str) -> dict[str, str]:
        """The status of each batch of a job, by number."""
        states = self.log.states((f"batch/{job}/", OpenBatch)).get(OpenBatch, [])
        return {state.nr: str(state.status) for _, _, state in states}

    def fan_in(self) -> None:
        fan_in(self.log).catch_up()

    def cascade(self) -> None:
        cascade(self.log).catch_up()

    def closes(self, job: str) -> list[Mapping[str, Any]]:
        """The facts that closed a job, as they are in the log."""
        return [
            {"topic": event.topic, **json.loads(event.data or "{}")}
            for event in self.jobs.events(job)
            if event.topic in ("job.succeeded", "job.failed")
        ]


def task_of(work: OpenWork[Any, Any], payload: str) -> Task:
    state = work.state
    job, batch = (state.job, state.nr) if isinstance(work, OpenBatch) else (state.id, None)
    return Task(
        work.name, state.token or 0, work.version, state.operation, payload, job, state.attempt, batch
    )


def topics(events: Iterable[Any]) -> list[str]:
    return [event.topic for event in events]
