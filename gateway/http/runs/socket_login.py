"""
How a client of a socket proves who it is, as Prefect's clients do it.

A client asks for the subprotocol `prefect`, sends `{"type": "auth", "token": "user:pledger_…"}` first, also
where no token is needed (`null` then), and gets `{"type": "auth_success"}`; without a valid token, or with
one whose role is too small, the socket is closed with 1008. Clients of before do not ask for the subprotocol
and send no such message: they are let in by the header Authorization, or where no token is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from ledger import BadInput, ServerUnavailable
from ledger.tokens import Role

from ..access import Access, Caller
from ..problems import Refusal
from .logins import caller_of, secret_of_login

HANDSHAKE: Final = 30.0
"""Seconds in which a client must send what a socket begins with."""
FORBIDDEN: Final = 1008
LATER: Final = 1013
PROTOCOL_ERROR: Final = 1002

T = TypeVar("T")


async def admitted(websocket: WebSocket, needed: Role) -> Caller | None:
    """Accept a socket and let its client in; None: it was refused, or is gone."""
    try:
        if "prefect" in websocket.scope["subprotocols"]:
            await websocket.accept("prefect")
            return await _greeted(websocket, needed)
        access: Access = websocket.app.state.access
        caller = await caller_of(access, websocket.headers.get("authorization"), needed)
        await websocket.accept()
    except Refusal as refusal:
        await websocket.close(FORBIDDEN, refusal.detail[:120])
    except ServerUnavailable:
        await websocket.close(LATER, "the ledger cannot be reached")
    except (TimeoutError, ValueError):
        await websocket.close(FORBIDDEN, "Expected 'auth' message")
    except WebSocketDisconnect:
        pass
    else:
        return caller
    return None


async def first_message(websocket: WebSocket) -> dict[str, object]:
    """The next message, a JSON object. Raises TimeoutError, ValueError, WebSocketDisconnect."""
    message = await asyncio.wait_for(_object(websocket), HANDSHAKE)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


async def asked(websocket: WebSocket, read: Callable[[dict[str, Any]], Awaitable[T]]) -> T | None:
    """What `read` makes of the client's filter message; None: refused with 1002, or the client is gone.

    read: raises BadInput for a filter that cannot be used, ValueError for a message that has none.
    """
    try:
        message = await first_message(websocket)
        if message.get("type") != "filter":
            raise ValueError("no filter")
        return await read(message)
    except BadInput as error:
        await websocket.close(PROTOCOL_ERROR, f"Invalid filter: {error}"[:100])
    except (TimeoutError, ValueError):
        await websocket.close(PROTOCOL_ERROR, "Expected 'filter' message")
    except WebSocketDisconnect:
        pass
    return None


async def _object(websocket: WebSocket) -> object:
    try:
        return await websocket.receive_json()
    except KeyError as error:  # a binary frame
        raise ValueError("not a text frame") from error


async def _greeted(websocket: WebSocket, needed: Role) -> Caller:
    message = await first_message(websocket)
    token = message.get("token")
    if message.get("type") != "auth" or not isinstance(token, str | None):
        raise ValueError("no auth message")
    access: Access = websocket.app.state.access
    caller = await access.caller(secret_of_login(token) if token else None)
    if not caller.role.covers(needed):
        raise Refusal(403, "Forbidden", f"{caller.name} is {caller.role}, and this needs {needed}")
    with suppress(WebSocketDisconnect):  # a client that has closed is not told, and what it sent still counts
        await websocket.send_json({"type": "auth_success"})
    return caller
