"""
The call that records many appends that know nothing of each other: one transaction, an outcome for each.

The function and what it promises: functions/4_append_each.sql. Who calls it: `ledger.log.committer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from itertools import chain
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Final, NamedTuple

from ..domain.frozen import FrozenDict
from .append import (
    _ARRAY,
    _BYTEA,
    _COUNT,
    _VERSION,
    EPOCH,
    SQL,
    Append,
    Appended,
    _array,
    _integers,
    _refusal,
    _spec,
    columns,
    digest_of,
)
from .connection import CallingConnection
from .recorded import Meta

ALONE: Final = "alone"
"""The outcome of an append that would have to wait for a lock: it is not recorded, and to be sent alone."""
_FORMATS = [0, 1, 1, 1, 0, 1, 1, 1]
_state = itemgetter(4)


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
            raise _refusal(word, {stream: append}, command, stream, version, status, token)
        last, at = position + len(append.events) - 1, EPOCH + timedelta(microseconds=micros)
        return Appended(position, last, at, FrozenDict({append.stream: version}), word == "repeated")


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
        _array([append.state for append, _ in appends]),
        _array([meta.text or meta.body() for _, meta in appends]),
        _array(topics), _integers(schemas), _array(datas), _array(raws, _BYTEA), _array(metas),
    ]  # fmt: skip
    words, positions, versions, times, statuses, tokens = columns(
        connection.call(*_call(schema), values, _FORMATS)
    )
    return list(
        map(
            Outcome, _texts(words), _numbers(positions), _numbers(versions), _numbers(times),
            _texts(statuses), _tokens(tokens),
        )
    )  # fmt: skip


def _spec_of(append: Append, command: str | None) -> str:
    """The append as JSON for append_each."""
    spec = _spec(append)
    if command is None:
        return spec
    digest = digest_of((append,)).hex()
    return f'{spec[:-1]},"command":{encode_basestring_ascii(command)},"digest":"{digest}"}}'


def _elements(array: bytes | None) -> list[bytes | None]:
    """The elements of a binary array."""
    assert array is not None
    found, place, end = list[bytes | None](), _ARRAY.size, len(array)
    while place < end:
        (size,) = _COUNT.unpack_from(array, place)
        place += _COUNT.size
        found.append(None if size < 0 else array[place : place + size])
        place += max(size, 0)
    return found


def _texts(array: bytes | None) -> list[str]:
    return [None if one is None else one.decode() for one in _elements(array)]  # type: ignore[misc]


def _numbers(array: bytes | None) -> list[int]:
    """A binary array of 64-bit integers without nulls."""
    assert array is not None
    return [number for (number,) in _VERSION.iter_unpack(array[_ARRAY.size :])]


def _tokens(array: bytes | None) -> list[int | None]:
    return [None if one is None else int.from_bytes(one, "big", signed=True) for one in _elements(array)]
