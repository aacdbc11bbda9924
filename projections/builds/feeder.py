"""
The feeder: reads the log and folds what is new of a project into its local copy.

The entries and the position are written in one transaction, and only if the copy is still where the feeder
read from. So each event counts once: a feeder that is killed loses nothing, and of two that read the same
events, the second finds the copy moved and goes on from there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final

from ledger import Cursor, CursorMismatch, Ledger, Recorded
from ledger.log.cursor import Checkpoint
from ledger.log.read import recorded
from ledger.log.sql import Statements

from ..fold import FoldSession, Place
from . import keys
from .environment import Environment, Transaction
from .fold import FORMAT, STREAMS, Fold, prefixes

SQL: Final = Statements(__package__, "feeder")
IDENTITY: Final = keys.COPY + b"identity"
CURSOR: Final = keys.COPY + b"cursor"
PAGE: Final = 500
"""Events that are read and folded at once."""
FAR: Final = 20_000
"""Positions behind from which the project's streams are read by their names, not the whole log."""
NOTED: Final = 1_000
"""Positions that events of others may take up before the copy notes that it has passed them."""
_log = logging.getLogger(__name__)


class _Moved(Exception):
    """The copy is no longer where the feeder read from."""


class Feeder:
    """Feeds the copy of a project from a ledger; threads may share it.

    environment: returns the environment of the copy, or raises what its owner raises when it is closed.
    """

    def __init__(self, log: Ledger, environment: Callable[[], Environment], project: str) -> None:
        self.log, self.project = log, project
        self.read_to = 0
        """The position in the log up to which it has read."""
        self.identity = identity(project, str(log.identity.ledger))
        self._environment = environment
        self._prefixes = tuple(prefixes(project))
        self._lock = threading.Lock()
        self._kept: bytes | None = None  # the cursor in the copy as this feeder last saw it
        self._noted = 0  # its position
        self._checkpoint: Checkpoint

    def step(self) -> int | None:
        """Fold the next page of the log; returns how many of its events are of the project.

        None where nothing is new. A copy that cannot be continued is made again. Raises UnreadableEvent,
        DatabaseFullError, ServerUnavailable.
        """
        with self._lock:
            try:
                moved = self._kept is None or self._environment().get(CURSOR) != self._kept
                folded = self._resume() if moved else None
                return self._page() if folded is None else folded
            except _Moved:
                self._kept = None
                return 0
            except CursorMismatch as error:
                return self._make_again(str(error))
            except BaseException:
                self._kept = None  # what was read may not be stored
                raise

    def rebuild(self) -> int:
        """Make the copy again from the log; returns how many events it has."""
        with self._lock:
            return self._read_streams(None)

    def _page(self) -> int | None:
        events = self.log.tail.read(self._checkpoint, PAGE)
        if not events:
            return None
        cursor = self._checkpoint.cursor
        assert cursor is not None  # it was read from
        ours = [event for event in events if event.stream.startswith(self._prefixes)]
        if ours or cursor.position - self._noted >= NOTED:
            self._write(lambda writer: Fold(writer, self.project)(ours), cursor)
        self.read_to = cursor.position
        return len(ours)

    def _resume(self) -> int | None:
        """Continue where the copy is; returns how many events were folded, where that was not a page."""
        with self._environment().reading() as reader:
            found, kept = reader.get(IDENTITY), reader.get(CURSOR)
        if found != self.identity or kept is None:
            why = None if found is None else difference(found, self.identity) or "it has no position"
            return self._make_again(why)
        cursor = Cursor.parse(kept.decode())
        self.log.check_cursor(cursor)
        self._kept, self._checkpoint = kept, Checkpoint(cursor.ledger, cursor)
        self._noted = self.read_to = cursor.position
        return self._read_streams(cursor) if self.log.bound() - cursor.position > FAR else None

    def _make_again(self, why: str | None) -> int:
        """Make the copy again. why: what is wrong with the one that is there, None if there is none."""
        if why is not None:
            _log.warning("the local copy %s is made again from the log: %s", self._environment().folder, why)
        return self._read_streams(None)

    def _read_streams(self, since: Cursor | None) -> int:
        """Fold the project's streams after a cursor; everything anew if it is None."""
        log, after = self.log, since.position if since else 0
        bound = log.bound()
        with FoldSession(*Place.of(log)) as session, session.snapshot():
            cursor = Checkpoint(log.identity.ledger, bound).last_event(session.connection, log.schema)

            def work(writer: Transaction) -> int:
                if since is None:
                    for prefix in (*keys.DERIVED, keys.COPY):
                        keys.clear(writer, prefix)
                    writer.put(IDENTITY, self.identity)
                with closing(events_of(session, self.project, after, bound)) as events:
                    return Fold(writer, self.project)(events)

            folded = self._write(work, cursor, anew=since is None)
        self._checkpoint, self.read_to = Checkpoint(cursor.ledger, cursor), cursor.position
        return folded

    def _write(self, work: Callable[[Transaction], int], cursor: Cursor, *, anew: bool = False) -> int:
        """Write entries, and the cursor behind them. Raises _Moved where the copy is elsewhere."""
        text = str(cursor).encode()

        def both(writer: Transaction) -> int:
            if not anew and (writer.get(CURSOR) != self._kept or writer.get(IDENTITY) != self.identity):
                raise _Moved
            folded = work(writer)
            writer.put(CURSOR, text)
            return folded

        folded = self._environment().write(both)
        self._kept, self._noted = text, cursor.position
        return folded


def identity(project: str, ledger: str) -> bytes:
    """What a copy must say of itself to be one of this project, made by this code."""
    states = {kind.CATEGORY: kind.state_schema() for kind in STREAMS}
    return json.dumps({"project": project, "ledger": ledger, "format": FORMAT, "states": states}).encode()


def fits(found: bytes, project: str) -> bool:
    """Whether a copy is one of this project, of any ledger, made by this code."""
    return found == identity(project, json.loads(found).get("ledger"))


def difference(found: bytes, wanted: bytes) -> str | None:
    """Why a copy is not the wanted one, in words; None where it is."""
    was, should = json.loads(found), json.loads(wanted)
    differs = [
        f"its {name} is {was.get(name)}, not {should[name]}"
        for name in should
        if was.get(name) != should[name]
    ]
    return ", ".join(differs) or None


def events_of(session: FoldSession, project: str, after: int, upto: int) -> Generator[Recorded, None, None]:
    """The events of a project after a position and up to another, in the order of the log; in a snapshot."""
    rows = session.stream(SQL.events_below, 5, prefixes=prefixes(project), after=after, upto=upto)
    yield from map(recorded, rows)
