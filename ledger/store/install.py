"""Making and checking a ledger in a database: roles, tables by numbered migrations, functions each time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.pq import TransactionStatus

from ..errors import BadInput, BadName, DamagedLedger, NoPermission, ReadOnly, SchemaMismatch
from . import sql as scripts
from .faults import ledger_errors

ROLES = ("owner", "writer", "reader", "projector", "eraser")
EVERYDAY = ("writer", "reader", "projector")
RACED = (pg.UniqueViolation, pg.DuplicateObject, pg.InternalError_)
"""Two transactions made or granted one role."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a ledger is, and what was seen of it when it was asked."""

    ledger: UUID
    lock_class: int
    created_at: datetime
    schema_number: int
    last_position: int
    max_position: int
    standby: bool
    cache: int = 1


def checked_schema(schema: str) -> str:
    """The name itself, if it can be a ledger's schema."""
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        wrong = "must be lower-case letters, digits and '_', at most 40, no digit or 'pg_' first"
        raise BadName("schema", schema, wrong)
    return schema


def views_schema(schema: str) -> str:
    """The schema in which the views of the ledger in `schema` are."""
    return f"{schema}_views"


def newest() -> int:
    """The number of the newest migration that this code knows."""
    return scripts.migrations()[-1].number


def init(connection: psycopg.Connection[Any], schema: str = "ledger") -> Identity:
    """Make the ledger in this database, or bring it up to this code; doing it again changes nothing.

    Needs a role that may create roles and a schema. Raises SchemaMismatch where the ledger is newer than the
    code or the schema holds something else, NoPermission where the role may not.
    """
    checked_schema(schema)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise BadInput(
            "the connection is in a transaction: commit it first; an installation is one of its own"
        )
    with ledger_errors():
        for attempt in range(10):
            try:
                with connection.transaction():
                    _install(connection, schema)
                break
            except RACED:  # roles are the whole server's: an installation in another database made them
                if attempt == 9:
                    raise
                time.sleep(0.02 * 2**attempt * random.random())
    return identify(connection, schema)


def _install(connection: psycopg.Connection[Any], schema: str) -> None:
    run = partial(_run, connection, schema)
    run("install_lock")
    _check_server(connection)
    _make_roles(connection, schema)
    (there,) = run("has_schema", schema).fetchone() or (False,)
    if not there:
        _make_schema(connection, schema)
    elif not is_there(connection, schema):
        raise SchemaMismatch(f"schema {schema!r} is there and holds no ledger: choose another, or drop it")
    _make_views_schema(connection, schema)
    let_make_schemas(connection, schema)
    run("enter_schema")
    run("become_owner", role="owner")
    if there:
        _migrate(connection, schema)
    else:
        _create(connection, schema)
    for script in scripts.functions():
        connection.execute(script.text)
    connection.execute(scripts.grants().format(schema=sql.Identifier(schema), **_roles(schema)))


