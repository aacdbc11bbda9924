"""
Who calls the Prefect API: a token of the ledger, as Prefect's clients can send it.

A client with `PREFECT_API_AUTH_STRING=laptop:pledger_…` sends HTTP's Basic; one with `PREFECT_API_KEY` sends
Bearer. The token is the password; the name before the colon is the client's own, and is not looked at.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Mapping

from ledger.tokens import Role

from ..access import Access, Caller
from ..problems import Refusal


async def caller_of(access: Access, authorization: str | None, needed: Role) -> Caller:
    """Who sends a request with this header.

    Raises Refusal: 401 without a valid token, 403 if its role is too small.
    """
    try:
        caller = await access.caller(None if authorization is None else _secret(authorization))
    except Refusal as refusal:
        raise _stranger() from refusal
    if not caller.role.covers(needed):
        raise Refusal(403, "Forbidden", f"{caller.name} is {caller.role}, and this needs {needed}")
    return caller


def secret_of_login(login: str) -> str:
    """The token in a login `user:token`, or in a bare token; sockets send it in their first message."""
    _, colon, secret = login.partition(":")
    return secret if colon else login


def _secret(authorization: str) -> str:
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    match scheme.lower():
        case "bearer" if given:
            return secret_of_login(given)
        case "basic" if given:
            try:
                return secret_of_login(b64decode(given, validate=True).decode())
            except (Error, UnicodeDecodeError, ValueError):
                pass
    raise _stranger()


def _stranger() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized", WWW_Authenticate='Basic realm="pledger"')


def actor_of(caller: Caller, headers: Mapping[str, str]) -> str:
    """The actor of what is recorded: the token's name, and what Prefect's client says of itself (2.6)."""
    parts = [caller.name]
    for what in ("worker", "deployment", "flow"):
        if name := headers.get(f"x-prefect-{what}-name") or headers.get(f"x-prefect-{what}-id"):
            parts.append(f"{what} {_readable(name)}")
    return ", ".join(parts)


def _readable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:200])
