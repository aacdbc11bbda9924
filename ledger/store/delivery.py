"""Delivering an append: what may be tried again, and what may not."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import count

import psycopg

from ..append import Append, Appended
from ..errors import AppendUncertain, ServerUnavailable, StreamConflict
from ..expected import Exact
from ..recorded import Meta
from .connections import Connections
from .faults import TRANSIENT, raise_ours
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

    def deliver(self, appends: Sequence[Append], meta: Meta, order: Sequence[int] | None = None) -> Appended:
        """Record the appends in a transaction of their own; `order` as in `send`.

        Raises Refused, BadInput, ServerUnavailable.
        """
        try:
            return self._once(appends, meta.body(), meta.command, order)
        except (_Lost, *TRANSIENT) as error:
            return self._again(error, appends, meta, order)

    def _again(
        self, last: Exception, appends: Sequence[Append], meta: Meta, order: Sequence[int] | None
    ) -> Appended:
        """Deliver what failed once, until it is delivered, refused, or the patience is over."""
        sure, lost = meta.command is not None, None
        deadline = time.monotonic() + self._connections.patience
        for attempt in count():
            if isinstance(last, _Lost):
                last = lost = last.error
                if not sure and not _exact(appends):
                    break
            if time.monotonic() > deadline:
                assert isinstance(last, psycopg.Error)
                raise_ours(last)
            time.sleep(min(0.5, 0.002 * 2 ** min(attempt, 8)) * random.random())
            try:
                return self._once(appends, meta.body(), meta.command, order)
            except (_Lost, *TRANSIENT) as error:
                last = error
            except (StreamConflict, ServerUnavailable):
                if lost is None or sure:
                    raise
                break
        raise AppendUncertain(append.stream for append in appends) from lost

    def _once(
        self, appends: Sequence[Append], meta: str, command: str | None, order: Sequence[int] | None
    ) -> Appended:
        """One attempt. Raises _Lost and TRANSIENT for what may be tried again, else the ledger's errors."""
        connections = self._connections
        try:
            line = connections.take()
        except psycopg.Error as error:
            raise_ours(error)
        try:
            return send(line, self._schema, appends, meta, command, order)
        except TRANSIENT:
            raise
        except psycopg.Error as error:
            if line.closed:
                raise _Lost(error) from error
            raise_ours(error)
        except UnicodeEncodeError as error:
            raise_ours(error)
        finally:
            connections.give_back(line)


class _Lost(Exception):
    """The connection broke while an append was under way."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


def _exact(appends: Sequence[Append]) -> bool:
    return all(isinstance(append.expected, Exact) for append in appends)
