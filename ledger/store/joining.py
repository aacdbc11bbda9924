"""Appends that commit with the user's own rows, in the user's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from ..append import Append, Appended, Body, append_of, body_of, status_of
from ..errors import AlreadyOpen, BadInput, LedgerBusy, StreamConflict, shown
from ..event import Event
from ..expected import ANY, Expected, as_expected
from ..names import checked
from ..recorded import Recorded
from ..stream import Stream
from . import reading
from .beaten import beaten, in_transaction
from .connections import Connection
from .faults import ledger_errors
from .sending import send

if TYPE_CHECKING:
    from .ledger import Ledger

O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741

_numbers = count(1)
_ENDED: Final = (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
"""No transaction is open, or the connection is closed, which ends one."""


class _Mark(NamedTuple):
    """Where a join stood before a move: what a savepoint that is rolled back goes back to."""

    value: str
    stream: Stream[Any, Any]
    state: Any
    news: int
    then: int
    on_commit: int


class Joined:
    """Collects appends and records them at the end of its block, so that they hold their locks only briefly.

    A long transaction that holds an append stalls every reader of the log; hence the collecting, and hence
    one append per stream.
    """

    def __init__(self, ledger: Ledger, connection: Connection) -> None:
        self.ledger, self.connection = ledger, connection
        self._appends: dict[str, Append | Stream[Any, Any]] = {}
        self._claimed: set[str] = set()
        self._meta: dict[str, Any] = {}
        self._then: list[Callable[[], None]] = []
        self._on_commit: list[Callable[[], None]] = []
        self._waiting: list[tuple[Appended | None, Callable[[], None]]] = []
        self._marks: list[_Mark] = []
        self._setting = f"ledger.joined_{next(_numbers) % 1000}"
        self._running = self._undone = False
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

    def append(
        self, stream: str, *events: Event | Body, expected: Expected | int = ANY, command: str | None = None
    ) -> None:
        """Append events at the end of the block."""
        self._claim(checked(stream))
        status = status_of([event for event in events if isinstance(event, Event)])
        bodies = [body_of(event) for event in events]
        self._appends[stream] = Append(stream, bodies, as_expected(expected), status=status)
        self.carry(command=command)

    def add(self, append: Append) -> None:
        """Make an append at the end of the block, with all that it says."""
        self._claim(checked(append.stream))
        self._appends[append.stream] = append

    @contextmanager
    def open(self, kind: type[O], *key: str | int) -> Iterator[O]:
        """A stream open for change, read in this transaction; its news are recorded at the block's end."""
        stream = kind.name_of(*key)
        self._claim(stream)
        with ledger_errors():
            opened = reading.open_one(self.connection, self.ledger.schema, kind, key)
        yield opened
        self._appends[stream] = opened

    def take(self, kind: type[O], *key: str | int) -> O:
        """A stream open for change until the end of the block; taken again, it is the same object."""
        self._check_running()
        name = kind.name_of(*key)
        self._look_back()
        known = self._appends.get(name)
        if isinstance(known, kind):
            return known
        self._claim(name)
        try:
            with ledger_errors():
                taken = reading.open_one(self.connection, self.ledger.schema, kind, key)
        except LedgerBusy as error:
            raise beaten(self.ledger, [kind(*key)], error.__cause__) or error from error.__cause__
        self._appends[name] = taken
        return taken

    def decide(self, stream: Stream[Any, Any], event: Event) -> None:
        """Let a taken stream record a fact, which a savepoint that is rolled back in the block takes back."""
        mark = _Mark(
            str(next(_numbers)),
            stream,
            stream.state,
            len(stream.news),
            len(self._then),
            len(self._on_commit),
        )
        with ledger_errors():
            reading.query(
                self.connection, self.ledger.schema, "set_mark", setting=self._setting, value=mark.value
            )
        stream.record(event)
        self._marks.append(mark)

    def read(self, stream: str) -> list[Recorded]:
        """The events of a stream as this transaction sees them."""
        span = {"stream": checked(stream), "after": 0, "upto": 2**62, "limit": None}
        with ledger_errors():
            rows = reading.query(self.connection, self.ledger.schema, "read_stream", **span)
        return [reading.recorded(row) for row in rows]

    def carry(self, **meta: Any) -> None:
        """Fields of Meta that everything recorded at the end of the block carries.

        Raises BadInput where the block carries another value already.
        """
        given = {name: value for name, value in meta.items() if value is not None}
        for name, value in given.items():
            if (known := self._meta.get(name, value)) != value:
                raise BadInput(
                    f"what this join records carries {name} {shown(known)} already, not {shown(value)}: "
                    "one join is one append, so begin another"
                )
        self._meta |= given

    def then(self, act: Callable[[], None]) -> None:
        """Do something in the transaction right after the block's appends; an error of it undoes them."""
        self._then.append(act)

    def on_commit(self, act: Callable[[], None]) -> None:
        """Do something once the transaction is committed, when `committed` is called; never if it is not."""
        self._on_commit.append(act)

    def committed(self) -> bool:
        """Say that the transaction has ended: if it was committed, what waits for that is done.

        `with ledger.transaction(connection)` says it by itself. Whether it was committed; False too where the
        block recorded nothing because it failed. Raises BadInput while the transaction is still open.
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
        for appended, act in waiting:
            self.appended = appended
            act()
        return True

    def beaten_at_commit(self, error: SerializationFailure) -> StreamConflict | None:
        """The conflict that a refused commit of the transaction is; None where the block failed before it."""
        return None if self._undone else beaten(self.ledger, self.decided, error, inside=False)

    @property
    def decided(self) -> list[Stream[Any, Any]]:
        """The streams that the block took or opened, in that order."""
        return [entry for entry in self._appends.values() if isinstance(entry, Stream)]

    def _check_running(self) -> None:
        if not self._running:
            raise BadInput(
                "this join has ended, or was not begun: use it inside `with ledger.join(connection) as …`"
            )

    def _check_transaction(self) -> None:
        status = self.connection.info.transaction_status
        if self.connection.autocommit and status == TransactionStatus.IDLE:
            raise BadInput(
                "the connection is in autocommit and has no transaction to join: "
                "use `with connection.transaction():` around, or a connection without autocommit"
            )
        if status == TransactionStatus.INERROR:
            raise BadInput(
                "a statement of the transaction to join has failed: roll it back, to a savepoint or whole"
            )

    def _claim(self, stream: str) -> None:
        self._check_running()
        if stream in self._claimed:
            raise AlreadyOpen(stream, "this join")
        self._claimed.add(stream)

    def _look_back(self) -> None:
        """Take back what was decided in a savepoint that was rolled back since."""
        if not self._marks:
            return
        with ledger_errors():
            ((now,),) = reading.query(self.connection, self.ledger.schema, "mark", setting=self._setting)
        while self._marks and self._marks[-1].value != now:
            last = self._marks.pop()
            last.stream.state = last.state
            del last.stream.news[last.news :], self._then[last.then :], self._on_commit[last.on_commit :]

    def _pending(self) -> list[Append]:
        return [
            append_of(entry) if isinstance(entry, Stream) else entry
            for entry in self._appends.values()
            if not (isinstance(entry, Stream) and not entry.news)
        ]

    def _record(self) -> None:
        """Record what was collected; and again, where what was done after it collected more."""
        if self._pending():
            self._check_transaction()
            self._look_back()
        with self.connection.transaction() if self._then and self._pending() else nullcontext():
            while appends := self._pending():
                self._send(appends)
        self._waiting += [(self.appended, act) for act in self._on_commit]

    def _send(self, appends: Sequence[Append]) -> None:
        meta = self.ledger.meta(**self._meta)
        try:
            with ledger_errors():
                self.appended = send(self.connection, self.ledger.schema, appends, meta.body(), meta.command)
        except (StreamConflict, LedgerBusy) as error:
            conflict = self._conflict(error)
            if conflict is None:
                raise
            raise conflict from error
        self._meta.pop("command", None)  # it stands for this append; what comes of it is another one
        for entry in self.decided:
            entry.settle(self.appended.recorded_at)
        self._appends = {entry.name: entry for entry in self.decided}
        self._waiting += [(self.appended, act) for act in self._on_commit]
        then, self._then, self._on_commit, self._marks = self._then, [], [], []
        for act in then:
            act()

    def _conflict(self, error: StreamConflict | LedgerBusy) -> StreamConflict | None:
        """The error of the stream that somebody else changed first; None where it stays what it is."""
        if isinstance(error, LedgerBusy):
            return beaten(self.ledger, self.decided, error.__cause__)
        opened = self._appends[error.stream]
        conflict = opened.conflict(error) if isinstance(opened, Stream) else error
        if conflict is error:
            return None
        ((level,),) = reading.query(self.connection, self.ledger.schema, "isolation")
        return conflict if level == "read committed" else in_transaction(conflict)
