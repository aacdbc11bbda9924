"""`pledger dead`: list failed jobs and batches with the reasons, and redrive or discard them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ...dead_letters import MOST, USUAL, Act, acted, foresee, nothing, pages
from ..errors import Code, Misuse, NotThere
from ..output import (
    Column,
    Page,
    clean,
    fields,
    flush,
    is_terminal,
    json_line,
    most,
    plain,
    time,
    titled,
    write,
)
from ..session import AsJson, Session, session_of
from ..stderr import show_progress
from .options import Reason, Whole, found, jobs_of, queries_of

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.jobs.work import OpenWork
    from projections.jobs import Dead, JobQueries

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Only these jobs and their batches; JOB/NR: only this batch."),
]
Operation = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this operation.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Only from this queue.")]
Error = Annotated[str | None, typer.Option("--error", metavar="CODE", help="Only with this error code.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=MOST, help="At most so many.")]


class Filters(NamedTuple):
    """The filters for dead letters."""

    ids: Sequence[str]
    operation: str | None
    queue: str | None
    error_code: str | None


def letters(log: Ledger, queries: JobQueries, filters: Filters, after: int | None = None) -> Iterator[Dead]:
    """The dead letters, the newest first. Raises Misuse, NotThere for an unknown id of a job."""
    wanted = [target(log, id) for id in filters.ids]
    given = {"operation": filters.operation, "queue": filters.queue, "error_code": filters.error_code}
    if not wanted:
        return pages(queries, after, **given)
    chosen: dict[str, Dead] = {}
    for job, nr in wanted:
        of_it = [one for one in pages(queries, after, **given, job=job) if nr in (None, one.nr)]
        chosen |= {one.stream: one for one in of_it}
    return iter(sorted(chosen.values(), key=lambda one: -one.position))


def target(log: Ledger, given: str) -> tuple[str, str | None]:
    """The id of a job, and the number of its batch if one is given. Raises Misuse, NotThere."""
    job, slash, nr = given.strip().removeprefix("job/").removeprefix("batch/").partition("/")
    if slash and not nr:
        raise Misuse(f"{given!r} must be the id of a job, or JOB/NR for one of its batches")
    return found(log, job), nr or None


Shown = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="List at most N. Default: 50 on a terminal, otherwise all."),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do it; without this option the command only shows what it would do."),
]
Of = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or JOB/NR for one of its batches.")]
After = Annotated[
    int | None,
    typer.Option(metavar="POSITION", help="Only dead letters after this position, for the next page."),
]


def list_(
    context: typer.Context,
    ids: Ids = None,
    operation: Operation = None,
    queue: Queue = None,
    error: Error = None,
    limit: Shown = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first.

    Dead letters are jobs and batches that failed and were neither redriven nor discarded.

    JSON, one object per line: position, stream, job, nr (of a batch, else null), queue, operation,
    error_code, message, at, version.
    """
    session = session_of(context, as_json)
    with queries_of(session) as (log, queries):
        found = letters(log, queries, Filters(ids or (), operation, queue, error), after)
        page = Page(found, most(limit, 50))
        columns = [Column("dead"), *titled("operation", "queue", keep=True), Column("failed"),
                   Column("error", keep=True), Column("message", rest=True)]  # fmt: skip
        session.print_rows(page, columns, _row)
    if page.last is None:
        session.say("no dead letter matches")
    elif page.more:
        session.say(f"there are more: give --after {page.last.position}, or a larger --limit")


