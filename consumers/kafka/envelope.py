"""
The envelope: an event of the log as a record of Kafka, and back.

A record is a CloudEvent 1.0 in binary mode. Its key is the stream, its value the event's body; its headers:

    ce_specversion     1.0
    ce_id              the position, as text
    ce_source          urn:ledger:UUID, the ledger
    ce_type            the event's topic, such as job.started
    ce_subject         the stream
    ce_time            when the ledger recorded it: UTC, RFC 3339, with microseconds
    ce_ledgerposition  the position again, as a number for readers that do not look at ids
    ce_ledgerversion   the version in its stream
    ce_ledgerschema    the schema of the body
    ce_ledgerprev      the position of the record before it in this partition; 0 at the start
    ce_ledgermeta      the metadata as JSON: actor, correlation, causation, command, claimed_at
    ce_dataref         ledger:POSITION where the body is too large for a record: the value is empty
    traceparent        where the metadata has one
    content-type       application/json, or application/octet-stream for another application's bytes

What is read equals what was recorded, to the byte. The package `cloudevents` takes almost five times as long
to build it, so it is built here; tests hold that the package's parser reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from ledger import Recorded

MAX_BODY: Final = 900_000
"""Bytes of body and metadata that a record may hold; Kafka's brokers take a batch of 1,048,588 by default."""
MAX_META: Final = 64 * 1024
"""Bytes of metadata beside a body that is left out."""
JSON: Final = b"application/json"
BYTES: Final = b"application/octet-stream"
_URN: Final = "urn:ledger:"
_DATAREF: Final = b"ledger:"
_TIME_LENGTH: Final = len("2026-01-01T00:00:00.000000Z")
_json_of: Final = msgspec.json.Encoder().encode
"""Of a time it takes a tenth of what `datetime.isoformat` takes."""
_SPECVERSION: Final = ("ce_specversion", b"1.0")
_JSON_CONTENT: Final = ("content-type", JSON)
_BYTES_CONTENT: Final = ("content-type", BYTES)

Headers = list[tuple[str, bytes]]
"""The headers of a record, as Kafka's clients give and take them."""


class Outgoing(NamedTuple):
    """A record that is ready to be sent. timestamp: milliseconds since 1970, or None for now."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event as a record of Kafka holds it.

    event: as recorded; its `data` and `raw` are both None where `by_reference`. previous: the position of
    the record before it in its partition, 0 at the start. ledger: the ledger that recorded it. by_reference:
    the body was too large for a record; read it from the ledger at the event's position.
    """

    event: Recorded
    previous: int
    ledger: UUID
    by_reference: bool = False
    traceparent: str | None = None

    def is_known(self, last: int) -> bool:
        """Whether a reader has it that has read this partition up to the position `last`.

        Then the record is there twice, since the chain up to `last` is whole: it is to be left out.
        """
        return self.event.position <= last

    def with_body(self, recorded: Recorded) -> Envelope:
        """The same with the event that the ledger has at its position."""
        return replace(self, event=recorded, by_reference=False)


def source_of(ledger: UUID) -> bytes:
    """The CloudEvents source of a ledger's events."""
    return f"{_URN}{ledger}".encode()


def record_of(event: Recorded, previous: int, source: bytes, topic: str, partition: int) -> Outgoing:
    """The record of an event. previous: as in Envelope. source: of `source_of`.

    Whether the body is too large is decided here, before it is sent: the broker's refusal would end the
    producer, and each one after it.
    """
    at, stream, version, kind, schema, data, raw, meta_data, recorded_at = event
    key, position = stream.encode(), b"%d" % at
    value = raw or b"" if data is None else data.encode()
    meta = b"" if meta_data is None else meta_data.encode()
    headers = [
        _SPECVERSION,
        ("ce_id", position),
        ("ce_source", source),
        ("ce_type", kind.encode()),
        ("ce_subject", key),
        ("ce_time", _time(recorded_at)),
        _JSON_CONTENT if raw is None else _BYTES_CONTENT,
        ("ce_ledgerposition", position),
        ("ce_ledgerversion", b"%d" % version),
        ("ce_ledgerschema", b"%d" % schema),
        ("ce_ledgerprev", b"%d" % previous),
    ]
    if len(value) + len(meta) > MAX_BODY:
        headers.append(("ce_dataref", _DATAREF + position))
        value, meta = b"", meta if len(meta) <= MAX_META else b""
    if meta:
        headers.append(("ce_ledgermeta", meta))
        if traceparent := _traceparent_in(meta):
            headers.append(("traceparent", traceparent))
    return Outgoing(topic, partition, key, value, headers)


@lru_cache(maxsize=64)
def ledger_of(source: bytes) -> UUID:
    """The ledger that a CloudEvents source names. Raises ValueError where it names none."""
    text = source.decode()
    if not text.startswith(_URN):
        raise ValueError(f"its source is {text}, which is no ledger")
    return UUID(text.removeprefix(_URN))


def envelope_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> Envelope:
    """The envelope in a record. Raises ValueError that says what is wrong, for a record of another kind."""
    found = dict(headers)
    try:
        ledger = ledger_of(found["ce_source"])
        by_reference = "ce_dataref" in found
        is_json = found["content-type"] == JSON
        body = None if by_reference else value or b""
        event = Recorded(
            position=int(found["ce_ledgerposition"]),
            stream=(key or b"").decode(),
            version=int(found["ce_ledgerversion"]),
            topic=found["ce_type"].decode(),
            schema=int(found["ce_ledgerschema"]),
            data=body.decode() if is_json and body is not None else None,
            raw=None if is_json else body,
            meta_data=_text(found.get("ce_ledgermeta")),
            recorded_at=datetime.fromisoformat(found["ce_time"].decode()).astimezone(UTC),
        )
        previous = int(found["ce_ledgerprev"])
    except KeyError as missing:
        raise ValueError(f"it has no header {missing.args[0]}, so it is no record of a relay") from None
    return Envelope(event, previous, ledger, by_reference, _text(found.get("traceparent")))


def time_text(moment: datetime) -> str:
    """A time in UTC as RFC 3339 with six decimals."""
    return _time(moment).decode()


def _time(moment: datetime) -> bytes:
    text = _json_of(moment)[1:-1]  # without microseconds where there are none
    return text if len(text) == _TIME_LENGTH else text[:19] + b".000000Z"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _traceparent_in(meta: bytes) -> bytes | None:
    if b"traceparent" not in meta:
        return None
    try:
        value = json.loads(meta).get("traceparent")
    except (ValueError, AttributeError):  # another writer's metadata: any JSON
        return None
    return value.encode() if isinstance(value, str) else None
