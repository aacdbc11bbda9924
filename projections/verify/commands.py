"""Work on a range of positions: the rows of command ids compared with the events that carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from ledger import BadBody
from ledger.domain import canonical_json
from ledger.log.sql import Statements

from ..fold import SessionWork
from .difference import DOUBTS, EVIDENCE, Difference, Field, Kind, Summary

SQL = Statements(__package__, "commands")


PER_PIECE: Final = 100_000
"""Positions of a range."""
AT_ONCE: Final = 100
"""Rows in one transaction: a repeated call with one of these ids waits for no more."""
Found = tuple[list[Difference], Summary]


class Span(NamedTuple):
    """Appends that begin at these positions, or, with `alone`, all rows that have no events."""

    after: int
    upto: int
    alone: bool = False


ALONE: Final = Span(0, 0, alone=True)


class Recorded(NamedTuple):
    """An append with a command id, according to the events, and its positions according to the row."""

    command: str
    first: int
    last: int
    at: datetime
    stream: str
    version: int
    row: tuple[int, int, datetime] | None

    @property
    def is_right(self) -> bool:
        """Whether the row agrees with the events."""
        return self.row == (self.first, self.last, self.at)


def spans(first: int, last: int) -> list[Span]:
    """Ranges of positions that hold the log once."""
    starts = range(first - 1, last, PER_PIECE)
    return [Span(start, min(start + PER_PIECE, last)) for start in starts]


@dataclass(slots=True)
class CommandWork(SessionWork):
    """Compares the rows of command ids of ranges of the log. repair: repair them. also: kinds of evidence
    that are repaired too; other evidence is left as it is.

    The digest of a row is not compared: it is of the text that was sent, and the log keeps only its value. A
    restored row gets the digest of the canonical text, which every event class sends.
    """

    repair: bool = False
    also: frozenset[Kind] = frozenset()

    def __call__(self, piece: Span, report: Callable[[int], None]) -> Found:
        """The differences in a range, repaired if requested."""
        count = Summary()
        with self.session.snapshot():
            if piece.alone:
                found = [*self._alone()]
                wrong = list[Recorded | None]([None] * len(found))
            else:
                wrong, found = self._wrong(piece, count)
        found = [replace(d, evidence=d.kind in EVIDENCE | DOUBTS) for d in found]
        left = [d for d in found if d.kind in EVIDENCE - self.also]
        if self.repair and found:
            if left:
                count.changed["left"] += len(left)
            if piece.alone:
                found = left or [*self._removed(found)]  # all are of one kind
            else:
                wrong = [
                    None if d.kind in EVIDENCE - self.also else w for w, d in zip(wrong, found, strict=True)
                ]
                found = [*self._restored(wrong, found)]
        for difference in found:
            if difference.repaired is not None:
                count.changed[difference.repaired] += 1
        return found, count

    # Rows without events

    def _alone(self) -> Iterator[Difference]:
        for command, first, last in self.session.rows(SQL.commands_without_events):
            says = f"its row names positions {first} to {last}, but no event there carries it"
            yield Difference(Kind.COMMAND_ALONE, command, None, says, position=first)

    def _removed(self, found: list[Difference]) -> Iterator[Difference]:
        for batch in _batches(found):
            with self.session.changes():
                rows = self.session.rows(SQL.remove_commands, commands=[d.about for d in batch])
            gone = {command for (command,) in rows}
            yield from (replace(d, repaired="removed" if d.about in gone else "moved") for d in batch)

    # Events without rows, or with wrong ones

    def _wrong(self, piece: Span, count: Summary) -> tuple[list[Recorded | None], list[Difference]]:
        wrong, found = list[Recorded | None](), list[Difference]()
        for append in self._appends(piece):
            count.commands += 1
            if not append.is_right:
                found.append(self._difference(append))
                wrong.append(None if found[-1].kind is Kind.COMMAND_TWICE else append)
        return wrong, found

    def _appends(self, piece: Span) -> Iterator[Recorded]:
        """The appends with a command id that begin in a range."""
        before = self.session.rows(SQL.command_before, position=piece.after)
        ((end,),) = self.session.rows(SQL.command_end, position=piece.upto)
        rows = self.session.stream(SQL.command_events, after=piece.after, upto=max(end, piece.upto))
        for append in groupby(rows, lambda row: (row[4], row[1])):
            events = [*append[1]]
            position, at, stream, version, command, *row = events[0]
            if [append[0]] == before or position > piece.upto:
                continue
            there = None if row[0] is None else (row[0], row[1], row[2])
            yield Recorded(command, position, events[-1][0], at, stream, version, there)

    def _difference(self, append: Recorded) -> Difference:
        says = f"positions {append.first} to {append.last} carry it"
        if append.row is None:
            says = f"{says}, but it has no row: repeating the call would record them again"
            return Difference(Kind.COMMAND_MISSING, append.command, append.version, says, (), append.first)
        if append.row[0] < append.first and self._carries(append.row[0], append.command):
            says = (
                f"{says}, and so do those from {append.row[0]} on, which its row names: it was recorded twice"
            )
            return Difference(Kind.COMMAND_TWICE, append.command, append.version, says, (), append.first)
        names = ("first_position", "last_position", "recorded_at")
        right = (append.first, append.last, append.at)
        fields = [
            Field(n, str(k), str(e)) for n, k, e in zip(names, append.row, right, strict=True) if k != e
        ]
        says = f"{says}, but its row has other positions"
        return Difference(
            Kind.COMMAND_DIFFERS, append.command, append.version, says, tuple(fields), append.first
        )

    def _carries(self, position: int, command: str) -> bool:
        rows = self.session.rows(SQL.command_events, after=position - 1, upto=position)
        return bool(rows) and rows[0][4] == command

    def _restored(self, wrong: list[Recorded | None], found: list[Difference]) -> Iterator[Difference]:
        pairs = [*zip(wrong, found, strict=True)]
        yield from (difference for append, difference in pairs if append is None)
        for batch in _batches([(append, d) for append, d in pairs if append is not None]):
            appends = [append for append, _ in batch]
            digests = [self._digest(append) for append in appends]
            with self.session.changes():
                ((outcomes,),) = self.session.rows(
                    SQL.restore_commands,
                    commands=[append.command for append in appends], digests=digests,
                    firsts=[append.first for append in appends], lasts=[append.last for append in appends],
                    times=[append.at for append in appends],
                )  # fmt: skip
            yield from (replace(d, repaired=o) for (_, d), o in zip(batch, outcomes, strict=True))

    def _digest(self, append: Recorded) -> bytes:
        """The digest of an append, as `ledger.log.append.digest_of` makes it of what is sent."""
        rows = self.session.rows(SQL.command_contents, first=append.first, last=append.last)
        parts = []
        for stream, topic, schema, data, raw in rows:
            parts += [stream, topic, schema, None if data is None else _canonical(data), raw]
        return canonical_json.digest(*parts)


def _canonical(data: str) -> str:
    """The canonical text of a body; the text itself if no event class could have sent it."""
    try:
        return canonical_json.body(canonical_json.parsed(data))
    except BadBody:
        return data


def _batches(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), AT_ONCE):
        yield rows[start : start + AT_ONCE]
