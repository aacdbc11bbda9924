"""
The envelope as AsyncAPI and JSON Schema, generated from the event classes that this process has imported.

For consumers in other languages: which topics there are, the key and the headers of a record, and the body
of each event. Bodies are open: a newer version of a domain may add fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from ledger.domain.event import Event
from ledger.domain.frozen import FrozenDict, items_of
from ledger.domain.known import KNOWN

from .routes import Routes, domain_of

VERSION: Final = "3.0.0"
SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "string", "pattern": "^[0-9]+$"}
HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ce_specversion": {"const": "1.0", "description": "CloudEvents."},
    "ce_id": _NUMBER | {"description": "The position of the event in the log."},
    "ce_source": {"type": "string", "pattern": "^urn:ledger:", "description": "The ledger."},
    "ce_type": _TEXT | {"description": "The topic of the event, such as job.started."},
    "ce_subject": _TEXT | {"description": "The stream."},
    "ce_time": _TEXT
    | {"format": "date-time", "description": "When the ledger recorded it: UTC, microseconds."},
    "content-type": {"enum": ["application/json", "application/octet-stream"]},
    "ce_ledgerposition": _NUMBER | {"description": "The position of the event in the log."},
    "ce_ledgerversion": _NUMBER | {"description": "The version of the event in its stream, from 1."},
    "ce_ledgerschema": _NUMBER | {"description": "The number of the body's shape."},
    "ce_ledgerprev": _NUMBER
    | {"description": "The position of the record before it in this partition, 0 at the start."},
    "ce_ledgermeta": _TEXT | {"description": "Metadata as JSON: actor, correlation, causation, command."},
    "ce_dataref": _TEXT | {"description": "ledger:POSITION where the body is too large: the value is empty."},
    "traceparent": _TEXT | {"description": "W3C trace context, where the metadata has one."},
}
"""Each header of a record, whose values are UTF-8 text."""
OPTIONAL: Final = frozenset({"ce_ledgermeta", "ce_dataref", "traceparent"})


def headers_schema() -> dict[str, Any]:
    """JSON Schema of the headers of a record."""
    required = [name for name in HEADERS if name not in OPTIONAL]
    return {"type": "object", "properties": dict(HEADERS), "required": required}


def body_schema(kind: type[Event]) -> dict[str, Any]:
    """JSON Schema of the body of an event, by itself."""
    return {"$schema": SCHEMA, "$id": f"urn:ledger:{kind.topic}", **_body(kind, "#/$defs/{model}")}


def asyncapi(prefix: str = "ledger", events: Iterable[type[Event]] | None = None) -> dict[str, Any]:
    """The AsyncAPI document of all topics of events. events: by default all that are imported."""
    kinds = {kind.topic: kind for kind in (KNOWN.events.values() if events is None else events)}
    schemas: dict[str, Any] = {}
    messages = {topic: _message(topic, kinds[topic], schemas) for topic in sorted(kinds)}
    channels = _channels(Routes(prefix), messages)
    return {
        "asyncapi": VERSION,
        "info": {
            "title": "Events of a pipeline ledger",
            "version": "1",
            "description": "CloudEvents 1.0 in binary mode: a record's value is the body of the event.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"read-{domain}": {"action": "receive", "channel": {"$ref": f"#/channels/{domain}"}}
            for domain in channels
        },
        "components": {
            "messages": messages,
            "messageTraits": {"envelope": {"contentType": "application/json", "headers": headers_schema()}},
            "schemas": schemas,
        },
    }


def _channels(routes: Routes, messages: Iterable[str]) -> dict[str, Any]:
    """A channel for each topic of Kafka, with the messages that it carries."""
    channels: dict[str, Any] = {}
    for topic in messages:  # its streams begin with the same word
        domain = domain_of(topic.partition(".")[0])
        channel = channels.setdefault(
            domain,
            {
                "address": routes.topic(domain),
                "description": f"The events of the domain {domain}. The key is the stream.",
                "messages": {},
            },
        )
        channel["messages"][topic] = {"$ref": f"#/components/messages/{topic}"}
    return channels


def _message(topic: str, kind: type[Event], schemas: dict[str, Any]) -> dict[str, Any]:
    """The message of an event; the schemas that its body refers to are added to `schemas`."""
    body = _body(kind, f"#/components/schemas/{topic}.{{model}}")
    schemas |= {f"{topic}.{name}": schema for name, schema in body.pop("$defs", {}).items()}
    return {
        "name": topic,
        "summary": (kind.__doc__ or topic).strip().partition("\n")[0],
        "traits": [{"$ref": "#/components/messageTraits/envelope"}],
        "payload": body,
    }


def _body(kind: type[Event], refs: str) -> dict[str, Any]:
    schema: dict[str, Any] = kind.model_json_schema(
        mode="serialization", ref_template=refs, schema_generator=_Schema
    )
    _open(schema)
    return schema


class _Schema(GenerateJsonSchema):
    """Knows the defaults of events, which are frozen."""

    def encode_default(self, dft: Any) -> Any:
        return (
            json.loads(json.dumps(dft, default=items_of))
            if isinstance(dft, FrozenDict)
            else super().encode_default(dft)
        )


def _open(schema: Any) -> None:
    """Allow further fields in a schema, at all depths."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            del schema["additionalProperties"]
        for part in schema.values():
            _open(part)
    elif isinstance(schema, list):
        for part in schema:
            _open(part)