def show(context: typer.Context, id: Of, as_json: AsJson = False) -> None:
    """Show one dead letter: its error with all details, and its payload.

    Reads its stream; no view is needed.

    JSON, one object: stream, operation, queue, status, error_code, message, details, at, attempt, failures,
    retries, requeues, payload, redrive (why it cannot be redriven; otherwise null).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        shown = _shown(jobs.ledger, id)
    if session.json:
        json_line(plain(shown))
        return
    details = shown.pop("details")
    texts = {name: value for name, value in details.items() if isinstance(value, str) and "\n" in value}
    rest = {name: value for name, value in details.items() if name not in texts}
    pairs = {**shown, "at": time(shown["at"]), "payload": _json(shown["payload"]), "details": _json(rest)}
    fields([(name, str(v)) for name, v in pairs.items() if v not in (None, "", 0, "{}")], color=session.color)
    for name, text in texts.items():
        write("".join(f"{name}\t{clean(line)}\n" if not is_terminal() else f"  {clean(line)}\n"
                      for line in text.splitlines()))  # fmt: skip


def _shown(log: Ledger, given: str) -> dict[str, Any]:
    """All that is known of a dead letter. Raises NotThere for work that did not fail."""
    from ledger.jobs.dead_letters import cause, dead_letter, why_not

    job, nr = target(log, given)
    opened = dead_letter(log, f"job/{job}" if nr is None else f"batch/{job}/{nr}")
    failed = cause(log, opened.name)
    if failed is None or opened.state.status != "failed":
        raise NotThere(f"{opened.name} is not a dead letter: it is {opened.state.status}", id=given)
    said, state = json.loads(failed.data or "{}"), opened.state
    payload = _payload_of(log, opened)
    return {
        "stream": opened.name, "operation": state.operation, "queue": state.queue,
        "status": "failed, discarded" if state.discarded else "failed", "error_code": state.error_code,
        "message": said.get("message") or state.error_message, "details": said.get("details") or {},
        "at": failed.recorded_at, "attempt": state.attempt, "failures": state.failures,
        "retries": state.retries, "requeues": state.requeues, "payload": payload,
        "redrive": why_not(log, opened),
    }  # fmt: skip


def _payload_of(log: Ledger, opened: OpenWork[Any, Any]) -> Any:
    """Its last payload: that of its second step, or that of its creation."""
    for event in log.read(opened.name, backwards=True):
        if event.topic in ("batch.computed", "batch.queued", "job.created"):
            return json.loads(event.data or "{}").get("payload", {})
    return {}


def redrive(
    context: typer.Context,
    ids: Ids = None,
    operation: Operation = None,
    queue: Queue = None,
    error: Error = None,
    limit: Limit = USUAL,
    reason: Reason = None,
    whole: Whole = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Redrive dead letters.

    Without --yes it only lists them. Of a job with batches, only those that did not complete run again. A
    batch is redriven alone while its job is running or has succeeded without it; if its job failed, the job
    is redriven. A unique job is refused while another with its key is queued or running.

    \b
    Examples:
      pledger dead redrive --operation embed --error CudaOutOfMemory
      pledger dead redrive --operation embed --error CudaOutOfMemory --yes

    Exits 1 if any was refused. JSON, one object per line: stream, operation, error_code, redriven
    (false without --yes), refused (the reason; otherwise null).
    """
    from ledger.jobs.dead_letters import redrive as each

    session, act = session_of(context, as_json), partial(each, whole=whole)
    _each(
        session, Filters(ids or (), operation, queue, error), limit, "redriven", act if yes else None, reason
    )


def discard(
    context: typer.Context,
    ids: Ids = None,
    operation: Operation = None,
    queue: Queue = None,
    error: Error = None,
    limit: Limit = USUAL,
    reason: Reason = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Discard dead letters: they are no longer listed.

    They stay failed, with their history, and cannot be redriven. Without --yes it only lists them.

    Exits 1 if any was refused. JSON, one object per line: stream, operation, error_code, discarded
    (false without --yes), refused (the reason; otherwise null).
    """
    from ledger.jobs.dead_letters import discard as act

    session = session_of(context, as_json)
    _each(
        session, Filters(ids or (), operation, queue, error), limit, "discarded", act if yes else None, reason
    )


def _each(
    session: Session, filters: Filters, limit: int, done: str, act: Act | None, reason: str | None
) -> None:
    """Apply an action to each, or only list them; raises typer.Exit if some were refused."""
    if act is None and reason is not None:
        raise Misuse("`--reason` needs `--yes`, because without it nothing is recorded")
    with queries_of(session) as (log, queries):
        found = [*islice(letters(log, queries, filters), limit + 1)]
        chosen = found[:limit]
        redriven = done == "redriven"
        does = act or (foresee if redriven else nothing)
        rows = [*_acted(session, log, chosen, does, reason, with_jobs=redriven)]
    _report(session, rows, done, act is not None)
    if len(found) > limit:
        session.say(f"there are more than {limit}: give a larger --limit, or repeat the command")
    if act is not None and any(refused for _, refused in rows):
        flush()
        raise typer.Exit(Code.REFUSED)


def _acted(
    session: Session, log: Ledger, chosen: Sequence[Dead], act: Act, reason: str | None, *, with_jobs: bool
) -> Iterator[tuple[Dead, str | None]]:
    """As `acted`, and shows how far it is."""
    with show_progress(session) as shown:
        task = shown.task("dead letters", "letters")
        for nth, one in enumerate(acted(log, chosen, act, reason, with_jobs=with_jobs), start=1):
            task.update(nth, len(chosen))
            yield one


def _report(session: Session, rows: Sequence[tuple[Dead, str | None]], done: str, acted: bool) -> None:
    many = sum(refused is None for _, refused in rows)
    would = done if acted else f"would be {done}"

    def data(row: tuple[Dead, str | None]) -> dict[str, Any]:
        said = {"stream": row[0].stream, "operation": row[0].operation, "error_code": row[0].error_code}
        return {**said, done: acted and row[1] is None, "refused": row[1]}

    def cells(row: tuple[Dead, str | None]) -> list[str]:
        return [_name(row[0]), row[0].operation, row[0].error_code, row[1] or would]

    session.print_rows(rows, [Column("dead"), *titled("operation", "error", "", keep=True)], cells, data=data)
    left = f", {len(rows) - many} refused" if many < len(rows) else ""
    session.say(f"{many} {done}{left}" if acted else f"{many} would be {done}{left}; give --yes to do it")


def _name(one: Dead) -> str:
    job = one.job[:8] if is_terminal() else one.job
    return job if one.nr is None else f"{job}/{one.nr}"


def _row(one: Dead) -> list[Any]:
    return [_name(one), one.operation, one.queue, one.at, one.error_code, one.message]


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
