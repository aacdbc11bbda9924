"""`pledger machines adopt`: record the transitions table of another system as moves."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Code, Misuse
from ..output import flush
from ..session import AsJson, Session, session_of
from ..stderr import show_progress
from .lookup import Modules, imported_machines

if TYPE_CHECKING:
    from ledger.machines import Adopted

Name = Annotated[str, typer.Argument(metavar="NAME", help="The machine: the category of its streams.")]
Table = Annotated[
    str, typer.Option(metavar="TABLE", help="The transitions table, written as in SQL: billing.moves.")
]
Parents = Annotated[
    list[str],
    typer.Option(
        "--parent",
        metavar="COLUMN",
        help="The column with the key of the object. Repeatable, for a key of several columns.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option("--source-dsn", metavar="DSN", help="The database of the table. Default: the ledger's."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROLE=COLUMN,…",
        help="Other names of the columns to_state, sort_key, most_recent, created_at, metadata, from_state; "
        "an empty COLUMN means that there is none. Repeatable.",
    ),
]
Zone = Annotated[str, typer.Option(metavar="ZONE", help="The zone of times without an offset.")]
Batch = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Moves per append.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and check the whole table, record nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Adopt the table even if rows contradict each other.")]


def adopt(
    context: typer.Context,
    name: Name,
    table: Table,
    parent: Parents,
    source_dsn: Source = None,
    columns: Columns = None,
    machines: Modules = None,
    time_zone: Zone = "UTC",
    batch: Batch = 1000,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Record a transitions table as the moves of a machine, each once.

    Each row becomes a move, in the order of sort_key; created_at becomes the claimed time; the column
    metadata and all other columns except id and updated_at become the move's metadata. The table is checked
    first, and refused if its rows contradict each other; with --machines also if it has states that the
    machine does not have. If a run is killed, run it again: it continues. A later run adds new rows. An
    object whose moves in the ledger differ from the table is reported and not changed.

    \b
    Examples:
      pledger machines adopt payment --table payment_transitions --parent payment_id --dry-run
      pledger machines adopt order --table moves --parent shop --parent nr --columns to_state=state

    JSON, one object: machine, table, dry_run, rows, skipped (rows that cannot become a move, with --force),
    parents, new, continued, left (nothing to do), differ, recorded, there (moves recorded before), differing
    (the first of them: stream and reason).

    Exits 1 if the table is refused, or an object differs.
    """
    session = session_of(context, as_json)
    given: dict[str, Any] = {
        "parent": parent, "source": source_dsn, "columns": _columns(columns or []), "time_zone": time_zone,
        "batch": batch, "dry_run": dry_run, "force": force,
    }  # fmt: skip
    done = _adopt(session, _machine(name, machines), table, given)
    _report(session, {"machine": name, "table": table, "dry_run": dry_run}, done)
    if done.differ:
        flush()
        raise typer.Exit(Code.REFUSED)


def _adopt(session: Session, machine: Any, table: str, given: dict[str, Any]) -> Adopted:
    from ledger.machines import adopt as adopted

    with session.ledger() as log, show_progress(session) as shown:
        task = shown.task(f"adopt {table}", "rows")
        return adopted(log, machine, table, progress=task.update, **given)


def _machine(name: str, modules: list[str] | None) -> Any:
    """The machine's class if modules are given, else its name. Raises UnknownMachine."""
    known = imported_machines(modules)
    if name in known or not modules:
        return known.get(name, name)
    from ledger.errors import UnknownMachine

    raise UnknownMachine(name, known)


def _columns(given: list[str]) -> dict[str, str | None]:
    """The value of `--columns`. Raises Misuse."""
    found: dict[str, str | None] = {}
    for pair in filter(None, ",".join(given).split(",")):
        role, is_there, column = pair.partition("=")
        if not is_there:
            raise Misuse(f"--columns {pair!r} must be ROLE=COLUMN, such as to_state=state")
        found[role.strip()] = column.strip() or None
    return found


def _report(session: Session, about: dict[str, Any], done: Adopted) -> None:
    counts = asdict(done)
    differing = counts.pop("differing")
    named = [{"stream": stream, "reason": reason} for stream, reason in differing]
    said = {name: value for name, value in {**about, **counts}.items() if value is not False}
    session.print_fields({**about, **counts, "differing": named}, said)
    for stream, reason in differing:
        session.say(f"{stream} was not changed: {reason}")
    would = "would be recorded" if about["dry_run"] else "recorded"
    session.say(f"{done.recorded} moves of {done.new + done.continued} objects {would}")
