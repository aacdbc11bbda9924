"""A connection of our own, and the short way to call a function on it."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import errors, pq

_BOTH: Final = select.POLLIN | select.POLLOUT


class Line(psycopg.Connection[Any]):
    """A connection that also calls prepared statements in libpq's own words.

    An append is one small call, and a cursor's generality costs four times what the call itself does.
    Only for connections that nothing else uses meanwhile, in autocommit.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._named: set[bytes] = set()
        self._socket = select.poll()
        self._socket.register(self.pgconn.socket, select.POLLIN)

    def call(
        self, name: bytes, statement: bytes, values: Sequence[bytes | None], formats: Sequence[int]
    ) -> bytes:
        """The one value that a statement with $1, $2, … returns, in binary. Raises psycopg's errors.

        name: under which it is prepared on its first use here. formats: 0 text, 1 binary, for each value.
        """
        try:
            self.send(name, statement, values, formats)
            return self.answer()
        except errors.InvalidSqlStatementName:  # psycopg says DEALLOCATE ALL after a ROLLBACK and a DROP
            self._named.discard(name)  # only this one: another may have been prepared since
            return self.call(name, statement, values, formats)
        except BaseException:  # also what a signal's handler raises
            if self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self.close()  # in the middle of an answer that nobody will read
            raise

    def send(
        self, name: bytes, statement: bytes, values: Sequence[bytes | None], formats: Sequence[int]
    ) -> None:
        """The first half of `call`: afterwards the connection is for `answer` only."""
        if name not in self._named:
            self.pgconn.send_prepare(name, statement)
            self._result(pq.ExecStatus.COMMAND_OK)
            self._named.add(name)
        self.pgconn.send_query_prepared(name, values, formats, pq.Format.BINARY)
        if self.pgconn.flush():
            self._push()

    def answer(self) -> bytes:
        """The second half."""
        return self._result(pq.ExecStatus.TUPLES_OK).get_value(0, 0) or b""

    def is_dead(self) -> bool:
        """Whether the server has closed it meanwhile: an idle socket has nothing to read."""
        return bool(self._socket.poll(0))

    def _result(self, wanted: pq.ExecStatus) -> pq.abc.PGresult:
        """Send, wait (a signal's handler may run), and take the only result."""
        server = self.pgconn
        if server.flush():
            self._push()
        while server.is_busy():
            self._socket.poll()
            server.consume_input()
        result = server.get_result()
        if result is None:
            raise psycopg.OperationalError(server.get_error_message())
        while server.get_result() is not None:
            pass
        if result.status != wanted:
            raise errors.error_from_result(result, encoding=self.info.encoding)
        return result

    def _push(self) -> None:
        """Send what did not fit into the socket at once, taking in what the server says meanwhile."""
        server = self.pgconn
        self._socket.modify(server.socket, _BOTH)
        try:
            while server.flush():
                self._socket.poll()
                server.consume_input()
        finally:
            self._socket.modify(server.socket, select.POLLIN)
