"""
The call that records many appends that know nothing of each other: one transaction, an outcome for each.

The functions and what they promise: functions/4_append_group.sql for the commonest appends, 4_append_each.sql
for all. Who calls them: `ledger.log.committer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple

from ..errors import BadInput
from .append import Append, Appended, Guard, digest_of
from .appender import SQL, expectation, refusal, spec
from .binary import BYTEA, array, columns, elements, integers, joined, number, numbers, optional, text, texts
from .connection import CallingConnection
from .recorded import Meta

_FORMATS = [0, 1, 1, 1, 0, 1, 1, 1]
_GROUP_FORMATS = [1, 0, 1, 0, 1, 1, 1, 1, 0]


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


ALONE: Final = Outcome("alone", 0, 0, 0, None, None)
"""The outcome of an append that is not recorded, and is to be sent alone: only that says why, or waits."""


@cache
def _call_group(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_group.prepared(schema)


@cache
def _call(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_each.prepared(schema)


Row = tuple[bytes, ...]
"""An append as append_group takes it: an element of each of its arrays."""


def row_of(append: Append, meta: Meta) -> Row | None:
    """The append for append_group; None where it is not of the kind that this function records.

    Its own thread makes it, while another one sends what came before.
    """
    stream, events, expected, status, state, base, state_schema, set_token, head = append
    if len(events) != 1 or set_token is not None or not head or meta.command or isinstance(expected, Guard):
        return None
    ((topic, schema, data, _, own_meta),) = events
    try:
        at, _, _ = expectation(append)
        if data is None or (state is not None and base != at):
            return None
        meta_text = text(own_meta or meta.text or meta.body())
        return (
            text(stream), b"%d" % at, text(topic), b"%d" % schema, text(data), meta_text,
            optional(status), optional(state), b"%d" % (state_schema or 0),
        )  # fmt: skip
    except (AttributeError, BadInput, TypeError, ValueError):  # append_each refuses it
        return None


def send_group(
    connection: CallingConnection, schema: str, streams: Sequence[str], rows: Sequence[Row]
) -> list[Outcome | Appended]:
    """Record the appends of these rows by append_group; their outcomes, in this order.

    streams: theirs, all different. Raises psycopg's errors: then nothing of any is recorded. UniqueViolation:
    a head is behind its events.
    """
    values = [
        joined(column) if is_binary else b"{%s}" % b",".join(column)
        for column, is_binary in zip(zip(*rows, strict=True), _GROUP_FORMATS, strict=True)
    ]
    record = connection.call(*_call_group(schema), values, _GROUP_FORMATS)
    first, begun, positions, versions = columns(record)
    found: list[Outcome | Appended] = [ALONE] * len(rows)
    if positions is not None:
        before, micros = number(first or b""), number(begun or b"")
        for position, version in zip(numbers(positions), numbers(versions), strict=True):
            nth = position - before
            found[nth] = Appended(position, position, micros + nth, ((streams[nth], version),))
    return found


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
