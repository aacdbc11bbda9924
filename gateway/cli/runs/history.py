"""`pledger runs history`: the states that a run was in, and the proposals that were refused."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..output import Column, iso, titled
from ..session import AsJson, session_of
from .options import STATES, One, found

if TYPE_CHECKING:
    from ledger import Recorded

All = Annotated[bool, typer.Option("--all", help="Show also changes of fields and inputs.")]


def history(context: typer.Context, id: One, everything: All = False, as_json: AsJson = False) -> None:
    """Show the states that a flow run or task run was in, and the proposals that were refused.

    A refused proposal names the rule that refused it; a state that a rule set in place of the proposed one
    names that rule too. The recorded time is the database's; the claimed one is what the client said. The
    order is that of the log, whatever times are claimed.

    \b
    Examples:
      pledger runs history 0198f3a1
      pledger runs history 0198f3a1 --all --json

    JSON, one object per line: position, version, recorded_at, claimed_at (null where the client claimed
    none), what (state, refused, late, created, changed, input, deleted), type, name, message, verdict (of a
    refused one: REJECT, WAIT or ABORT), rule, reason, proposed (the type that was proposed, where another
    state was set), forced, actor.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        category, whole = found(log, id)
        told = [_told(one) for one in log.read(f"{category}/{whole}")]
    rows = [one for one in told if everything or one["what"] in _STATES]
    session.print_rows(rows, COLUMNS, _row, data=lambda row: row, styles=STATES)
    if not rows:
        session.say("it has had no state yet")


_STATES: Final = ("state", "refused", "late")
COLUMNS: Final = [
    *titled("recorded", "state", "claimed"), Column("rule"), Column("actor"), Column("says", rest=True),
]  # fmt: skip


def _row(row: dict[str, Any]) -> list[Any]:
    recorded, claimed = row["recorded_at"], row["claimed_at"]
    name = {"refused": f"refused {row['name']}", "late": f"late {row['name']}"}.get(row["what"], row["name"])
    says = row["reason"] or row["message"]
    return [_time(recorded), name or row["what"], _time(claimed), row["rule"], row["actor"], says]


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _told(recorded: Recorded) -> dict[str, Any]:
    """What a fact of a run says, in JSON."""
    from ledger.runs.facts import ProposalRefused, StateSet
    from ledger.runs.task_run import TaskRunStateCameLate

    event: Any = recorded.event
    what = recorded.topic.partition(".")[2].replace("_set", "").replace("_deleted", "")
    told = _line(recorded, {"flow_run": "deleted"}.get(what, what))
    match event:
        case StateSet():
            proposed = None if event.proposed is None else event.proposed.get("type")
            more = {"rule": event.rule, "reason": event.reason, "proposed": proposed, "forced": event.forced}
            return {**told, "what": "state", **_state(event.state), **more}
        case ProposalRefused():
            more = {
                "rule": event.rule,
                "reason": event.reason,
                "verdict": event.verdict,
                "forced": event.forced,
            }
            return {**told, "what": "refused", **_state(event.proposed), **more}
        case TaskRunStateCameLate():
            return {**told, "what": "late", **_state(event.state)}
    return told


def _line(recorded: Recorded, what: str) -> dict[str, Any]:
    claimed = recorded.meta.claimed_at
    return {
        "position": recorded.position,
        "version": recorded.version,
        "recorded_at": iso(recorded.recorded_at),
        "claimed_at": None if claimed is None else iso(claimed),
        "what": what,
        **dict.fromkeys(("type", "name", "message", "verdict", "rule", "reason", "proposed")),
        "forced": False,
        "actor": recorded.meta.actor,
    }


def _state(state: Any) -> dict[str, Any]:
    """The type, name and message of a state, and the time that was claimed for it, if one was."""
    claimed = {"claimed_at": iso(datetime.fromisoformat(state["timestamp"]))} if "timestamp" in state else {}
    return {**claimed, **{name: state.get(name) for name in ("type", "name", "message")}}