def is_there(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Whether the schema holds a ledger."""
    with ledger_errors():
        return _run(connection, schema, "has_ledger", schema).fetchone() == (True,)


def identify(connection: psycopg.Connection[Any], schema: str) -> Identity:
    """Who the ledger in `schema` is. Raises SchemaMismatch where there is none."""
    with ledger_errors():
        row = _run(connection, schema, "identity").fetchone()
    if row is None:
        raise SchemaMismatch(f"the ledger in schema {schema!r} has no identity: run `pledger init`")
    return Identity(*row)


def check(identity: Identity) -> None:
    """Refuse a ledger that this code cannot serve, or that contradicts itself."""
    if identity.schema_number != newest():
        raise SchemaMismatch(_misfit(identity.schema_number))
    if identity.standby:
        raise ReadOnly("this server is a standby; a ledger is written and followed on the primary only")
    if identity.cache != 1:
        raise DamagedLedger(
            f"the sequence of positions has CACHE {identity.cache}, with which readers skip events: "
            "ALTER SEQUENCE positions CACHE 1 before anything is appended"
        )
    if identity.last_position < identity.max_position:
        raise DamagedLedger(
            f"the sequence of positions is at {identity.last_position}, behind the last event "
            f"{identity.max_position}: it was restored without its sequence; set it with setval before "
            "anything is appended"
        )


def _check_server(connection: psycopg.Connection[Any]) -> None:
    if connection.info.server_version < 150000:
        raise SchemaMismatch(
            f"PostgreSQL {connection.info.server_version // 10000} is too old: 15 to 18 are supported"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaMismatch(f"the database's encoding is {encoding}; a ledger needs UTF8")


def _make_roles(connection: psycopg.Connection[Any], schema: str) -> None:
    roles = {f"{schema}_{kind}": kind for kind in ROLES}
    known: dict[str, bool] = dict(_run(connection, schema, "known_roles", list(roles)).fetchall())
    superuser = _run(connection, schema, "is_superuser").fetchone() == (True,)
    wanted = {
        role: [("create_role", kind)] * (role not in known)
        + [(_how_to_join(connection, kind), kind)] * (not superuser and not known.get(role))
        for role, kind in roles.items()
    }
    steps = [step for steps in wanted.values() for step in steps]
    try:
        for name, kind in steps:
            _run(connection, schema, name, role=kind)
    except pg.InsufficientPrivilege as error:
        raise _not_allowed(connection, schema, error, steps) from error


def _not_allowed(
    connection: psycopg.Connection[Any], schema: str, error: psycopg.Error, steps: Sequence[tuple[str, str]]
) -> NoPermission:
    """What an administrator must run, where the installing user may not."""
    user = sql.Identifier(connection.info.user).as_string()
    needed = [scripts.statement(name, schema, kind).as_string() for name, kind in steps]
    lines = [line for text in needed for line in text.splitlines() if not line.startswith("--")]
    todo = " ".join(f"{line};" for line in lines).replace("CURRENT_USER", user)
    return NoPermission(
        f"{user} may not make the ledger's roles ({error.diag.message_primary}): let an administrator "
        f"run `pledger init`, or run {todo} and then `pledger init` again"
    )


def _make_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    try:
        _run(connection, schema, "create_schema", role="owner")
    except pg.InsufficientPrivilege as error:
        user, database = (
            sql.Identifier(n).as_string() for n in (connection.info.user, connection.info.dbname)
        )
        raise NoPermission(
            f"{user} may not make schema {schema!r} ({error.diag.message_primary}): let an administrator "
            f"run GRANT CREATE ON DATABASE {database} TO {user};"
        ) from error


def _make_views_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """The schema of views, and the way into it; it is the projector's, who alone may open it to others."""
    found = _run(connection, schema, "views_owner", views_schema(schema)).fetchone()
    projector = _roles(schema)["projector"].as_string(connection).strip('"')
    if found is None:
        _run(connection, schema, "create_views_schema", role="projector")
    elif found[0].strip('"') != projector:
        raise SchemaMismatch(
            f"schema {views_schema(schema)!r}, in which this ledger's views would be, is there and belongs "
            f"to {found[0]}: choose another name for the ledger's schema, or drop it"
        )
    _run(connection, schema, "become_projector", role="projector")
    _run(connection, schema, "open_views_schema")
    _run(connection, schema, "become_oneself")


def let_make_schemas(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Let the ledger's owner make schemas in the database, where we may; whether it may now."""
    owner = _roles(schema)["owner"].as_string(connection).strip('"')
    may, we_may = _run(connection, schema, "may_make_schemas", owner).fetchone() or (False, False)
    if we_may and not may:
        _run(connection, schema, "let_make_schemas", role="owner")
    return bool(may or we_may)


def _how_to_join(connection: psycopg.Connection[Any], kind: str) -> str:
    everyday = kind in EVERYDAY or connection.info.server_version < 160000
    return "join_role" if everyday else "join_role_on_demand"


def _create(connection: psycopg.Connection[Any], schema: str) -> None:
    connection.execute(scripts.schema())
    _run(connection, schema, "create_identity", uuid4())
    for script in scripts.migrations():
        _run(connection, schema, "note_migration", script.number, script.name)


def _migrate(connection: psycopg.Connection[Any], schema: str) -> None:
    done = {number for (number,) in _run(connection, schema, "done_migrations").fetchall()}
    if done - {script.number for script in scripts.migrations()}:
        raise SchemaMismatch(_misfit(max(done)))
    for script in scripts.migrations():
        if script.number not in done:
            connection.execute(script.text)
            _run(connection, schema, "note_migration", script.number, script.name)


def _misfit(number: int) -> str:
    cure = "run `pledger init`" if number < newest() else "install a newer pipeline-ledger"
    return f"the ledger is at schema {number}, this code at {newest()}: {cure}"


def _run(
    connection: psycopg.Connection[Any], schema: str, name: str, *parameters: Any, role: str = ""
) -> psycopg.Cursor[Any]:
    return connection.execute(scripts.statement(name, schema, role), parameters or None)


def _roles(schema: str) -> dict[str, sql.Identifier]:
    return {kind: sql.Identifier(f"{schema}_{kind}") for kind in ROLES}
