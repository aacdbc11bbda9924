"""Appends that commit with the user's own rows, in the user's own transaction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from ..domain.names import checked
from ..domain.stream import Stream
from ..errors import AlreadyOpen, BadInput, LedgerBusy, StreamConflict, shown
from . import read
from .append import ANY, Append, Appended, Body, Expected, append_of, append_to
from .appender import send
from .callbacks import callback_transaction
from .conflict import conflict_of, in_transaction
from .pool import Connection
from .recorded import Recorded
from .server_errors import ledger_errors
from .sql import Statements, run

if TYPE_CHECKING:
    from ..domain.event import Event
    from .ledger import Ledger

SQL = Statements(__package__, "join")

O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741

_ENDED: Final = (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
"""No transaction is open, or the connection is closed, which ends its transaction."""


class Joined:
    """Collects appends and records them at the end of its block, so that they hold their locks only briefly.

    A long transaction with an append delays every reader of the log. So appends are collected, one per
    stream. has_sent: the block has ended, and callbacks after its moves run.
    """

    def __init__(self, ledger: Ledger, connection: Connection) -> None:
        self.ledger, self.connection = ledger, connection
        self._appends: dict[str, Append | Stream[Any, Any]] = {}
        self._claimed: set[str] = set()
        self._meta: dict[str, Any] = {}
        self._then: list[Callable[[], None]] = []
        self._on_commit: list[Callable[[Appended | None], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self._marks = Savepoints(connection, ledger.schema, self._then, self._on_commit)
        self._running = self._undone = self.has_sent = False
        self.appended: Appended | None = None

    def __enter__(self) -> Self:
        self._check_transaction()
        self._running = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._undone = True
        try:
            if kind is None:
                self._record()
                self._undone = False
        finally:
            self._running = False
            if self._undone:
                self._waiting.clear()

    def __del__(self) -> None:
        if waiting := getattr(self, "_waiting", []):
            warnings.warn(
                f"{len(waiting)} calls that wait for the commit of a joined transaction were not made: call "
                "`joined.committed()` after the commit, or use `with ledger.transaction(connection)`",
                RuntimeWarning, stacklevel=2, source=self,
            )  # fmt: skip

    def append(
        self, stream: str, *events: Event | Body, expected: Expected | int = ANY, command: str | None = None
    ) -> None:
        """Append events at the end of the block."""
        self._claim(checked(stream))
        self._appends[stream] = append_to(stream, events, expected)
        self.carry(command=command)

    def add(self, append: Append) -> None:
        """Send this append, with all its fields, at the end of the block."""
        self._claim(checked(append.stream))
        self._appends[append.stream] = append

    @contextmanager
    def open(self, kind: type[O], *key: str | int) -> Iterator[O]:
        """Open a stream for change, read in this transaction; its events are recorded at the block's end."""
        stream = kind.name_of(*key)
        self._claim(stream)
        with ledger_errors():
            opened = read.open_one(self.connection, self.ledger.schema, kind, key)
        yield opened
        self._appends[stream] = opened

    def take(self, kind: type[O], *key: str | int) -> O:
        """Open a stream for change until the end of the block; a second call returns the same object."""
        self._check_running()
        name = kind.name_of(*key)
        self._marks.look_back()
        known = self._appends.get(name)
        if isinstance(known, kind):
            return known
        self._claim(name)
        try:
            with ledger_errors():
                taken = read.open_one(self.connection, self.ledger.schema, kind, key)
        except LedgerBusy as error:
            raise conflict_of(self.ledger, [kind(*key)], error.__cause__) or error from error.__cause__
        self._appends[name] = taken
        return taken

    def decide(self, stream: Stream[Any, Any], event: Event) -> None:
        """Record a fact on a taken stream; a rollback to an earlier savepoint in the block removes it."""
        self._marks.set(stream)
        stream.record(event)

    def read(self, stream: str) -> list[Recorded]:
        """The events of a stream as this transaction sees them."""
        span = {"stream": checked(stream), "after": 0, "upto": 2**62, "limit": None}
        with ledger_errors():
            rows = run(self.connection, self.ledger.schema, read.SQL.read_stream, **span)
        return [read.recorded(row) for row in rows]

    def carry(self, **meta: Any) -> None:
        """Set fields of Meta for everything that is recorded at the end of the block.

        Raises BadInput where the block has another value already.
        """
        given = {name: value for name, value in meta.items() if value is not None}
        for name, value in given.items():
            if (known := self._meta.get(name, value)) != value:
                raise BadInput(
                    f"this join already has {name} {shown(known)}, not {shown(value)}: a join is one "
                    "append, so begin another join"
                )
        self._meta |= given

    def knows(self, stream: Stream[Any, Any]) -> Callable[[], None]:
        """Take over a stream that a callback moved after the block's append; returns its undo function."""
        before = dict(self._appends)
        self._appends[stream.name] = stream

        def forget() -> None:
            self._appends = before

        return forget

    def then(self, act: Callable[[], None]) -> None:
        """Call this in the transaction right after the block's appends; its error undoes them."""
        self._then.append(act)

    def on_commit(self, act: Callable[[Appended | None], None]) -> None:
        """Call this with the appended events when `committed` is called after a commit."""
        self._on_commit.append(act)

    def committed(self) -> bool:
        """Report that the transaction has ended; if it was committed, run the calls that wait for that.

        `with ledger.transaction(connection)` calls this itself. Returns whether it was committed; False also
        where the block failed and recorded nothing. If it is never called and calls wait, a warning is
        issued.
        Raises BadInput while the transaction is still open.
        """
        if self.connection.info.transaction_status not in _ENDED:
            raise BadInput(
                "the joined transaction is still open: commit it, or roll it back, before `committed`"
            )
        waiting, self._waiting = self._waiting, []
        if self._undone:
            return False
        if self.appended is not None and self.ledger.event_at(self.appended.first_position) is None:
            return False
        for act in waiting:
            act()
        return True

    def rolled_back(self) -> None:
        """Report that the transaction was not committed: the calls that wait for it are dropped."""
        self._waiting.clear()

    def conflict_at_commit(self, error: SerializationFailure) -> StreamConflict | None:
        """The conflict for a refused commit of the transaction; None where the block failed before it."""
        return None if self._undone else conflict_of(self.ledger, self.decided, error, inside=False)

    def on_committed(self, act: Callable[[], None]) -> None:
        """As `on_commit`, for the append that was just recorded."""
        self._waiting.append(act)

    @property
    def decided(self) -> list[Stream[Any, Any]]:
        """The streams that the block took or opened, in that order."""
        return [entry for entry in self._appends.values() if isinstance(entry, Stream)]

    def _check_running(self) -> None:
        if not self._running:
            raise BadInput("this join is not open: use it inside `with ledger.join(connection) as …`")

    def _check_transaction(self) -> None:
        status = self.connection.info.transaction_status
        if self.connection.autocommit and status == TransactionStatus.IDLE:
            raise BadInput(
                "the connection is in autocommit mode and has no transaction to join: put the join inside "
                "`with connection.transaction():`, or use a connection without autocommit"
            )
        if status == TransactionStatus.INERROR:
            raise BadInput(
                "a statement of the transaction to join has failed: roll it back, fully or to a savepoint"
            )

    def _claim(self, stream: str) -> None:
        self._check_running()
        if stream in self._claimed:
            raise AlreadyOpen(stream, "this join")
        self._claimed.add(stream)

    def _pending(self) -> list[Append]:
        return [
            append_of(entry) if isinstance(entry, Stream) else entry
            for entry in self._appends.values()
            if not (isinstance(entry, Stream) and not entry.news)
        ]

    def _record(self) -> None:
        """Record what was collected, and repeat while calls after it collect more."""
        if self._pending():
            self._check_transaction()
            self._marks.look_back()
        with self.connection.transaction() if self._then and self._pending() else nullcontext():
            while appends := self._pending():
                self._send(appends)
        self._wait()
        around = callback_transaction(self.ledger)
        if around is not None and around.connection is self.connection:  # whose commit is this one's
            around.waiting += [partial(self._if_there, self.appended, act) for act in self._waiting]
            self._waiting.clear()

    def _wait(self) -> None:
        self._waiting += [partial(act, self.appended) for act in self._on_commit]
        self._on_commit.clear()

    def _if_there(self, appended: Appended | None, act: Callable[[], None]) -> None:
        if appended is None or self.ledger.event_at(appended.first_position) is not None:
            act()

    def _send(self, appends: Sequence[Append]) -> None:
        meta = self.ledger.meta(**self._meta)
        self.ledger.first_appends.announce(appends)
        around = callback_transaction(self.ledger)
        if around is not None:
            around.take_part(self.connection, [append.stream for append in appends])
        try:
            with ledger_errors():
                self.appended = send(self.connection, self.ledger.schema, appends, meta.body(), meta.command)
        except (StreamConflict, LedgerBusy) as error:
            conflict = self._conflict(error)
            if conflict is None:
                raise
            raise conflict from error
        self._meta.pop("command", None)  # it belongs to this append only
        for entry in self.decided:
            entry.settle(self.appended.recorded_at)
        self._appends = {entry.name: entry for entry in self.decided}
        self._wait()
        self.has_sent = True
        then = [*self._then]
        self._then.clear()
        self._marks.clear()
        for act in then:
            act()

    def _conflict(self, error: StreamConflict | LedgerBusy) -> StreamConflict | None:
        """The conflict error of the stream that somebody else changed first; None if there is none."""
        if isinstance(error, LedgerBusy):
            return conflict_of(self.ledger, self.decided, error.__cause__)
        opened = self._appends[error.stream]
        conflict = opened.conflict(error) if isinstance(opened, Stream) else error
        if conflict is error:
            return None
        ((level,),) = run(self.connection, self.ledger.schema, SQL.isolation)
        return conflict if level == "read committed" else in_transaction(conflict)


