"""JSON Lines: one complete object per event; the format for moving a ledger to another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import Any, Final, NoReturn
from uuid import UUID

from ..domain import canonical_json
from ..domain.topics import TopicStatus
from ..errors import BadFile, BadInput
from ..log.recorded import Recorded
from .envelopes import Envelopes, base64, checked_body, envelope
from .source import Arrival, Faults, Source

LONGEST: Final = 2 * canonical_json.MAX_BYTES
"""Maximum bytes of one line: a body of the largest size, escaped."""
KEYS: Final = frozenset(
    (
        "ledger",
        "position",
        "stream",
        "version",
        "topic",
        "schema",
        "recorded_at",
        "actor",
        "meta",
        "data",
        "raw",
        "leads_to",
    )
)
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def lines(events: Iterable[Recorded], ledger: UUID, statuses: Mapping[str, TopicStatus]) -> Iterator[str]:
    """One line per event; body and metadata are the ledger's own text, no number is parsed."""
    for event in events:
        head = _COMPACT({"ledger": str(ledger), **envelope(event)})[:-1]
        status = statuses.get(event.topic)
        leads = "null" if status is None else _COMPACT(_said(status))
        raw = "null" if event.raw is None else f'{{"base64":"{base64(event.raw)}"}}'
        meta = event.meta_data or "null"
        yield f'{head},"leads_to":{leads},"meta":{meta},"raw":{raw},"data":{event.data or "null"}}}\n'


def _said(status: TopicStatus) -> dict[str, str]:
    return {name: value for name, value in status._asdict().items() if value is not None}


class JsonLines:
    """Reads JSON Lines as `pledger export` writes them; required are only stream, topic, and data or raw.

    known: the statuses of topics in the importing ledger. Raises BadFile.
    """

    insists = False

    def __init__(
        self,
        known: Mapping[str, TopicStatus] | None = None,
        here: UUID | None = None,
        zone: tzinfo | None = None,
        *,
        renumber: bool = False,
    ) -> None:
        self.faults = Faults(strict=True)
        self.statuses: dict[str, TopicStatus] = {}
        self._told = frozenset(known or {})
        self._envelopes = Envelopes(known or {}, here, zone, renumber=renumber)
        self._exact = True
        self._decoder = json.JSONDecoder(parse_float=self._float, parse_constant=_no_number)

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in file order."""
        number = 0
        while line := source.unpacked.readline(LONGEST + 1):
            number += 1
            try:
                if len(line) > LONGEST:
                    raise BadInput(f"the line has more than {LONGEST} bytes")
                if line.isspace():
                    continue
                yield self._arrival(
                    number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                )
            except UnicodeDecodeError as error:
                raise BadFile(source.name, f"line {number}", f"it is not UTF-8 ({error.reason})") from error
            except BadInput as error:
                raise BadFile(source.name, f"line {number}", str(error)) from error

    def body(self, text: str) -> tuple[str, Any]:
        """The body in a text, as it is recorded and as Python has it. Raises BadInput."""
        value = self._read(text)
        return checked_body(value, None if self._exact else text), value

    def _arrival(self, number: int, line: str) -> Arrival:
        parts = self._object(line)
        if unknown := parts.keys() - KEYS:
            raise BadInput(
                f"the key {min(unknown)!r} is none of {', '.join(sorted(KEYS))}; what happened goes into "
                "`data`"
            )
        data = value = None
        if "data" in parts and (parts.get("raw") is None or parts["data"] is not None):
            value = parts["data"]
            data = checked_body(value, None if self._exact else self._slice(line, "data"))
        if parts.get("leads_to") is not None:
            self._learn(parts.get("topic"), parts["leads_to"])
        return self._envelopes.arrival(("line", number), parts, data, value)

    def _read(self, text: str) -> Any:
        self._exact = True
        try:
            return self._decoder.decode(text)
        except json.JSONDecodeError as error:
            raise BadInput(f"it is not JSON ({error.msg}, column {error.pos + 1})") from None
        except BadInput:
            raise
        except (ValueError, RecursionError) as error:  # more digits or levels than can be read
            raise BadInput(f"it cannot be read: {error}") from None

    def _object(self, line: str) -> dict[str, Any]:
        parts = self._read(line)
        if not isinstance(parts, dict):
            raise BadInput(
                'a line must be one object, such as {"stream": "scan/1", "topic": "scan.made", "data": {}}'
            )
        return parts

    def _float(self, text: str) -> float:
        """A float; records if the ledger would store other digits than the file has."""
        value = float(text)
        if self._exact and "e" not in text and "E" not in text and canonical_json.number(value) != text:
            self._exact = False
        return value

    def _slice(self, line: str, wanted: str) -> str:
        """The text of one value of an object that was parsed already."""
        at, found = line.index("{") + 1, ""
        while True:
            at = _after_space(line, at)
            if line[at] == "}":
                return found
            key, at = self._decoder.raw_decode(line, at)
            at = _after_space(line, _after_space(line, at) + 1)
            _, end = self._decoder.raw_decode(line, at)
            found = line[at:end] if key == wanted else found
            at = _after_space(line, end)
            at += line[at] == ","

    def _learn(self, topic: Any, leads: Any) -> None:
        """Take over the file's status of a topic, if none was announced to the ledger yet."""
        if not isinstance(topic, str) or topic in self._told or topic in self.statuses:
            return
        is_move = isinstance(leads, dict) and len(leads) == 1 and leads.keys() <= {"status", "field"}
        if not is_move or not all(isinstance(item, str) for item in leads.values()):
            raise BadInput('`leads_to` must be {"status": "…"} or {"field": "…"}')
        self.statuses[topic] = self._envelopes.statuses.setdefault(topic, TopicStatus(**leads))


def _after_space(line: str, at: int) -> int:
    while line[at] in " \t\r\n":
        at += 1
    return at


def _no_number(text: str) -> NoReturn:
    raise BadInput(f"{text} is not a number that JSON can hold; use null or a text")
