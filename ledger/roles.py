"""Which of a ledger's roles each program needs: one table, which the programs check when they start.

`docs/how-to/grant-roles.md` shows it, and a test runs every program with exactly these roles.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from psycopg import sql

from .errors import NoPermission, ServerUnavailable
from .log.ledger import Ledger
from .log.pool import Connection
from .log.sql import Statements, run

SQL = Statements(__package__, "roles")
KINDS: Final = ("writer", "reader", "projector")
"""The roles that programs need. The projector may read all that the reader may."""


class Program(NamedTuple):
    """What a login needs to run a program: roles, without the name of the schema; and what for."""

    roles: tuple[str, ...]
    why: str


PROGRAMS: Final[dict[str, Program]] = {
    "pledger worker run": Program(
        ("writer", "projector"), "claims work, records outcomes, updates the views of jobs"
    ),
    "pledger worker run --no-views": Program(("writer", "reader"), "the same; `views follow` runs elsewhere"),
    "pledger reaper run": Program(("writer", "reader"), "ends claims that are not renewed"),
    "Scheduler": Program(("writer", "reader"), "submits due jobs; every worker runs one"),
    "pledger react": Program(("writer", "reader"), "answers events, and stores its position"),
    "pledger relay run": Program(("writer", "reader"), "publishes the log to Kafka; one relay is elected"),
    "pledger machines timeouts": Program(("writer", "reader"), "moves objects whose timeout is due"),
    "pledger machines adopt": Program(("writer", "reader"), "records the moves of a transitions table"),
    "pledger serve": Program(("writer", "reader"), "answers HTTP clients"),
    "pledger serve --prefect": Program(("writer", "projector"), "the same, and keeps the views of runs"),
    "pledger runs services": Program(("writer", "reader"), "schedules runs, ends dead ones, frees slots"),
    "pledger runs import": Program(("writer", "reader"), "records the contents of a Prefect database"),
    "pledger import": Program(("writer", "reader"), "records the events of a file"),
    "pledger views follow": Program(("projector",), "writes the views"),
    "pledger views retry": Program(("projector",), "retries parked streams"),
    "pledger rebuild": Program(("projector",), "rebuilds views, heads and command ids"),
    "pledger verify": Program(("projector",), "rebuilds views to compare them; repairs with `--repair`"),
    "pledger verify --check ''": Program(("reader",), "compares only heads and command ids, repairs nothing"),
    "pledger as-of make": Program(("projector",), "makes a copy of the past in a schema of its own"),
    "pledger as-of drop": Program(("projector",), "drops it"),
}
"""By the name of the command, or of the class if there is no command."""


def require_roles(ledger: Ledger, program: str) -> None:
    """Refuse to begin where the login lacks a role that the program needs; looked at once for each Ledger.

    A server that is away is passed over: the program says so itself, or waits. Raises NoPermission, which
    names the GRANT.
    """
    if program in ledger.may_run:
        return
    try:
        with ledger.reader() as connection:
            rows = run(
                connection, ledger.schema, SQL.own_roles,
                roles=[f"{ledger.schema}_{kind}" for kind in KINDS], settable=f"{ledger.schema}_projector",
            )  # fmt: skip
            known = {kind: _Known(*row) for kind, row in zip(KINDS, rows, strict=True)}
            refusal = _refusal(connection, program, known)
    except ServerUnavailable:
        return
    if refusal:
        raise NoPermission(refusal)
    ledger.may_run.add(program)


class _Known(NamedTuple):
    """A role as the server knows it, and the session's user in it."""

    name: str
    there: bool
    member: bool
    usable: bool
    user: str


def _refusal(connection: Connection, program: str, known: dict[str, _Known]) -> str:
    """What the login lacks for the program, and the statement that gives it; empty where it lacks nothing."""
    needed = [known[kind] for kind in PROGRAMS[program].roles]
    reads = known["projector"].usable
    lacking = [one for one in needed if not (one.usable or (one is known["reader"] and reads))]
    if not lacking:
        return ""
    names = " and ".join(one.name for one in needed)
    says = f"{program} needs the role{'s' * (len(needed) > 1)} {names}"
    if gone := [one.name for one in lacking if not one.there]:
        return f"{says}, and the server has no {' and '.join(gone)}: run `pledger init` as an administrator"
    wanted = ", ".join(_quoted(one.name, connection) for one in lacking)
    user = lacking[0].user
    cure = f"GRANT {wanted} TO {_quoted(user, connection)}"
    if any(one.member for one in lacking):  # it is a member, but does not inherit, or may not SET ROLE
        new = connection.info.server_version >= 160000
        cure = (
            f"{cure} WITH INHERIT TRUE, SET TRUE"
            if new
            else f"ALTER ROLE {_quoted(user, connection)} INHERIT"
        )
    return f"{says}, and {user} cannot use {' and '.join(one.name for one in lacking)}: {cure};"


def _quoted(name: str, connection: Connection) -> str:
    return sql.Identifier(name).as_string(connection)
