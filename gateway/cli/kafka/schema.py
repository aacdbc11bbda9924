"""`pledger kafka schema`: the envelope of events for consumers in other languages."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..errors import NotThere
from ..output import json_line, write
from ..session import AsJson, session_of
from .options import Prefix

Topic = Annotated[
    str | None,
    typer.Argument(metavar="EVENT", help="The topic of one event, such as job.started: its body alone."),
]


def schema(
    context: typer.Context, topic: Topic = None, prefix: Prefix = "ledger", as_json: AsJson = False
) -> None:
    """Print the events as AsyncAPI, or the body of one of them as JSON Schema.

    The document names the topics of Kafka, the key and the headers of a record, and the body of each event
    of the shipped domains and of those that --domain imports. It is made from the classes of the events.

    \b
    Examples:
      pledger kafka schema > asyncapi.json
      pledger kafka schema job.started

    JSON, one object: the document itself, on one line.
    """
    session = session_of(context, as_json)
    session.know_views()
    from consumers.kafka.asyncapi import asyncapi, body_schema
    from ledger.domain.known import KNOWN

    if topic is not None and topic not in KNOWN.events:
        raise NotThere(f"no event has the topic {topic}: import its domain with --domain MODULE")
    found = asyncapi(prefix) if topic is None else body_schema(KNOWN.events[topic])
    if session.json:
        json_line(found)
    else:
        write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
