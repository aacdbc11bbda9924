"""What a writer's login may append by hand: any body, any meta, any topic, any state."""

from __future__ import annotations

import json
from typing import Any

import psycopg


def forge(
    connection: psycopg.Connection[Any],
    stream: str,
    topic: str,
    data: str | None = "{}",
    *,
    raw: bytes | None = None,
    meta: str = "{}",
    schema: int = 1,
    status: str | None = None,
    state: str | None = None,
    state_schema: int | None = None,
) -> int:
    """Append one event behind what the stream has, by the function that a writer may call; its position.

    Raises psycopg's errors where PostgreSQL itself refuses it.
    """
    ((version,),) = connection.execute(
        "SELECT coalesce(max(version), 0) FROM ledger.events WHERE stream = %s", [stream]
    ).fetchall()
    row = connection.execute(
        "SELECT position, outcome FROM ledger.append_one(%s, %s, %s, %s::smallint, %s::jsonb, %s, %s::jsonb, "
        "true, %s, %s, %s::integer)",
        [stream, version, topic, schema, None if raw else data, raw, meta, status, state, state_schema],
    ).fetchone()
    assert row is not None
    assert row[1] == "recorded"
    return int(row[0])


def forge_many(
    connection: psycopg.Connection[Any], stream: str, topic: str, datas: list[str], *, meta: str = "{}",
    status: str | None = None, state: str | None = None,
) -> None:  # fmt: skip
    """The same by the other function: several events at once, to whatever version the stream has."""
    many = len(datas)
    spec = {
        "stream": stream,
        "expected": -1,
        "head": True,
        "count": many,
        "status": status,
        "base": 0,
        "schema": 1,
    }
    connection.execute(
        "SELECT ledger.append_many(%s::jsonb, %s::text[], %s::integer[], %s::integer[], %s::text[], "
        "%s::smallint[], %s::text[], %s::bytea[], %s::text[], %s::jsonb, NULL, NULL)",
        [json.dumps([spec]), [state], [1] * many, [*range(1, many + 1)], [topic] * many, [1] * many, datas,
         [None] * many, [meta] * many, meta],
    )  # fmt: skip
