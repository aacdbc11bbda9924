"""An event in its place: the envelope around a fact, as the log holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from . import canon
from .errors import BadBody
from .event import Event, Unknown, read_event
from .names import checked_command


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known about an event beside its fact: who, why, on whose behalf.

    actor: who did it. correlation: the id that ties together all that one request caused. causation: the
    position or command id of what directly caused it. command: the id that makes the append idempotent.
    claimed_at: the time that a client claims; the ledger's own time is `Recorded.recorded_at`.
    """

    actor: str | None = None
    correlation: str | None = None
    causation: str | int | None = None
    command: str | None = None
    claimed_at: datetime | None = None

    _text: str | None = field(default=None, init=False, repr=False, compare=False)

    def body(self) -> str:
        """Canonical JSON text, without what is not set. Remembered: a worker's appends carry the same."""
        if self._text is None:
            object.__setattr__(self, "_text", self._body())
        return self._text or ""

    def _body(self) -> str:
        fields = {name: getattr(self, name) for name in _META if getattr(self, name) is not None}
        if self.command is not None:
            checked_command(self.command)
        if self.claimed_at is not None:
            if not _is_aware(self.claimed_at):
                raise BadBody("must be an aware time, with its offset from UTC", "claimed_at")
            fields["claimed_at"] = self.claimed_at.isoformat()
        return canon.body(fields)

    @classmethod
    def read(cls, data: str | bytes | None) -> Meta:
        """The meta in a recorded envelope; fields of newer versions are ignored."""
        if data is None:
            return cls()
        fields: Mapping[str, Any] = json.loads(data)
        claimed = fields.get("claimed_at")
        known = {name: fields.get(name) for name in _META if name != "claimed_at"}
        return cls(**known, claimed_at=datetime.fromisoformat(claimed) if claimed else None)


_META = ("actor", "correlation", "causation", "command", "claimed_at")
NOBODY: Final = Meta()
"""What is ambient where `acting` set nothing."""
_ambient: ContextVar[Meta] = ContextVar("ledger_meta", default=NOBODY)


def _is_aware(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


@contextmanager
def acting(**fields: Any) -> Iterator[Meta]:
    """Everything appended in this context carries these fields of Meta: `with acting(actor="mina"): …`."""
    meta = replace(_ambient.get(), **fields)
    token = _ambient.set(meta)
    try:
        yield meta
    finally:
        _ambient.reset(token)


def ambient() -> Meta:
    """The Meta of the present context, as `acting` set it."""
    return _ambient.get()


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event as the log holds it; `event` reads the body when it is asked for.

    position: place in the log, from 1, with gaps. version: place in its stream, from 1, dense. data: JSON
    text of our own events; raw: bytes of another application; exactly one of them is set.
    """

    position: int
    stream: str
    version: int
    topic: str
    schema: int
    data: str | None
    raw: bytes | None
    meta_data: str | None
    recorded_at: datetime

    @property
    def event(self) -> Event | Unknown:
        """The fact. Unknown where this process has no class for it, or it is another application's bytes."""
        if self.data is None:
            return Unknown(self.topic, self.schema, {})
        return read_event(self.topic, self.schema, self.data)

    @property
    def meta(self) -> Meta:
        """Who, why, on whose behalf."""
        return Meta.read(self.meta_data)

    def canonical(self) -> bytes:
        """The bytes over which hashes of this event are taken: one canonical JSON array of all its parts."""
        body = None if self.data is None else json.loads(self.data)
        raw = None if self.raw is None else self.raw.hex()
        meta = None if self.meta_data is None else json.loads(self.meta_data)
        parts = [self.position, self.stream, self.version, self.topic, self.schema, body, raw, meta]
        return canon.body([*parts, int(self.recorded_at.timestamp()), self.recorded_at.microsecond]).encode()
