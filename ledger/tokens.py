"""
Tokens of HTTP clients: who may use the server of a ledger, and as what.

A token is a secret of 256 random bits. Only its SHA-256 is stored: nobody can make the token from it, and a
slow hash protects nothing where there is no password to guess.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

from psycopg.errors import InsufficientPrivilege

from .errors import BadName, NoPermission, TokenExists, TokenNotFound
from .log.ledger import Ledger
from .log.pool import Connection
from .log.sql import Statements

SQL = Statements(__package__, "tokens")
PREFIX: Final = "pledger_"
"""How every token begins, so that programs that search for leaked secrets find it."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,62}\Z")


class Role(StrEnum):
    """What a client may do; each role may do all that the one before it may."""

    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Whether this role may do what the other may."""
        roles = [*Role]
        return roles.index(self) >= roles.index(other)


class Token(NamedTuple):
    """A token as the ledger knows it, without the secret. name: the actor of what its client records."""

    name: str
    role: Role
    added_at: datetime
    added_by: str
    revoked_at: datetime | None


class Tokens:
    """The tokens of a ledger. Only a member of the ledger's role owner may add and revoke them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def add(self, name: str, role: Role) -> tuple[str, Token]:
        """Add a token; returns the secret, which is shown only now, and what is stored of it.

        Raises BadName, TokenExists for a name that was ever used, NoPermission.
        """
        if not _NAME.match(name):
            wrong = "must be 1 to 63 letters, digits, spaces and . _ @ -, the first a letter or a digit"
            raise BadName("token", name, wrong)
        secret = PREFIX + secrets.token_urlsafe(32)
        given = {"hash": _hash(secret), "name": name, "role": role.value, "by": self.ledger.actor}
        with self._as_owner() as connection:
            rows = self.ledger.query(SQL.add, on=connection, **given)
        if not rows:
            raise TokenExists(name)
        return secret, _token(rows[0])

    def revoke(self, name: str) -> Token:
        """Revoke a token for ever; a repeat changes nothing. Raises TokenNotFound, NoPermission."""
        with self._as_owner() as connection:
            rows = self.ledger.query(SQL.revoke, on=connection, name=name)
        if not rows:
            raise TokenNotFound(name)
        return _token(rows[0])

    def all(self) -> list[Token]:
        """All tokens, by name, also revoked ones."""
        return [_token(row) for row in self.ledger.query(SQL.all)]

    def valid(self, secret: str) -> Token | None:
        """The token of this secret; None if there is none, or it was revoked."""
        rows = self.ledger.query(SQL.valid, hash=_hash(secret))
        return _token(rows[0]) if rows else None

    @contextmanager
    def _as_owner(self) -> Iterator[Connection]:
        """A transaction as the ledger's owner. Raises NoPermission."""
        with self.ledger.reader() as connection, connection.transaction():
            try:
                self.ledger.query(SQL.act_as_owner, on=connection)
            except InsufficientPrivilege as error:
                raise NoPermission(
                    f"only a member of {self.ledger.schema}_owner may add and revoke tokens"
                ) from error
            yield connection


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _token(row: tuple[Any, ...]) -> Token:
    name, role, added_at, added_by, revoked_at = row
    revoked = None if revoked_at is None else revoked_at.astimezone(UTC)
    return Token(name, Role(role), added_at.astimezone(UTC), added_by, revoked)
