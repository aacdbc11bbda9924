"""
Who may call what: a route names the role that it needs, and a request proves its role by a bearer token.

Every route has exactly one of OPEN, READER, OPERATOR, ADMIN as a dependency; a test walks all of them. A
token is looked up in the ledger and remembered for a few seconds, which is also how long a revoked one may
still be used.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from ledger import Ledger
from ledger.tokens import Role, Tokens

from .problems import Refusal

REMEMBERED: Final = 5.0
"""Seconds for which a token is known without a look into the ledger."""
MOST: Final = 10_000
"""Tokens that are remembered; beyond it all are forgotten."""


class Caller(NamedTuple):
    """Who calls: the actor of what is recorded, and what it may do."""

    name: str
    role: Role


class Access:
    """The callers of a server. without_token: the role of requests without a token; None refuses them."""

    def __init__(self, ledger: Ledger, without_token: Role | None = None) -> None:
        self._tokens = Tokens(ledger)
        self._nobody = None if without_token is None else Caller(ledger.actor, without_token)
        self._known: dict[bytes, tuple[float, Caller | None]] = {}

    async def caller(self, secret: str | None) -> Caller:
        """The caller with this secret. Raises Refusal: 401."""
        if secret is None:
            if self._nobody is None:
                raise _stranger("give a token: Authorization: Bearer …; `pledger token add` makes one")
            return self._nobody
        key = sha256(secret.encode()).digest()
        until, caller = self._known.get(key, (0.0, None))
        if until < (now := time.monotonic()):
            token = await asyncio.to_thread(self._tokens.valid, secret)
            caller = None if token is None else Caller(token.name, token.role)
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = now + REMEMBERED, caller
        if caller is None:
            raise _stranger("this token is not valid: it was never added, or it was revoked")
        return caller


def _stranger(detail: str) -> Refusal:
    return Refusal(401, "Unauthorized", detail, WWW_Authenticate="Bearer")


class Needs(HTTPBearer):
    """The dependency of a route that needs a role; OpenAPI says so too."""

    def __init__(self, role: Role) -> None:
        super().__init__(description="A token that `pledger token add` printed.", auto_error=False)
        self.scheme_name, self.role = "token", role

    async def __call__(self, request: Request) -> Caller:  # type: ignore[override]  # who, and not what
        """The caller. Raises Refusal: 401 without a valid token, 403 if its role is too small."""
        given = request.headers.get("authorization")
        scheme, _, secret = (given or "").partition(" ")
        if given is not None and (scheme.lower() != "bearer" or not secret.strip()):
            raise _stranger("the header Authorization must be: Bearer TOKEN")
        access: Access = request.app.state.access
        caller = await access.caller(None if given is None else secret.strip())
        if not caller.role.covers(self.role):
            detail = f"{caller.name} is {caller.role}, and this needs {self.role}"
            raise Refusal(403, "Forbidden", detail)
        return caller


class Open:
    """The dependency of a route that everybody may call."""

    role = None

    async def __call__(self) -> None:
        """Let everybody pass."""


OPEN: Any = Depends(Open())
READER: Any = Depends(Needs(Role.READER))
OPERATOR: Any = Depends(Needs(Role.OPERATOR))
ADMIN: Any = Depends(Needs(Role.ADMIN))
Operator = Annotated[Caller, OPERATOR]
Admin = Annotated[Caller, ADMIN]


async def _ledger_of(request: Request) -> Ledger:
    ledger: Ledger = request.app.state.ledger
    return ledger


Log = Annotated[Ledger, Depends(_ledger_of)]
"""The ledger of the server."""
