"""`pledger init` and `pledger doctor`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from .errors import Code
from .output import Column, flush, is_terminal, iso, json_line, table
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger.log.health import Check

STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def init(context: typer.Context, as_json: AsJson = False) -> None:
    """Create the ledger, or migrate it.

    Works in the database of --dsn. Run again, it changes nothing.

    JSON: dsn, schema, ledger, schema_number, schema_number_before (null for a new ledger), created_at.
    """
    session = session_of(context, as_json)
    from ledger.log.admin import initialise

    made = initialise(session.dsn, session.schema)
    who = made.identity
    if made.before is None:
        session.say(f"a new ledger was made in schema {made.schema!r}")
    elif made.before < who.schema_number:
        session.say(f"the ledger was migrated from schema {made.before} to {who.schema_number}")
    else:
        session.say("the ledger exists already; its functions and rights were installed again")
    shown = {
        "dsn": made.printable,
        "schema": made.schema,
        "ledger": str(who.ledger),
        "schema_number": who.schema_number,
        "schema_number_before": made.before,
        "created_at": iso(who.created_at),
    }
    session.print_fields(shown)


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Check the server and the ledger; show each problem with a remedy.

    Changes nothing. Exits 1 if a check fails, 4 if the server cannot be reached.

    JSON: dsn, schema, ok, warn, fail (how many), checks: a list of name, verdict (ok, warn, fail), says,
    cure.
    """
    session = session_of(context, as_json)
    from ledger.log.health import examine

    target, checks = examine(session.dsn, session.schema)
    found = list(checks)
    if all(check.verdict != "fail" for check in found if check.name in ("server", "schema")):
        found += _missing_tables(session)
    counts = Counter(check.verdict.value for check in found)
    if session.json:
        told = [{"name": c.name, "verdict": c.verdict.value, "says": c.says, "cure": c.cure} for c in found]
        counted = {verdict: counts[verdict] for verdict in STYLE}
        json_line({"dsn": target.printable, "schema": session.schema, **counted, "checks": told})
    else:
        _print(found, session)
    session.say(f"{counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failed")
    if counts["fail"]:
        flush()
        unreachable = any(check.name == "server" and check.verdict == "fail" for check in found)
        raise typer.Exit(Code.UNREACHABLE if unreachable else Code.REFUSED)


def _missing_tables(session: Session) -> list[Check]:
    """Registered views whose tables are missing."""
    from ledger import LedgerError
    from ledger.log.health.checks import fail
    from projections.engine.watch import watch

    session.know_views()
    try:
        with session.ledger() as log:
            states = watch(log)
    except LedgerError:  # the other checks report it
        return []
    return [
        fail("views", state.error.partition("; ")[0], f"run `pledger rebuild {state.view}`")
        for state in states
        if state.copy is not None and state.state == "not made" and state.error is not None
    ]


def _print(checks: list[Check], session: Session) -> None:
    if not is_terminal():
        table([], ((c.verdict.value, c.name, c.says, c.cure) for c in checks), color=False)
        return
    columns = [Column("verdict"), Column("check"), Column("finding", keep=True)]
    rows = ((c.verdict.value, c.name, f"{c.says}. Cure: {c.cure}" if c.cure else c.says) for c in checks)
    table(columns, rows, color=session.color, styles=STYLE)