_numbers = count(1)


class _Mark(NamedTuple):
    """The state of a stream and the lengths of lists before a decision."""

    value: str
    stream: Stream[Any, Any]
    state: Any
    news: int
    lengths: tuple[int, ...]


class Savepoints:
    """Marks decisions in a setting of the transaction, which a rollback to a savepoint resets.

    lists: lists that grow with decisions, and are cut when these are undone.
    """

    def __init__(self, connection: Connection, schema: str, *lists: list[Any]) -> None:
        self._connection, self._schema, self._lists = connection, schema, lists
        self._marks: list[_Mark] = []
        self._setting = f"ledger.joined_{next(_numbers) % 1000}"

    def set(self, stream: Stream[Any, Any]) -> None:
        """Set a mark before a decision in this stream."""
        lengths = tuple(map(len, self._lists))
        mark = _Mark(str(next(_numbers)), stream, stream.state, len(stream.news), lengths)
        with ledger_errors():
            run(self._connection, self._schema, SQL.set_mark, setting=self._setting, value=mark.value)
        self._marks.append(mark)

    def look_back(self) -> None:
        """Undo the decisions made in a savepoint that was rolled back since."""
        if not self._marks:
            return
        with ledger_errors():
            ((now,),) = run(self._connection, self._schema, SQL.mark, setting=self._setting)
        while self._marks and self._marks[-1].value != now:
            last = self._marks.pop()
            last.stream.state = last.state
            del last.stream.news[last.news :]
            for grown, length in zip(self._lists, last.lengths, strict=True):
                del grown[length:]

    def clear(self) -> None:
        """Drop all marks, once the decisions are recorded."""
        self._marks.clear()
