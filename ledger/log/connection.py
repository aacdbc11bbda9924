"""A connection of our own, and a fast way to call a function on it.

An append is one small call, and psycopg's cursor costs the client two to three times what the call itself
does: a fifth of the rate of sixteen writers (`dev.py bench append --only calls`). So calls use libpq
directly.

The rule of this file: *every* result of a call is read and checked before any of it is used. For a statement
in a transaction of its own the server first sends the row, then the result of the COMMIT: a serialization
failure, a deferred constraint or a stopped backend arrives as an error after a row that looks right.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Any, Final, TypeVar, overload
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, generators, pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from ..errors import ServerUnavailable

_IDLE: Final = pq.TransactionStatus.IDLE


class CommitRefused(psycopg.DatabaseError):
    """The statement succeeded, but its commit was refused by a deferred constraint."""

    def __init__(self, reason: psycopg.Error) -> None:
        super().__init__(str(reason))
        self.reason = reason


class CallingConnection(psycopg.Connection[Any]):
    """A connection that also calls prepared statements, each in a transaction of its own.

    Only for connections that nothing else uses at the same time, in autocommit, with no transaction open.
    """

    is_proxied = False
    """Whether it leads through a proxy: then nothing is prepared."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._named: set[bytes] = set()
        self._socket = select.poll()
        self._socket.register(self.pgconn.socket, select.POLLIN)

    def call(
        self, name: bytes, statement: bytes, values: Sequence[bytes | None], formats: Sequence[int]
    ) -> bytes:
        """The one value that a statement with $1, $2, … returns, in binary, once it is committed.

        name: under which it is prepared on its first use here. formats: 0 text, 1 binary, for each value.
        Raises psycopg's errors, also those of the commit; where the connection is closed afterwards, it is
        unknown whether it was committed.
        """
        for again in (True, False):
            try:
                self.send(name, statement, values, formats)
                return self.answer()
            except BaseException as error:  # also errors raised by a signal handler
                if self.pgconn.transaction_status != _IDLE:
                    self.close()  # in the middle of an answer that will not be read
                # psycopg sends DEALLOCATE ALL after a ROLLBACK and a DROP
                if not again or not isinstance(error, errors.InvalidSqlStatementName):
                    raise
                self._named.discard(name)  # only this one: another may have been prepared since
        raise AssertionError

    def send(
        self, name: bytes, statement: bytes, values: Sequence[bytes | None], formats: Sequence[int]
    ) -> None:
        """The first half of `call`; afterwards only `answer` may use the connection."""
        if self.is_proxied:
            self.pgconn.send_query_params(statement, values, None, formats, pq.Format.BINARY)
        else:
            if name not in self._named:
                self._prepare(name, statement)
            self.pgconn.send_query_prepared(name, values, formats, pq.Format.BINARY)
        if self.pgconn.flush():  # the socket's buffer was full
            self.wait(generators.send(self.pgconn))

    def _prepare(self, name: bytes, statement: bytes) -> None:
        self.pgconn.send_prepare(name, statement)
        if self.pgconn.flush():
            self.wait(generators.send(self.pgconn))
        self._only_result(pq.ExecStatus.COMMAND_OK)
        self._named.add(name)

    def answer(self) -> bytes:
        """The second half."""
        return self._only_result(pq.ExecStatus.TUPLES_OK).get_value(0, 0) or b""

    def is_dead(self) -> bool:
        """Whether the server has closed it: an idle socket has nothing to read otherwise."""
        return bool(self._socket.poll(0))

    def _only_result(self, wanted: pq.ExecStatus) -> pq.abc.PGresult:
        """The single result of the call, once the server reports that its transaction is over."""
        server, results = self.pgconn, list[pq.abc.PGresult]()
        while True:
            while server.is_busy():
                self._socket.poll()  # a signal's handler may run, and raise
                server.consume_input()
            result = server.get_result()
            if result is None:
                break
            results.append(result)
        if len(results) == 1 and results[0].status == wanted and server.transaction_status == _IDLE:
            return results[0]
        raise self._failure(results)

    def _failure(self, results: list[pq.abc.PGresult]) -> psycopg.Error:
        """The error for an answer that is not one result of a finished transaction."""
        said = [pq.ExecStatus(result.status) for result in results]
        if pq.ExecStatus.FATAL_ERROR in said:
            at = said.index(pq.ExecStatus.FATAL_ERROR)
            error = errors.error_from_result(results[at], encoding=self.info.encoding)
            if at > 0 and not isinstance(error, psycopg.OperationalError):
                return CommitRefused(error)
            return error
        there = pq.TransactionStatus(self.pgconn.transaction_status)
        self.close()  # the meaning of such an answer is unknown
        return psycopg.OperationalError(f"the server answered {said!r} in state {there!r}")


C = TypeVar("C", bound=psycopg.Connection[Any])
TEXT: Final[dict[str, Any]] = {"client_encoding": "UTF8"}
"""Texts are sent and read as UTF-8, whatever PGCLIENTENCODING, the DSN or the role specifies: in SQL_ASCII
the driver returns bytes for texts, and other encodings lack some characters."""
PATIENCE: Final = 10
"""Seconds that one attempt to connect may take, unless the DSN or the environment sets it."""


@overload
def opened(conninfo: str, *, timeout: int = ..., **settings: Any) -> psycopg.Connection[Any]: ...
@overload
def opened(conninfo: str, kind: type[C], *, timeout: int = ..., **settings: Any) -> C: ...
def opened(
    conninfo: str, kind: type[Any] = psycopg.Connection, *, timeout: int = PATIENCE, **settings: Any
) -> Any:
    """A connection of its own, in autocommit unless `settings` says otherwise. Raises psycopg's errors."""
    return kind.connect(conninfo, **{"autocommit": True, **limits(conninfo, timeout), **settings, **TEXT})


def limits(conninfo: str, timeout: int = PATIENCE) -> dict[str, Any]:
    """The libpq setting for how long an attempt to connect may take; empty where the user has set it."""
    named = "connect_timeout" in conninfo_to_dict(conninfo) or "PGCONNECT_TIMEOUT" in os.environ
    return {} if named else {"connect_timeout": timeout}


Connection = psycopg.Connection[Any]
_known: WeakKeyDictionary[Connection, bool] = WeakKeyDictionary()
"""For connections that somebody else opened: whether they lead through a proxy."""


def is_proxied(connection: Connection) -> bool:
    """Whether it leads through a proxy, which reports an invented process id. One round trip."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    answered = cursor.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return answered != (connection.info.backend_pid,)


def prepare_nothing_behind_a_proxy(connection: Connection) -> None:
    """Disable prepared statements on a new connection of ours that leads through a proxy."""
    if is_proxied(connection):
        connection.prepare_threshold = None
        if isinstance(connection, CallingConnection):
            connection.is_proxied = True


def may_prepare(connection: Connection) -> bool:
    """Whether our statements may be prepared on it; a user's connection is checked once."""
    if isinstance(connection, CallingConnection):
        return not connection.is_proxied
    if connection.prepare_threshold is None:
        return False
    if connection not in _known:
        _known[connection] = is_proxied(connection)
    return not _known[connection]


def refuse_proxy(connection: Connection, what: str) -> None:
    """Raise ServerUnavailable, with the connection closed, where it does not lead to the server directly.

    what: what needs a session of its own, as the subject of a sentence.
    """
    if is_proxied(connection):
        connection.close()
        raise ServerUnavailable(
            f"{what} needs a connection of its own to the server, and this one goes through a proxy, which "
            "may give its session to other clients: use a DSN of the server itself"
        )
