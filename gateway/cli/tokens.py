"""`pledger token`: who may use the HTTP server, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import Misuse
from .output import Column, plain, titled
from .session import AsJson, session_of

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name: the actor of what its client records.")]
OfRole = Annotated[str, typer.Option("--role", metavar="ROLE", help="reader, operator or admin.")]


def add(context: typer.Context, name: Name, role: OfRole = "reader", as_json: AsJson = False) -> None:
    """Add a token, and print it: it is shown only now.

    A reader may look; an operator may also submit, cancel, comment and move; an admin may also redrive and
    discard dead letters. Only a hash of the token is stored. A name is used only once. Needs the ledger's
    role owner.

    \b
    Examples:
      pledger token add dashboard
      pledger token add "night shift" --role operator

    JSON: token, name, role, added_at, added_by, revoked_at (null).
    """
    from ledger.tokens import Role, Tokens

    session = session_of(context, as_json)
    if role not in [*Role]:
        raise Misuse(f"--role {role!r} must be {', '.join(Role)}")
    with session.ledger() as log:
        secret, made = Tokens(log).add(name, Role(role))
    session.print_fields({"token": secret, **plain(made)}, {"token": secret})
    session.say(f"{made.name} is {made.role}; the token is shown only now")


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the tokens by name, also revoked ones.

    JSON, one object per line: name, role, added_at, added_by, revoked_at (null while it is valid).
    """
    from ledger.tokens import Tokens

    session = session_of(context, as_json)
    with session.ledger() as log:
        found = Tokens(log).all()
    columns = [Column("token", keep=True), *titled("role", "added", "by", "revoked")]
    session.print_rows(found, columns, lambda one: list(one))
    if not found:
        session.say("there is no token: `pledger token add` makes one")


def revoke(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Revoke a token for ever; a server refuses it after at most 5 seconds. Needs the ledger's role owner.

    JSON: name, role, added_at, added_by, revoked_at.
    """
    from ledger.tokens import Tokens

    session = session_of(context, as_json)
    with session.ledger() as log:
        done = Tokens(log).revoke(name)
    session.print_fields(plain(done))
