"""`pledger queues` and `operations`: list and pause queues, and limit operations."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Misuse
from ..output import Column, titled
from ..session import AsJson, Session, session_of
from .options import STATUSES, Reason, jobs_of, queries_of, seconds_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.jobs import JobQueries

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's name.")]
Concurrency = Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N run at once.")]
Rate = Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N start within --per.")]
Per = Annotated[str, typer.Option(metavar="SPAN", help="The span of a rate: seconds, or such as 1m.")]
NoLimit = Annotated[bool, typer.Option("--none", help="Remove both limits.")]


def list_queues(context: typer.Context, as_json: AsJson = False) -> None:
    """List the queues, with the number of queued and running jobs.

    Also shows whether each is paused. Reads the view `jobs`, which workers keep up to date; stderr reports if
    it is behind. `due since`: the time since which the first waiting job may be claimed.

    JSON, one object per line: queue, status (open, paused), reason (of the pause), queued, running, failed,
    due_since (null if nothing waits).
    """
    session = session_of(context, as_json)
    with queries_of(session) as (log, queries):
        rows = [*_queues(log, queries)]
    columns = [Column("queue", keep=True), Column("status"), *titled(*COUNTED, number=True)]
    columns += [Column("due since"), Column("reason", keep=True)]
    cells = itemgetter("queue", "status", *COUNTED, "due_since", "reason")
    session.print_rows(rows, columns, cells, styles=STATUSES)
    if not (rows or session.json):
        session.say("no queue has been used yet")


COUNTED = ("queued", "running", "failed")


def _queues(log: Ledger, queries: JobQueries) -> Iterator[dict[str, Any]]:
    """Each queue that a job has named or that was ever paused, by name."""
    from ledger.jobs import Jobs

    rules, counted = Jobs(log).queues(), queries.counts()
    for name in sorted({one.queue for one in counted} | set(rules)):
        its, rule = [one for one in counted if one.queue == name], rules.get(name)
        many = {status: sum(one.jobs for one in its if one.status == status) for status in COUNTED}
        due = min((one.oldest_due for one in its if one.oldest_due is not None), default=None)
        status = rule.status if rule is not None else None
        yield {
            "queue": name,
            "status": status or "open",
            "reason": rule and rule.reason,
            **many,
            "due_since": due,
        }


def pause(context: typer.Context, queue: Queue, reason: Reason = None, as_json: AsJson = False) -> None:
    """Pause a queue: no job is claimed from it; running jobs continue.

    JSON: queue, status, changed (whether by this call).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        changed = jobs.pause(queue, reason)
    _tell(session, queue, "paused", changed)


def resume(context: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Resume a queue.

    JSON: queue, status, changed (whether by this call).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        changed = jobs.resume(queue)
    _tell(session, queue, "open", changed)


def _tell(session: Session, queue: str, status: str, changed: bool) -> None:
    row = {"queue": queue, "status": status, "changed": changed}
    columns = [Column("queue", keep=True), Column("status")]
    session.print_rows([row], columns, itemgetter("queue", "status"), styles=STATUSES)
    if not changed:
        session.say(f"it is {status} already: nothing changed")


def limit(
    context: typer.Context,
    operation: Operation,
    concurrency: Concurrency = None,
    rate: Rate = None,
    per: Per = "1",
    none: NoLimit = False,
    as_json: AsJson = False,
) -> None:
    """Limit an operation across all workers.

    Limits how many run at once, and how many start within a span. Both limits are set together; one that is
    not given is removed.

    \b
    Examples:
      pledger operations limit embed --concurrency 1
      pledger operations limit download --rate 10 --per 1m

    JSON: operation, concurrency, rate, seconds (null: no limit).
    """
    session = session_of(context, as_json)
    if (concurrency is None and rate is None) != none:
        raise Misuse("give --concurrency or --rate or both, or --none to remove the limits")
    seconds = seconds_of(per, "--per") or 0.0
    with jobs_of(session) as jobs:
        jobs.limit(operation, concurrency=concurrency, rate=rate, seconds=seconds)
    _print(session, [{"operation": operation, "concurrency": concurrency, "rate": rate, "seconds": seconds}])


def list_operations(context: typer.Context, as_json: AsJson = False) -> None:
    """List the operations that have, or had, limits.

    JSON, one object per line: operation, concurrency, rate, seconds (null: no limit).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        limits = jobs.limits()
    _print(session, [
        {"operation": name, "concurrency": its.concurrency, "rate": its.rate, "seconds": its.seconds}
        for name, its in sorted(limits.items())
    ])  # fmt: skip
    if not limits:
        session.say("no operation has limits; `pledger operations limit` sets some")


def _print(session: Session, rows: list[dict[str, Any]]) -> None:
    session.print_rows(rows, [Column("operation", keep=True), *titled("at once", "rate", number=True)], _row)


def _row(row: dict[str, Any]) -> list[Any]:
    rate = None if row["rate"] is None else f"{row['rate']} in {row['seconds']:g} s"
    return [row["operation"], row["concurrency"] or None, rate]
