"""
The call that records many appends that know nothing of each other: one transaction, an outcome for each.

The function and what it promises: functions/4_append_each.sql. Who calls it: `ledger.log.committer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple

from .append import Append, Appended, digest_of
from .appender import SQL, refusal, spec
from .binary import BYTEA, array, columns, elements, integers, number, numbers, texts
from .connection import CallingConnection
from .recorded import Meta

ALONE: Final = "alone"
"""The outcome of an append that would have to wait for a lock: it is not recorded, and to be sent alone."""
_FORMATS = [0, 1, 1, 1, 0, 1, 1, 1]


class Outcome(NamedTuple):
    """The outcome of one append: a word of the function, and what it recorded or found.

    micros: the time it was recorded at, in microseconds since 2000.
    """

    word: str
    position: int
    version: int
    micros: int
    status: str | None
    token: int | None

    def result(self, append: Append, command: str | None) -> Appended:
        """What the append returns. Raises StreamConflict, GuardFailed, CommandReused."""
        word, position, version, micros, status, token = self
        if word not in ("recorded", "repeated"):
            stream = append.stream
            raise refusal(word, {stream: append}, command, stream, version, status, token)
        last = position + len(append.events) - 1
        return Appended(position, last, micros, ((append.stream, version),), word == "repeated")


@cache
def _call(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_each.prepared(schema)


def send_each(
    connection: CallingConnection, schema: str, appends: Sequence[tuple[Append, Meta]]
) -> list[Outcome]:
    """Record these appends, each of one stream with at least one event; their outcomes, in this order.

    Raises psycopg's errors, and what a text raises that cannot be sent: then nothing of any is recorded.
    """
    topics, schemas, datas, raws, metas = zip(*chain.from_iterable(a.events for a, _ in appends), strict=True)
    values = [
        f"[{','.join([_spec_of(append, meta.command) for append, meta in appends])}]".encode(),
        array([append.state for append, _ in appends]),
        array([meta.text or meta.body() for _, meta in appends]),
        array(topics), integers(schemas), array(datas), array(raws, BYTEA), array(metas),
    ]  # fmt: skip
    words, positions, versions, times, statuses, tokens = columns(
        connection.call(*_call(schema), values, _FORMATS)
    )
    return list(
        map(
            Outcome, texts(words), numbers(positions), numbers(versions), numbers(times), texts(statuses),
            [None if one is None else number(one) for one in elements(tokens)],
        )
    )  # fmt: skip


def _spec_of(append: Append, command: str | None) -> str:
    """The append as JSON for append_each."""
    told = spec(append)
    if command is None:
        return told
    digest = digest_of((append,)).hex()
    return f'{told[:-1]},"command":{encode_basestring_ascii(command)},"digest":"{digest}"}}'
