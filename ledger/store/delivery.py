"""Delivering an append: what may be tried again, and what may not."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import psycopg

from ..append import Append, Appended
from ..errors import AppendUncertain, LedgerBusy, ServerUnavailable, StreamConflict
from ..expected import Exact
from ..recorded import Meta
from .connections import Connections
from .faults import TRANSIENT, translated
from .sending import send


class Delivery:
    """Sends appends, and sends them again only where that can record nothing twice.

    A transaction that the server rolled back (serialization, deadlock) did nothing: again. A connection that
    broke may have committed: again if a command id makes it idempotent, or if every expectation is an exact
    version, which a first success would have used up; a conflict is then no longer proof of another writer,
    so it is reported as uncertain. Everything else is reported as uncertain at once.
    """

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections, self._schema = connections, schema

    def deliver(self, appends: Sequence[Append], meta: Meta) -> Appended:
        """Record the appends in a transaction of their own. Raises Refused, BadInput, ServerUnavailable."""
        body, repeatable = meta.body(), meta.command is not None or _exact(appends)
        deadline = time.monotonic() + self._connections.patience
        broken = False
        for attempt in range(1000):
            try:
                with self._connections.connection() as connection:
                    try:
                        return send(connection, self._schema, appends, body, meta.command)
                    except psycopg.Error as error:
                        lost = connection.closed
                        broken = broken or lost
                        if lost and not repeatable:
                            raise AppendUncertain(append.stream for append in appends) from error
                        if not (lost or isinstance(error, TRANSIENT)) or time.monotonic() > deadline:
                            raise translated(error) or error from error
            except StreamConflict as conflict:
                if broken and meta.command is None:
                    raise AppendUncertain(append.stream for append in appends) from conflict
                raise
            except LedgerBusy:
                raise
            except ServerUnavailable as error:
                if broken and meta.command is None:
                    raise AppendUncertain(append.stream for append in appends) from error
                raise
            time.sleep(min(0.5, 0.002 * 2 ** min(attempt, 8)) * random.random())
        raise LedgerBusy("other transactions kept coming between; nothing was stored; try again")


def _exact(appends: Sequence[Append]) -> bool:
    return all(isinstance(append.expected, Exact) for append in appends)
