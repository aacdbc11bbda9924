"""
`/logs/out`: the lines that runs log, as they arrive; `prefect flow-run watch` and `--watch` read it.

A client sends `{"type": "filter", "filter": {…}}` after its login and gets `{"type": "log", "log": {…}}` for
each line that arrives from then on. What is no filter is answered by a close with 1002.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from starlette.websockets import WebSocket

from ledger import Ledger, ServerUnavailable
from ledger.runs.leases import RunLeases
from ledger.runs.run_logs import RunLogs
from ledger.tokens import Role

from .socket_login import admitted, asked
from .socket_sender import PATIENCE, gone

if TYPE_CHECKING:
    from .socket_routes import Sockets

LOOK: Final = 0.25
"""Seconds between two looks for new lines."""
OVERLAP: Final = timedelta(seconds=1)
"""How much later than others a line may be seen that arrived at the same time."""
PAGE: Final = 1000
"""Lines that are read at once."""


class NewLogs:
    """The lines that arrive from now on and fulfil a filter. Reads at once, so that a bad filter is refused.

    Raises BadInput.
    """

    def __init__(self, ledger: Ledger, wanted: Mapping[str, Any]) -> None:
        self._logs, self._wanted = RunLogs(ledger), wanted
        self._since = RunLeases(ledger).clock() - OVERLAP
        self._seen: dict[str, datetime] = {}
        while self.next():
            pass

    def next(self) -> list[dict[str, Any]]:
        """The lines that arrived since the last call; each comes once."""
        page = self._logs.arrived(self._wanted, self._since, PAGE + len(self._seen))
        new = [line for line in page if line["id"] not in self._seen]
        self._seen |= {line["id"]: datetime.fromisoformat(line["created"]) for line in new}
        if new:
            self._since = max(self._since, max(self._seen.values()) - OVERLAP)
            self._seen = {id: at for id, at in self._seen.items() if at >= self._since}
        return new


async def logs_out(websocket: WebSocket) -> None:
    """Tell a client the lines that it wants, until it is gone."""
    if await admitted(websocket, Role.READER) is None:
        return
    sockets: Sockets = websocket.app.state.sockets

    async def wanted(message: dict[str, Any]) -> NewLogs:
        given = message.get("filter")
        if not isinstance(given, dict | None):
            raise ValueError("no filter")
        return await to_thread.run_sync(NewLogs, sockets.ledger, given or {}, limiter=sockets.limiter)

    if (new := await asked(websocket, wanted)) is not None:
        telling = asyncio.ensure_future(_tell(websocket, sockets, new))
        await gone(websocket, telling)


async def _tell(websocket: WebSocket, sockets: Sockets, new: NewLogs) -> None:
    while True:
        lines: list[dict[str, Any]] = []
        with suppress(ServerUnavailable):
            lines = await to_thread.run_sync(new.next, limiter=sockets.limiter)
        async with asyncio.timeout(PATIENCE):
            for line in lines:
                await websocket.send_text(json.dumps({"type": "log", "log": line}))
        if not lines:
            await asyncio.sleep(LOOK)
