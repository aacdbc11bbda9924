"""The envelope as AsyncAPI and JSON Schema: each reference leads somewhere, and real records fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from consumers.kafka.asyncapi import HEADERS, OPTIONAL, asyncapi, body_schema
from consumers.kafka.envelope import record_of, source_of
from consumers.kafka.routes import Routes
from ledger import Event, Ledger
from ledger.domain.known import KNOWN
from ledger.jobs import Jobs
from tests.lamp import LampMade


def references(document: Any) -> Iterator[str]:
    """All references in a document."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(document, list):
        for part in document:
            yield from references(part)


class SettingsChosen(Event, topic="asyncapi.settings.chosen"):
    """An event with a mapping in a mapping as default, which events freeze."""

    settings: dict[str, dict[str, int]] = {"gain": {"red": 2}}


def test_a_mapping_as_default() -> None:
    schema = body_schema(SettingsChosen)
    assert schema["properties"]["settings"]["default"] == {"gain": {"red": 2}}


def test_each_reference_leads_somewhere() -> None:
    document = json.loads(json.dumps(asyncapi("mine")))
    for reference in references(document):
        place: Any = document
        for word in reference.removeprefix("#/").split("/"):
            place = place[word]
    assert document["channels"]["jobs"]["address"] == "mine.jobs"
    assert document["components"]["messages"].keys() == KNOWN.events.keys()


def test_a_schema_by_itself() -> None:
    """A body may have more fields than its schema knows: a newer writer."""
    schema = body_schema(LampMade)
    assert schema["$id"] == "urn:ledger:lamp.made"
    assert "additionalProperties" not in schema
    assert "watts" in schema["properties"]


def test_records_have_these_headers(log: Ledger) -> None:
    """A record has the required headers, and no others than those that are described."""
    job = Jobs(log).submit("ping", {"n": 1})
    (event, *_) = log.read(f"job/{job}")
    topic = Routes().topic_of(event.stream)
    record = record_of(event, 0, source_of(UUID(int=1)), topic, 0)
    names = {name for name, _ in record.headers}
    assert HEADERS.keys() - OPTIONAL <= names <= HEADERS.keys()
    assert topic == asyncapi()["channels"]["jobs"]["address"]
    body, schema = json.loads(record.value or b""), body_schema(KNOWN.events[event.topic])
    assert set(schema.get("required", [])) <= body.keys() <= schema["properties"].keys()
