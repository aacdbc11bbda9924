"""
What is answered for a flow, deployment, queue or pool that is not there.

A flow run's process asks for them by id when it sends its first event, to name them in each event. If one of
these answers is 404, Prefect's client drops the event and all events of task runs after it: the states of
tasks would be lost because, say, a deployment was deleted while it ran. But a user who looks for a deployment
that never was shall learn it. So:

- by id, a deleted one is answered as it was: its stream still tells;
- one that the ledger never knew is answered as a stub, named by its id, if the request comes from inside a
  flow run: Prefect's client then sends the header X-Prefect-Flow-Id;
- to anybody else, such as the command line, it is 404. By name, a deleted one is also 404.
"""

from __future__ import annotations

from typing import Any

from ledger import RecordNotFound
from ledger.runs.records import Record

from .calls import Call


def record_or_stub(call: Call, kind: str, id: str, **fields: Any) -> dict[str, Any]:
    """The record of this id as JSON, a deleted one as it was; to a flow run, else a stub with these fields.

    Raises RecordNotFound.
    """
    try:
        return call.services.records.open(kind, id).shown().shown()
    except RecordNotFound:
        if not from_flow_run(call):
            raise
    return {"id": id, "name": id, **fields}


def from_flow_run(call: Call) -> bool:
    """Whether the request comes from inside a flow run."""
    return "x-prefect-flow-id" in call.headers


def shown(record: Record) -> dict[str, Any]:
    """A record as JSON."""
    return record.shown()
