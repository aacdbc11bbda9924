"""Installs and checks a ledger in a database: roles, numbered migrations, and the functions each time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.pq import TransactionStatus

from ..errors import BadInput, BadName, DamagedLedger, NoPermission, ReadOnly, SchemaMismatch
from . import sql as scripts
from .server_errors import ledger_errors

ROLES = ("owner", "writer", "reader", "projector", "eraser")
EVERYDAY = ("writer", "reader", "projector")
RACED = (pg.UniqueViolation, pg.DuplicateObject, pg.InternalError_)
"""Two transactions created or granted the same role."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a ledger, and its condition when it was read."""

    ledger: UUID
    lock_class: int
    created_at: datetime
    schema_number: int
    last_position: int
    max_position: int
    standby: bool
    cache: int = 1
    subscribed: bool = False
    oldest_code: int | None = None
    """The schema number of the oldest code that may use it; read only for a newer ledger."""


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
    """The number of the newest migration in this code."""
    return scripts.migrations()[-1].number


def init(connection: psycopg.Connection[Any], schema: str = "ledger") -> Identity:
    """Make the ledger in this database, or upgrade it to this code; repeating it changes nothing.

    Needs a role that may create roles and a schema. Raises SchemaMismatch where the ledger is newer than the
    code or the schema holds something else, NoPermission where the role may not.
    """
    checked_schema(schema)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise BadInput(
            "the connection is in a transaction: commit it first; an installation needs a transaction of "
            "its own"
        )
    with ledger_errors():
        for attempt in range(10):
            try:
                with connection.transaction():
                    _install(connection, schema)
                break
            except RACED:  # roles belong to the whole server: an installation in another database made them
                if attempt == 9:
                    raise
                time.sleep(0.02 * 2**attempt * random.random())
    return identify(connection, schema)


def _install(connection: psycopg.Connection[Any], schema: str) -> None:
    run = partial(_run, connection, schema)
    run("install_lock")
    _check_server(connection)
    _make_roles(connection, schema)
    let_make_schemas(connection, schema)
    there = is_there(connection, schema)
    if not there:
        make_schema(connection, schema)
    make_schema_of(connection, schema, "views", "projector")
    make_schema_of(connection, schema, "effects", "owner")
    _open_views_schema(connection, schema)
    run("enter_schema")
    run("become_owner", role="owner")
    _migrate(connection, schema, new=not there)
    for script in scripts.functions():
        connection.execute(script.text)
    connection.execute(scripts.grants().format(schema=sql.Identifier(schema), **_roles(schema)))


