"""`pledger dead`: jobs and batches that failed, why, and offering them anew or putting them aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..codes import Code, Misuse, NotThere
from ..plain import clean, plain
from ..printing import Column, fields, flush, is_terminal, json_line, table, write
from ..progress import board
from ..session import AsJson, Session, session_of
from .finding import Reason, jobs_of
from .letters import USUAL, Error, Filters, Ids, Limit, Operation, Queue, letters, target
from .listing import queries_of
from .looks import time

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.jobs import OpenWork
    from projections.jobs import Dead

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; else it is only said what would be done.")]
Of = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or JOB/NR for one of its batches.")]
After = Annotated[
    int | None, typer.Option(metavar="POSITION", help="Only after the one at this place: the next page.")
]


def add_to(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command("list")(list_)
    for command in (show, redrive, discard):
        group.command()(command)


def list_(
    context: typer.Context,
    ids: Ids = None,
    operation: Operation = None,
    queue: Queue = None,
    error: Error = None,
    limit: Limit = 50,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """List what failed and was neither redriven nor discarded, the last first.

    JSON, one object a line: position, stream, job, nr (of a batch, else null), queue, operation, error_code,
    message, at, version.
    """
    session = session_of(context, as_json)
    with queries_of(session) as (log, queries):
        found = letters(log, queries, Filters(ids or (), operation, queue, error), limit, after)
    if session.json:
        for one in found[:limit]:
            json_line(plain(one._asdict()))
    else:
        columns = [Column("dead"), *(Column(name, keep=True) for name in ("operation", "queue"))]
        columns += [Column("failed"), Column("error", keep=True), Column("message", rest=True)]
        table(columns, map(_row, found[:limit]), color=session.color)
    if not found:
        session.say("no such dead letter is in the view")
    elif len(found) > limit:
        session.say(f"there are more: --after {found[limit - 1].position}, or a larger --limit")


def show(context: typer.Context, id: Of, as_json: AsJson = False) -> None:
    """Show one dead letter: its error with all that is known of it, and its payload.

    It is read from its stream: no view is needed.

    JSON, one object: stream, operation, queue, status, error_code, message, details, at, attempt, failures,
    retries, requeues, payload, redrive (why it cannot be, else null).
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
    """All that is known of a dead letter. Raises NotThere for what did not fail."""
    from ledger.jobs.dead import cause, dead_letter, why_not

    job, nr = target(log, given)
    opened = dead_letter(log, f"job/{job}" if nr is None else f"batch/{job}/{nr}")
    failed = cause(log, opened.name)
    if failed is None or opened.state.status != "failed":
        raise NotThere(f"{opened.name} is no dead letter: it is {opened.state.status}", id=given)
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
    """What it was given last: that of its second step, or that of its birth."""
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
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Offer dead letters anew, as from the beginning.

    Without --yes it only says which. A batch is redriven while its job is running; else redrive the job. A
    unique job is refused while another with its key is not over.

    \b
    Examples:
      pledger dead redrive --operation embed --error CudaOutOfMemory
      pledger dead redrive --operation embed --error CudaOutOfMemory --yes

    Exits 1 where some were refused. JSON, one object a line: stream, operation, error_code, redriven
    (false without --yes), refused (why, else null).
    """
    from ledger.jobs.dead import redrive as act

    session = session_of(context, as_json)
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
    """Put dead letters aside, so that they are listed no more.

    They stay failed, with their history. Without --yes it only says which. What was discarded cannot be
    redriven.

    Exits 1 where some were refused. JSON, one object a line: stream, operation, error_code, discarded
    (false without --yes), refused (why, else null).
    """
    from ledger.jobs.dead import discard as act

    session = session_of(context, as_json)
    _each(
        session, Filters(ids or (), operation, queue, error), limit, "discarded", act if yes else None, reason
    )


Act = Callable[["Ledger", str, str | None], None]


def _each(
    session: Session, filters: Filters, limit: int, done: str, act: Act | None, reason: str | None
) -> None:
    """Do it with each, or say what would be done; raises typer.Exit where some were refused."""
    if act is None and reason is not None:
        raise Misuse("`--reason` goes with `--yes`: without that nothing is recorded")
    with queries_of(session) as (log, queries):
        found = letters(log, queries, filters, limit)
        chosen = found[:limit]
        if act is None:
            rows = [(one, _foreseen(log, one) if done == "redriven" else None) for one in chosen]
        else:
            rows = [*_acted(session, log, chosen, act, reason)]
    _report(session, rows, done, act is not None)
    if len(found) > limit:
        session.say(f"there are more than {limit}: a larger --limit, or once more")
    if act is not None and any(refused for _, refused in rows):
        flush()
        raise typer.Exit(Code.REFUSED)


def _foreseen(log: Ledger, one: Dead) -> str | None:
    from ledger.jobs.dead import dead_letter, why_not

    return why_not(log, dead_letter(log, one.stream))


def _acted(
    session: Session, log: Ledger, chosen: Sequence[Dead], act: Act, reason: str | None
) -> Iterator[tuple[Dead, str | None]]:
    from ledger.errors import Refused

    with board(session) as shown:
        work = shown.work("dead letters", "letters")
        for nth, one in enumerate(chosen, start=1):
            try:
                act(log, one.stream, reason)
                yield one, None
            except Refused as error:
                yield one, str(error)
            work.at(nth, len(chosen))


def _report(session: Session, rows: Sequence[tuple[Dead, str | None]], done: str, acted: bool) -> None:
    many = sum(refused is None for _, refused in rows)
    if session.json:
        for one, refused in rows:
            said = {"stream": one.stream, "operation": one.operation, "error_code": one.error_code}
            json_line({**said, done: acted and refused is None, "refused": refused})
    else:
        columns = [Column("dead"), Column("operation", keep=True), Column("error", keep=True),
                   Column("", keep=True)]  # fmt: skip
        would = done if acted else f"would be {done}"
        cells = ([_name(one), one.operation, one.error_code, refused or would] for one, refused in rows)
        table(columns, cells, color=session.color)
    left = f", {len(rows) - many} refused" if many < len(rows) else ""
    session.say(f"{many} {done}{left}" if acted else f"{many} would be {done}{left}; --yes does it")


def _name(one: Dead) -> str:
    job = one.job[:8] if is_terminal() else one.job
    return job if one.nr is None else f"{job}/{one.nr}"


def _row(one: Dead) -> list[str]:
    return [_name(one), one.operation, one.queue, time(one.at), one.error_code, one.message]


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
