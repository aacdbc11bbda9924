"""The envelope of an event, as the log holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..domain import canonical_json
from ..domain.names import checked_command
from ..domain.topics import Unknown, read_event
from ..errors import BadBody, UnreadableEvent

if TYPE_CHECKING:
    from ..domain.event import Event


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of an event: who, why, on whose behalf.

    actor: who did it. correlation: the id shared by everything that one request caused. causation: the
    position or command id of the direct cause. command: the id that makes the append idempotent. claimed_at:
    the time that a client claims; the ledger's own time is `Recorded.recorded_at`.
    """

    actor: str | None = None
    correlation: str | None = None
    causation: str | int | None = None
    command: str | None = None
    claimed_at: datetime | None = None

    text: str | None = field(default=None, init=False, repr=False, compare=False)
    """The cached result of `body`: a worker's appends have the same metadata each time."""

    def body(self) -> str:
        """Canonical JSON text, without the fields that are not set."""
        if self.text is None:
            object.__setattr__(self, "text", self._body())
        return self.text or ""

    def _body(self) -> str:
        fields = {name: getattr(self, name) for name in _META if getattr(self, name) is not None}
        if self.command is not None:
            checked_command(self.command)
        if self.claimed_at is not None:
            if not _is_aware(self.claimed_at):
                raise BadBody("must be an aware time, with its offset from UTC", "claimed_at")
            fields["claimed_at"] = self.claimed_at.isoformat()
        return canonical_json.body(fields)

    @classmethod
    def read(cls, data: str | bytes | None) -> Meta:
        """The metadata in a recorded envelope; never fails, because a writer may record anything there.

        Fields of newer versions are ignored. A value that should be text and is not becomes its JSON text; an
        invalid time, or one without an offset from UTC, becomes None.
        """
        if data is None:
            return cls()
        fields = canonical_json.parsed(data)
        if not isinstance(fields, dict):
            return cls()
        return cls(
            actor=_text_in(fields, "actor"),
            correlation=_text_in(fields, "correlation"),
            causation=_cause_in(fields),
            command=_text_in(fields, "command"),
            claimed_at=_time_in(fields),
        )


_META = ("actor", "correlation", "causation", "command", "claimed_at")
_FIRST_YEAR, _LAST_YEAR = 2, 9998
"""Times in these years can be shown in every time zone."""
NOBODY: Final = Meta()
"""The ambient Meta where `acting` set nothing."""
_ambient: ContextVar[Meta] = ContextVar("ledger_meta", default=NOBODY)


def _text_in(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cause_in(fields: Mapping[str, Any]) -> str | int | None:
    """A command id or a position; any other value as text."""
    value = fields.get("causation")
    return value if isinstance(value, int) and not isinstance(value, bool) else _text_in(fields, "causation")


def _time_in(fields: Mapping[str, Any]) -> datetime | None:
    try:
        claimed = datetime.fromisoformat(fields.get("claimed_at") or "")
    except (TypeError, ValueError):
        return None
    return claimed if _is_aware(claimed) and _FIRST_YEAR <= claimed.year <= _LAST_YEAR else None


def _is_aware(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


@contextmanager
def acting(**fields: Any) -> Iterator[Meta]:
    """Set fields of Meta for everything that is appended in this context: `with acting(actor="mina"): …`."""
    meta = replace(_ambient.get(), **fields)
    token = _ambient.set(meta)
    try:
        yield meta
    finally:
        _ambient.reset(token)


ambient: Final = _ambient.get
"""Returns the Meta of the current context, as `acting` set it."""


class Recorded(NamedTuple):
    """One event as the log holds it; `event` decodes the body on access.

    position: place in the log, from 1, with gaps. version: place in its stream, from 1, without gaps. data:
    JSON text of the ledger's own events; raw: bytes of another application; exactly one of them is set.
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
        """The fact. Unknown where this process has no class for it, or it is another application's bytes.

        Raises UnreadableEvent where the body does not match the topic.
        """
        if self.data is None:
            return Unknown(self.topic, self.schema, {})
        try:
            return read_event(self.topic, self.schema, self.data)
        except UnreadableEvent as error:
            raise error.at(self.stream, self.version, self.position) from error.__cause__

    @property
    def meta(self) -> Meta:
        """Who, why, on whose behalf."""
        return Meta.read(self.meta_data)

    def canonical(self) -> bytes:
        """The bytes for hashes of this event: one canonical JSON array of all its parts."""
        body = None if self.data is None else canonical_json.parsed(self.data)
        raw = None if self.raw is None else self.raw.hex()
        meta = None if self.meta_data is None else canonical_json.parsed(self.meta_data)
        parts = [self.position, self.stream, self.version, self.topic, self.schema, body, raw, meta]
        return canonical_json.body(
            [*parts, int(self.recorded_at.timestamp()), self.recorded_at.microsecond]
        ).encode()