def is_there(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Whether the schema holds a ledger."""
    with ledger_errors():
        return _run(connection, schema, "has_ledger", schema).fetchone() == (True,)


def identify(connection: psycopg.Connection[Any], schema: str) -> Identity:
    """The identity of the ledger in `schema`. Raises SchemaMismatch where there is none, NoPermission."""
    try:
        with ledger_errors():
            row = _run(connection, schema, "identity").fetchone()
    except NoPermission as error:
        raise _stranger(connection, schema) from error
    if row is None:
        raise SchemaMismatch(f"the ledger in schema {schema!r} has no identity: run `pledger init`")
    found = Identity(*row)
    if found.schema_number > newest():
        if is_prerelease(applied(connection, schema)):
            raise SchemaMismatch(f"{PRERELEASE}: {PRERELEASE_REMEDY}")
        found = replace(found, oldest_code=oldest_code(connection, schema))
    return found


def _stranger(connection: psycopg.Connection[Any], schema: str) -> NoPermission:
    """The grants that a login without any of the everyday roles needs, for each program."""
    user = sql.Identifier(connection.info.user).as_string()
    writer, reader = (_roles(schema)[kind].as_string() for kind in ("writer", "reader"))
    return NoPermission(
        f"{user} has none of the roles of the ledger in schema {schema!r}: run GRANT {reader} TO {user}; "
        f"for a program that only reads, GRANT {writer}, {reader} TO {user}; for one that appends"
    )


def applied(connection: psycopg.Connection[Any], schema: str) -> dict[int, str]:
    """The names of the applied migrations, by their numbers."""
    with ledger_errors():
        return dict(_run(connection, schema, "applied_migrations").fetchall())


def is_prerelease(migrations: Mapping[int, str]) -> bool:
    """Whether a development version before 0.1.0 applied them: the first one then had another name."""
    first = scripts.migrations()[0]
    return migrations.get(first.number, first.name) != first.name


PRERELEASE: Final = "a development version before 0.1.0 made this ledger, and this code cannot migrate it"
PRERELEASE_REMEDY: Final = "export its events with that version, and import them into a new ledger"
"""The migrations of the development versions were replaced by a single one."""


def oldest_code(connection: psycopg.Connection[Any], schema: str) -> int:
    """The schema number of the oldest code that may use a ledger newer than this code."""
    with ledger_errors():
        row = _run(connection, schema, "oldest_code").fetchone()
    return int(row[0]) if row else newest() + 1


def check(identity: Identity) -> None:
    """Refuse a ledger that this code cannot serve, or that contradicts itself.

    A newer ledger is served if its migrations allow older code.
    """
    if not fits(identity.schema_number, identity.oldest_code):
        raise SchemaMismatch(_misfit(identity.schema_number))
    if identity.standby:
        raise ReadOnly("this server is a standby; a ledger is written and read on the primary only")
    if identity.subscribed:
        raise ReadOnly(
            "the events of this database come by a logical subscription, in the order of commits and not of "
            "positions, so readers would skip some: use the publisher; or make this database the primary: "
            "stop all appends there, wait until all events have arrived, drop the subscription, and run "
            "`pledger doctor`"
        )
    if identity.cache != 1:
        raise DamagedLedger(
            f"the sequence of positions has CACHE {identity.cache}, with which readers skip events: "
            "ALTER SEQUENCE positions CACHE 1 before anything is appended"
        )
    if identity.last_position < identity.max_position:
        raise DamagedLedger(
            f"the sequence of positions is at {identity.last_position}, behind the last event "
            f"{identity.max_position}: it was restored without its sequence, or reset; stop all appends, "
            "then set the sequence as `pledger doctor` shows"
        )


def fits(number: int, oldest: int | None) -> bool:
    """Whether this code may use a ledger at this schema number, the oldest code for which is known."""
    return number == newest() or (number > newest() and oldest is not None and oldest <= newest())


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
    ours = [f"{schema}_owner", f"{schema}_projector"]
    if _run(connection, schema, "owner_projects", *ours).fetchone() != (True,):
        steps.append(("let_owner_project", "owner"))
    try:
        for name, kind in steps:
            _run(connection, schema, name, role=kind)
    except pg.InsufficientPrivilege as error:
        raise _not_allowed(connection, schema, error, steps) from error


def _not_allowed(
    connection: psycopg.Connection[Any], schema: str, error: psycopg.Error, steps: Sequence[tuple[str, str]]
) -> NoPermission:
    """The statements that an administrator must run, where the installing user may not."""
    user = sql.Identifier(connection.info.user).as_string()
    needed = [scripts.statement(name, schema, kind).as_string() for name, kind in steps]
    lines = [line for text in needed for line in text.splitlines() if not line.startswith("--")]
    todo = " ".join(f"{line};" for line in lines).replace("CURRENT_USER", user)
    return NoPermission(
        f"{user} may not make the ledger's roles ({error.diag.message_primary}): let an administrator "
        f"run `pledger init`, or run {todo} and then `pledger init` again"
    )


def _open_views_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Grant access to the schema of views; only its owner, the projector, may do this."""
    _run(connection, schema, "become_projector", role="projector")
    _run(connection, schema, "open_views_schema")
    _run(connection, schema, "become_oneself")


def let_make_schemas(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Let the ledger's owner create schemas in the database, if we may; returns whether it may now."""
    owner = _roles(schema)["owner"].as_string(connection).strip('"')
    may, we_may = _run(connection, schema, "may_make_schemas", owner).fetchone() or (False, False)
    if we_may and not may:
        _run(connection, schema, "let_make_schemas", role="owner")
    return bool(may or we_may)


def _how_to_join(connection: psycopg.Connection[Any], kind: str) -> str:
    everyday = kind in EVERYDAY or connection.info.server_version < 160000
    return "join_role" if everyday else "join_role_on_demand"


def _migrate(connection: psycopg.Connection[Any], schema: str, *, new: bool) -> None:
    """Run the migrations that the ledger lacks; a new ledger gets all of them."""
    known = scripts.migrations()
    done = {} if new else applied(connection, schema)
    if is_prerelease(done):
        raise SchemaMismatch(f"{PRERELEASE}: {PRERELEASE_REMEDY}")
    if done.keys() - {script.number for script in known}:
        raise SchemaMismatch(_misfit(max(done)))
    missing = [script for script in known if script.number not in done]
    for script in missing:
        connection.execute(script.text)
    if new:
        _run(connection, schema, "create_identity", uuid4())
    for script in missing:  # after all of them: one may change the table of migrations
        _note(connection, schema, script)


def _note(connection: psycopg.Connection[Any], schema: str, script: scripts.Script) -> None:
    _run(connection, schema, "note_migration", script.number, script.name, script.oldest_code)


def _misfit(number: int) -> str:
    cure = "run `pledger init`" if number < newest() else "install a newer pipeline-ledger"
    return f"the ledger is at schema {number}, this code at {newest()}: {cure}"


def _run(
    connection: psycopg.Connection[Any], schema: str, name: str, *parameters: Any, role: str = ""
) -> psycopg.Cursor[Any]:
    return connection.execute(scripts.statement(name, schema, role), parameters or None)


def _roles(schema: str) -> dict[str, sql.Identifier]:
    return {kind: sql.Identifier(f"{schema}_{kind}") for kind in ROLES}


SHARED: Final = ("public", "information_schema")
"""Schemas that a database has anyway, for all of its programs."""


def make_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """The schema of a new ledger. Raises SchemaMismatch where it holds something, NoPermission."""
    if schema in SHARED:
        raise SchemaMismatch(
            f"schema {schema!r} exists and is not a ledger: choose another name, such as 'ledger', because "
            "all programs of the database share this schema"
        )
    found = _found(connection, schema)
    if found is None:
        _make(connection, schema, schema, "create_schema", "owner")
    elif not found[1]:
        raise SchemaMismatch(
            f"schema {schema!r} exists and is not a ledger: choose another name, or an empty schema"
        )
    elif found[0] != f"{schema}_owner":
        _take(connection, schema, schema, "take_schema", "owner")


def make_schema_of(connection: psycopg.Connection[Any], schema: str, what: str, kind: str) -> None:
    """Make an additional schema of a ledger, owned by the role for this kind.

    `views` belongs to the projector; `effects`, for what runs in appends as the projector, to the owner.
    Raises SchemaMismatch where it belongs to another role and is not empty, NoPermission.
    """
    place = f"{schema}_{what}"
    found = _found(connection, place)
    if found is None:
        _make(connection, schema, place, f"create_{what}_schema", kind)
    elif found[0] == f"{schema}_{kind}":
        return
    elif found[1]:
        _take(connection, schema, place, f"take_{what}_schema", kind)
    else:
        raise SchemaMismatch(
            f"schema {place!r}, which this ledger needs for {what}, exists and belongs to {found[0]}: "
            "choose another name for the ledger's schema, or empty that one"
        )


def _found(connection: psycopg.Connection[Any], place: str) -> tuple[str, bool] | None:
    """The owner of a schema, and whether it is empty; None where there is none."""
    rows = connection.execute(scripts.statement("found_schema", place), [place]).fetchall()
    return None if not rows else (str(rows[0][0]), bool(rows[0][1]))


def _make(connection: psycopg.Connection[Any], schema: str, place: str, name: str, kind: str) -> None:
    try:
        connection.execute(scripts.statement(name, schema, kind))
    except pg.InsufficientPrivilege as error:
        user, database = _quoted(connection.info.user), _quoted(connection.info.dbname)
        raise NoPermission(
            f"{user} may not make schema {place!r} ({error.diag.message_primary}): let an administrator "
            f"run GRANT CREATE ON DATABASE {database} TO {user};"
        ) from error


def _take(connection: psycopg.Connection[Any], schema: str, place: str, name: str, kind: str) -> None:
    """Make a role of the ledger the owner of an empty schema."""
    try:
        connection.execute(scripts.statement(name, schema, kind))
    except pg.InsufficientPrivilege as error:
        raise NoPermission(
            f"{_quoted(connection.info.user)} may not take the empty schema {place!r} "
            f"({error.diag.message_primary}): let an administrator run "
            f"ALTER SCHEMA {_quoted(place)} OWNER TO {_quoted(f'{schema}_{kind}')};"
        ) from error


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()
