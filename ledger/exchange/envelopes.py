"""An event as JSON Lines and our CSV carry it: every part of its envelope, in both directions."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final
from uuid import UUID

from ..domain import canonical_json
from ..domain.names import checked
from ..domain.topics import TopicStatus, known_statuses
from ..errors import BadInput
from ..log.recorded import Recorded
from .source import Arrival, Place, aware, claimed

META_TEXTS: Final = ("actor", "correlation", "command")
SMALLEST, LARGEST = -(2**15), 2**15 - 1
"""The range of the column of schema numbers."""


def base64(raw: bytes) -> str:
    """Bytes as text."""
    return b64encode(raw).decode()


class Envelopes:
    """Makes arrivals from the parts of an event in a file.

    statuses: the statuses of topics, as announced to this ledger, else as declared in this process. here: the
    ledger that imports. renumber: ignore versions and append events to the end of their streams.
    """

    def __init__(
        self,
        statuses: Mapping[str, TopicStatus],
        here: UUID | None,
        zone: tzinfo | None,
        *,
        renumber: bool = False,
    ) -> None:
        self.statuses = known_statuses() | dict(statuses)
        self.here, self.zone, self.renumber = here, zone, renumber

    def arrival(self, place: Place, parts: Mapping[str, Any], data: str | None, value: Any) -> Arrival:
        """The event of these parts; `data` is its body as text, `value` the same as a Python value.

        Raises BadInput.
        """
        stream = checked(parts.get("stream") or "")
        topic = _text(parts.get("topic"), "topic")
        if not topic:
            raise BadInput("an event needs a topic")
        schema = _integer(parts.get("schema", 1), "schema", SMALLEST, LARGEST)
        version = parts.get("version")
        if version is not None:
            version = _integer(version, "version", 1, 2**62)
        raw = _raw(parts.get("raw"))
        if (data is None) == (raw is None):
            raise BadInput("an event has either `data` or `raw`, and exactly one of them")
        if data is not None and not isinstance(value, dict):
            shown = json.dumps(value, ensure_ascii=False)
            raise BadInput(f'`data` must be an object, such as {{"reason": "dust"}}, not {shown[:60]}')
        status = None if data is None else status_of(self.statuses.get(topic), value)
        fields = self._fields(parts)
        return Arrival(
            place, stream, None if self.renumber else version, topic, schema, data, raw, fields, status
        )

    def _fields(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata to record: the original recording time becomes the claimed time."""
        meta = parts.get("meta")
        if meta is not None and not isinstance(meta, dict):
            raise BadInput('`meta` must be an object, such as {"actor": "mina"}')
        fields = dict(meta or {})
        if "actor" not in fields and parts.get("actor") is not None:
            fields["actor"] = parts["actor"]
        for name in META_TEXTS:
            if fields.get(name) is not None:
                _text(fields[name], name)
        time, what = fields.get("claimed_at"), "claimed_at"
        if time is None:
            time, what = parts.get("recorded_at"), "recorded_at"
        if time is not None:
            at = aware(_text(time, what), self.zone, what)
            fields["claimed_at"] = (
                time if what == "claimed_at" and at.tzinfo is not self.zone else claimed(at)
            )
        if fields.get("causation") is not None:
            fields["causation"] = self._cause(fields["causation"], parts.get("ledger"))
        return _with_origin(fields, parts)

    def _cause(self, cause: Any, ledger: Any) -> str | int:
        """A causation of another ledger as text, LEDGER:POSITION, because its position means nothing here."""
        if isinstance(cause, str):
            return cause
        _integer(cause, "causation", 0, 2**62)
        if ledger is not None and str(ledger) == str(self.here):
            return int(cause)
        return f"{ledger}:{cause}" if ledger else str(cause)


def _with_origin(fields: dict[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with `origin`, where the event was first recorded; its command id counts only there."""
    command = fields.pop("command", None)
    origin = {"ledger": parts.get("ledger"), "position": parts.get("position"), "command": command}
    known = {name: value for name, value in origin.items() if value is not None}
    return {"origin": known, **fields} if known else fields


def status_of(move: TopicStatus | None, value: Any) -> str | None:
    """The status that an event with this body leads to."""
    if move is None or move.field is None:
        return move and move.status
    found = value.get(move.field) if isinstance(value, dict) else None
    return None if found is None else str(found)


def checked_body(value: Any, text: str | None = None) -> str:
    """The canonical text of a body; `text` itself if its numbers have more digits. Raises BadBody."""
    canonical = canonical_json.body(value)
    return canonical if text is None else text


def envelope(event: Recorded) -> dict[str, Any]:
    """The parts that are the same in all formats: all but body and metadata."""
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "topic": event.topic,
        "schema": event.schema,
        "recorded_at": event.recorded_at.isoformat(timespec="microseconds"),
    }


def parsed_meta(text: str) -> Any:
    """The metadata in a text. Raises BadInput."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"`meta` is not JSON: {error}") from None


def _raw(value: Any) -> bytes | None:
    if value is None:
        return None
    coded = value.get("base64") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(coded, str):
        raise BadInput(
            '`raw` must be {"base64": "…"}, as `pledger export` writes it (`tail` and `history` show bytes '
            "otherwise)"
        )
    try:
        return b64decode(coded, validate=True)
    except (NotBase64, ValueError):
        raise BadInput("`raw` holds text that is not base64") from None


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"`{what}` must be text, not {json.dumps(value)[:60]}")
    return value


def _integer(value: Any, what: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"`{what}` must be an integer from {least} to {most}, not {json.dumps(value)[:60]}")
    return value
