"""
Appends that wait share a commit.

The first appends of a process go at once, each on the path that it would take without this. Where more than
a few are under way, an append waits for what is sent before it to end, and then goes with all that wait by
then, in one transaction. Appends to one stream, of which only one could go on, wait for each other likewise.
Nothing waits for a clock, so an append that is alone takes no longer.

No thread serves others for long: the thread whose append is first in the queue *leads*. It sends the group,
hands each of its followers the outcome, and passes the lead on to the next one that waits.

What a group cannot do is done by the appends themselves, each in its own thread, as if it had come alone:

- a group that is refused is halved until the append at fault stands alone; its own caller gets the error;
- an append that would wait for a lock leaves the group and waits by itself, on a connection of its own;
- where the connection broke, each append repeats or gives up by the law of `Appender`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import Final

import psycopg
from psycopg.errors import LockNotAvailable, QueryCanceled, UniqueViolation

from .append import Append, Appended
from .append_each import ALONE, Outcome, Row, row_of, send_each, send_group
from .appender import Appender, Lost
from .connection import CallingConnection
from .pool import Pool, Process
from .recorded import Meta
from .server_errors import TRANSIENT

FEW: Final = 8
"""Appends that go at once, each alone: small groups cost the server more than they save."""
SMALL: Final = 32
"""Appends in a small group."""
MOST: Final = 256
"""Appends in one group, and events in an append that may be in one."""
MOST_BYTES: Final = 2**20
"""Bytes of events and states in one group; an append with more goes alone."""
PATIENCE: Final = 0.1
"""Seconds in the queue after which an append goes alone: whoever leads waits for a lock of a user's."""
_OF_THE_MOMENT: Final = (*TRANSIENT, LockNotAvailable, QueryCanceled)
"""Errors that no append of the group is at fault for: halves would meet them, too."""


class Waiting:
    """An append on its way.

    row: what the database gets of it; made by its own thread, or by who leads if that comes first.
    turn: released once it leads, or its outcome is known. group: of one that leads, what it sends, itself
    first. leader: who sends it. since: when it began to lead. ended: it leads no more. after: whom to wake
    once it is awake: threads that wake all at once would only wait for each other, as Python runs one.
    last_of: whose lead it passes on once it is awake.
    """

    __slots__ = (
        "after",
        "append",
        "ended",
        "group",
        "last_of",
        "leader",
        "meta",
        "outcome",
        "row",
        "since",
        "turn",
    )

    def __init__(self, append: Append, meta: Meta) -> None:
        self.append, self.meta = append, meta
        self.group: list[Waiting] = []
        self.leader: Waiting | None = None
        self.after: Waiting | None = None
        self.last_of: Waiting | None = None
        self.outcome: Appended | Outcome | Lost | None = None
        self.row: Row | None = None
        self.since, self.ended = 0.0, False
        self.turn: Lock

    def size(self) -> int:
        """Its bytes; more than a group may have where it holds what is no text, and will be refused."""
        append = self.append
        try:
            own = sum([len(body.data or body.raw or "") for body in append.events])
            return own + len(append.state or "") if len(append.events) <= MOST else MOST_BYTES
        except TypeError:
            return MOST_BYTES


