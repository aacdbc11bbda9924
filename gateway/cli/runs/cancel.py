"""`pledger runs cancel`: propose that flow runs are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Code
from ..output import Column, flush, plain, titled
from ..session import AsJson, session_of
from .options import STATES, Many, found, short

if TYPE_CHECKING:
    from ledger.runs import Answer, FlowRun

Force = Annotated[
    bool, typer.Option("--force", help="Set Cancelled at once, whatever the rules say; nothing is stopped.")
]
Message = Annotated[str | None, typer.Option(metavar="TEXT", help="The state's message; it is recorded.")]


def cancel(
    context: typer.Context, ids: Many, message: Message = None, force: Force = False, as_json: AsJson = False
) -> None:
    """Cancel flow runs: their workers stop them.

    A run with infrastructure becomes Cancelling; the worker that watches it stops it and reports Cancelled. A
    run that has not started becomes Cancelled at once. The rules may refuse: a run that is over stays as it
    is, and the refused proposal is recorded with the rule that refused it.

    Exits 1 if one was refused.

    \b
    Examples:
      pledger runs cancel 0198f3a1
      pledger runs cancel 0198f3a1 --force --message "the machine is gone"

    JSON, one object per line: id, cancelled (whether it is Cancelling or Cancelled by this call), state (its
    name now), rule and reason (of a refusal or replacement, else null).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        from ledger.runs import FlowRuns
        from ledger.runs.states import cancelled, cancelling

        runs, make = FlowRuns(log), cancelled if force else cancelling
        wanted = list(dict.fromkeys(found(log, one, "flow_run")[1] for one in ids))
        answers = [(id, runs.set_state(id, make(message=message), force=force)) for id in wanted]
    rows = [_data(id, answer) for id, answer in answers]
    columns = [*titled("run", "state"), Column("says", keep=True)]
    session.print_rows(
        rows, columns, lambda row: [short(row["id"]), row["state"], row["reason"]], styles=STATES
    )
    if refused := sum(not row["cancelled"] for row in rows):
        flush()
        session.say(f"{refused} of {len(rows)} were refused")
        raise typer.Exit(Code.REFUSED)


def _data(id: str, answer: Answer[FlowRun]) -> dict[str, Any]:
    from ledger.runs import StateType

    state = answer.run.state
    done = answer.written and state is not None and state.type in (StateType.CANCELLED, StateType.CANCELLING)
    name = None if state is None else state.name
    told: dict[str, Any] = plain(
        {"id": id, "cancelled": done, "state": name, "rule": answer.rule, "reason": answer.reason}
    )
    return told
