"""Checks of requests before any route is called: the size of the body, and which web page calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import problem

PATIENCE: Final = 30.0
"""Seconds in which a client must send the next part of a body."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Bytes of a body, at most; an event of the ledger is far smaller."""
TOO_SLOW: Final = f"the body did not go on for {PATIENCE:g} s"
TOO_LARGE: Final = f"the body is larger than {MAX_BODY} bytes"


class Limits:
    """Refuses bodies that are too large, with 413, also those that do not say so; too slow ones, with 408."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = dict(scope["headers"]).get(b"content-length", b"0")
        if not given.isdigit() or int(given) > MAX_BODY:
            refusal = problem(413, "BodyTooLarge", TOO_LARGE, {"Connection": "close"})
            return await refusal(scope, receive, send)
        left, whole = MAX_BODY, False

        async def counted() -> Message:
            nonlocal left, whole
            if whole:  # what comes then is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout(PATIENCE):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, TOO_SLOW, {"Connection": "close"}) from None
            left, whole = left - len(message.get("body", b"")), not message.get("more_body", False)
            if left < 0:
                raise HTTPException(413, TOO_LARGE, {"Connection": "close"})
            return message

        return await self._app(scope, counted, send)


class OnlyFrom:
    """Refuses requests and sockets of web pages of other origins, with 403.

    For a server that trusts requests without a token: any page in a browser of this machine could send one.
    hosts: names under which the server may be called. origins: those whose pages may call.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str]) -> None:
        self._app, self._hosts, self._origins = app, hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it comes from no page, or from one of ours."""
        if scope["type"] in ("http", "websocket") and (detail := self._refused(dict(scope["headers"]))):
            return await problem(403, "ForeignPage", detail)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _refused(self, headers: dict[bytes, bytes]) -> str:
        host = headers.get(b"host", b"").decode("latin-1")
        if host.rpartition(":")[0].strip("[]") not in self._hosts and host not in self._hosts:
            return (
                f"without tokens the server answers only as {', '.join(sorted(self._hosts))}, not as {host!a}"
            )
        origin = headers.get(b"origin")
        if origin is None or origin.decode("latin-1") in (*self._origins, f"http://{host}"):
            return ""
        return (
            f"pages of {origin.decode('latin-1')!a} may not call a server without tokens; see --allow-origin"
        )