class Committer:
    """Sends the appends of a process's threads, together those that wait."""

    def __init__(self, appender: Appender, pool: Pool, schema: str) -> None:
        self._appender, self._pool, self._schema = appender, pool, schema
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what is under way; in a fork it belongs to the parent."""
        self._pid = Process.pid
        self._mutex = Lock()
        self._queue: list[Waiting] = []
        self._leading: set[Waiting] = set()
        self._inside = 0
        """How many are in the queue or under way."""
        self._last = 1
        """How many the last group had: a crowd that was just served comes back in a moment."""
        self._streams: set[str] = set()
        """The streams of the groups under way: another group would only meet their locks."""

    def append(self, append: Append, meta: Meta) -> Appended:
        """Record an append, alone or with others that wait. Raises what `Appender.append` raises."""
        if self._pid != Process.pid:
            self._begin_anew()
        mine = Waiting(append, meta)
        try:
            if not self._leads(mine):
                self._wait(mine)
            if len(mine.group) > 1:
                self._send(mine.group)
            elif mine.group:
                return self._appender.append((append,), meta)
        except BaseException:
            self._leave(mine)  # an interrupt may come at any moment after it joined the queue
            raise
        finally:
            if mine.group:
                self._end(mine)
        return self._result(mine)

    def _result(self, mine: Waiting) -> Appended:
        """What the append returns, or raises, in its own thread; one that is not decided goes alone."""
        outcome = mine.outcome
        if isinstance(outcome, Lost):
            return self._appender.append((mine.append,), mine.meta, lost=outcome)
        if isinstance(outcome, Appended):
            return outcome
        if outcome is None or outcome.word == ALONE.word:
            return self._appender.append((mine.append,), mine.meta)
        return outcome.result(mine.append, mine.meta.command)

    # The queue

    def _leads(self, mine: Waiting) -> bool:
        """Whether it goes at once, of many with all that wait; else it is in the queue now."""
        with self._mutex:
            self._inside += 1
            if self._takes_lead(mine):
                if self._queue and self._inside > FEW:
                    self._gather(mine)
                return True
            mine.turn = Lock()
            mine.turn.acquire()
            self._queue.append(mine)
            return False

    def _takes_lead(self, one: Waiting) -> bool:
        """Whether it may lead, and now does."""
        crowd = self._inside > FEW or self._last > FEW
        if (crowd and self._leading) or one.append.stream in self._streams:
            return False
        one.group, one.since = [one], time.monotonic()
        self._leading.add(one)
        self._streams.add(one.append.stream)
        return True

    def _gather(self, leader: Waiting) -> None:
        """Move what waits from the queue to the leader's group."""
        busy = self._streams - {leader.append.stream}
        group, size, rest = leader.group, leader.size(), list[Waiting]()
        for one in self._queue:
            size += (own := one.size())
            if len(group) < MOST and size <= MOST_BYTES and one.append.stream not in busy:
                one.leader = leader
                group.append(one)
            else:
                size -= own
                rest.append(one)
        self._queue = rest
        self._streams.update([one.append.stream for one in group])

    def _wait(self, mine: Waiting) -> None:
        """Wait until it is decided, or leads, or is to go alone."""
        try:
            mine.row = row_of(mine.append, mine.meta)
            if not mine.turn.acquire(timeout=PATIENCE) and not self._leave(mine):
                while not (mine.turn.acquire(timeout=1.0) or mine.group):
                    if mine.leader is not None and mine.leader.ended:  # and was interrupted before it told
                        mine.outcome = mine.outcome or _interrupted()
                        break
        finally:
            self._awake(mine)
        if mine.group:
            with self._mutex:
                self._gather(mine)

    def _leave(self, mine: Waiting) -> bool:
        """Leave the queue; False where it is under way, or leads. Who has led for long leads no more."""
        with self._mutex:
            if mine not in self._queue:
                return False
            self._queue.remove(mine)
            self._inside -= 1
            long_ago = time.monotonic() - PATIENCE
            self._leading = {one for one in self._leading if one.since > long_ago}
            heir = self._heir()
        if heir is not None:
            heir.turn.release()
        return True

    def _heir(self) -> Waiting | None:
        """The first in the queue that may lead, and now does."""
        for nth, one in enumerate(self._queue):
            if self._takes_lead(one):
                del self._queue[nth]
                return one
        return None

    def _end(self, mine: Waiting) -> None:
        """Wake the first follower, who wakes the next, and pass the lead on.

        The last follower of a small group passes it on where few wait: they all come back in a moment, and
        go together again. In a large one the server works meanwhile for those that are back already.
        """
        mine.ended, group, mine.group = True, mine.group, []  # no circle is left to the collector of garbage
        heir = None
        with self._mutex:
            self._inside -= len(group)
            self._last = len(group)
            for one in group:
                self._streams.discard(one.append.stream)
            if SMALL >= len(group) > FEW > len(self._queue):
                group[-1].last_of = mine
            else:
                heir = self._pass_on(mine)
        if heir is not None:
            heir.turn.release()
        for one, after in pairwise(group):
            one.after, after.outcome = after, after.outcome or _interrupted()
        if mine.after is not None:
            mine.after.turn.release()

    def _pass_on(self, leader: Waiting) -> Waiting | None:
        """End the lead; its heir, who is to be woken."""
        self._leading.discard(leader)
        return self._heir() if self._queue else None

    def _awake(self, mine: Waiting) -> None:
        """Wake the next follower; the last one passes the lead on."""
        if mine.after is not None:
            mine.after.turn.release()
        elif mine.last_of is not None:
            with self._mutex:
                heir = self._pass_on(mine.last_of)
            if heir is not None:
                heir.turn.release()

    # The group

    def _send(self, group: Sequence[Waiting]) -> None:
        """Set the outcome of each append of a group; where it is refused, of its halves."""
        if len(group) == 1:
            group[0].outcome = ALONE
            return
        outcomes: Sequence[Appended | Outcome | Lost]
        try:
            outcomes = self._call(group)
        except Lost as lost:
            outcomes = [Lost(lost.error) for _ in group]
        except _OF_THE_MOMENT:
            outcomes = [ALONE] * len(group)
        except Exception:
            self._send(group[: len(group) // 2])
            self._send(group[len(group) // 2 :])
            return
        for one, outcome in zip(group, outcomes, strict=True):
            one.outcome = outcome

    def _call(self, group: Sequence[Waiting]) -> Sequence[Appended | Outcome]:
        """One call of the database. Raises Lost, psycopg's errors, and those of bad input."""
        try:
            connection = self._pool.take()
        except psycopg.Error:
            return [ALONE] * len(group)
        try:
            return self._sent(connection, group)
        except psycopg.Error as error:
            if connection.closed:
                raise Lost(error) from error
            raise
        finally:
            self._pool.give_back(connection)

    def _sent(self, connection: CallingConnection, group: Sequence[Waiting]) -> Sequence[Appended | Outcome]:
        """The outcomes of a group, by the shorter way where it records them all."""
        streams = [one.append.stream for one in group]
        rows = [row for one in group if (row := one.row or row_of(one.append, one.meta)) is not None]
        if len(rows) == len(group) == len(set(streams)):
            try:
                return send_group(connection, self._schema, streams, rows)
            except UniqueViolation as error:
                if error.diag.constraint_name != "events_stream_version":
                    raise
        return send_each(connection, self._schema, [(one.append, one.meta) for one in group])


def _interrupted() -> Lost:
    """The end of a group whose leader was interrupted: whether it is committed is unknown."""
    return Lost(psycopg.OperationalError("the thread that sent this append with its own was interrupted"))
