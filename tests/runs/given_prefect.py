"""A database of a Prefect server, made by SQL: its tables, and what a few flows left in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cryptography.fernet import Fernet

TABLES: Final = Path(__file__).with_name("prefect_database.sql")
START: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def number(nth: int) -> str:
    """The id with this number."""
    return str(UUID(int=nth))


def at(minutes: float) -> str:
    """A time as Prefect's server keeps it in SQLite: naive, UTC; minutes after START."""
    return (
        (START + timedelta(minutes=minutes)).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    )


@dataclass
class Given:
    """A database that is filled. key: with which its blocks are encrypted."""

    path: Path
    key: str = field(default_factory=lambda: Fernet.generate_key().decode())
    _next: int = 1000

    def __post_init__(self) -> None:
        with closing(sqlite3.connect(self.path)) as file:
            file.executescript(TABLES.read_text(encoding="utf-8"))
        self.put("configuration", key="ENCRYPTION_KEY", value={"fernet_key": self.key})

    def put(self, table: str, id: str | None = None, **columns: Any) -> str:
        """Insert a row; returns its id. Objects and lists become JSON."""
        self._next += 1
        id = id or number(self._next)
        row = {"id": id, "created": at(0), "updated": at(0), **columns}
        values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
        with closing(sqlite3.connect(self.path)) as file, file:
            names = ", ".join(f'"{name}"' for name in row)
            file.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", values)
        return id

    def json_columns(self, table: str) -> set[str]:
        """The columns of a table that have JSON."""
        with closing(sqlite3.connect(self.path)) as file:
            found = file.execute("SELECT name FROM pragma_table_info(?) WHERE type = 'JSON'", [table])
            return {name for (name,) in found}

    def change(self, table: str, id: str, **columns: Any) -> None:
        """Change columns of a row."""
        with closing(sqlite3.connect(self.path)) as file, file:
            for name, value in columns.items():
                file.execute(f'UPDATE {table} SET "{name}" = ? WHERE id = ?', [value, id])

    def flow_run(self, id: str, flow: str, name: str, *states: tuple[str, str, float], **more: Any) -> str:
        """A flow run and its states: type, name, minutes."""
        own = {"parameters": {"n": 1}, "context": {}, "empirical_policy": {"retries": 1}, "tags": ["x"]}
        self.put(
            "flow_run", id, flow_id=flow, name=name, run_count=1, total_run_time=at(0), **{**own, **more}
        )
        for nth, state in enumerate(states):
            self.state("flow", id, number(int(UUID(id)) * 1000 + nth), state)
        return id

    def task_run(
        self, id: str, run: str | None, name: str, *states: tuple[str, str, float], **more: Any
    ) -> str:
        """A task run and its states."""
        own = {"task_key": name, "dynamic_key": id, "empirical_policy": {}, "task_inputs": {}, "tags": []}
        total = "1970-01-01 00:00:01.500000"
        ran = {"run_count": 2, "total_run_time": total, "start_time": at(1), "end_time": at(2)}
        self.put("task_run", id, flow_run_id=run, name=name, **{**own, **ran, **more})
        for nth, state in enumerate(states):
            self.state("task", id, number(int(UUID(id)) * 1000 + nth), state)
        return id

    def state(self, kind: str, run: str, id: str, state: tuple[str, str, float], **more: Any) -> str:
        """A state of a run."""
        type, name, minutes = state
        columns: Mapping[str, Any] = {
            f"{kind}_run_id": run,
            "type": type,
            "name": name,
            "timestamp": at(minutes),
        }
        return self.put(f"{kind}_run_state", id, **columns, state_details={"flow_run_id": None}, **more)

    def block(self, id: str, name: str, values: dict[str, Any], **more: Any) -> str:
        """A block whose values are encrypted as Prefect's server does it."""
        token = Fernet(self.key).encrypt(json.dumps(values).encode()).decode()
        return self.put("block_document", id, name=name, data=json.dumps(token), is_anonymous=0, **more)


def filled(path: Path) -> Given:
    """A database with a bit of everything."""
    given = Given(path)
    etl = given.put("flow", number(1), name="etl", tags=["nightly"], labels={})
    pool = given.put("work_pool", number(2), name="local", type="process", base_job_template={}, is_paused=0)
    queue = given.put("work_queue", number(3), name="default", work_pool_id=pool, priority=1, is_paused=0)
    given.change("work_pool", pool, default_queue_id=queue)
    deployment = given.put(
        "deployment", number(4), name="prod", flow_id=etl, work_queue_id=queue, work_queue_name="default",
        infra_overrides={"cpu": 2}, paused=0, tags=["d"], parameters={}, enforce_parameter_schema=1,
    )  # fmt: skip
    schedule = {"interval": 3600.0, "anchor_date": "2026-03-01T00:00:00Z", "timezone": "UTC"}
    given.put("deployment_schedule", deployment_id=deployment, schedule=schedule, active=1, parameters={})
    given.put("variable", number(5), name="colour", value={"red": 1}, tags=["v"])
    given.put("concurrency_limit_v2", number(6), name="db", limit=3, active=1, slot_decay_per_second=0.0)
    given.put("concurrency_limit", number(7), tag="gpu", concurrency_limit=2, active_slots=[])
    type_id = given.put("block_type", number(8), name="Secret", slug="secret", is_protected=1)
    schema = given.put(
        "block_schema", number(9), checksum="sha256:ab", fields={"title": "Secret"}, capabilities=[],
        version="1", block_type_id=type_id,
    )  # fmt: skip
    of = {"block_type_id": type_id, "block_schema_id": schema}
    inner = given.block(number(11), "inner", {"value": "hidden-password"}, **of)
    outer = given.block(number(10), "outer", {"user": "ann"}, **of)
    given.put(
        "block_document_reference", name="secret", parent_block_document_id=outer,
        reference_block_document_id=inner,
    )  # fmt: skip
    pending, running = ("PENDING", "Pending", 0.0), ("RUNNING", "Running", 1.0)
    done = ("COMPLETED", "Completed", 3.0)
    more = {"deployment_id": deployment, "work_queue_id": queue, "idempotency_key": "k1"}
    run = given.flow_run(number(20), etl, "red-ant", pending, running, **more)
    result = given.put("artifact", number(30), type="result", data={"type": "resultrecord", "value": 7},
                       flow_run_id=run)  # fmt: skip
    given.state("flow", run, number(29), done, result_artifact_id=result)
    given.put("flow_run_input", flow_run_id=run, key="answer", value='"yes"', sender=None)
    given.task_run(number(21), run, "load", pending, running, ("RUNNING", "Retrying", 1.5), done)
    given.flow_run(number(22), etl, "blue-bee", ("SCHEDULED", "Scheduled", 0.0))
    given.put("artifact", number(31), key="report", type="markdown", data=json.dumps("# hi"), flow_run_id=run)
    given.put(
        "log", flow_run_id=run, task_run_id=None, name="prefect", level=20, message="hi", timestamp=at(1)
    )
    given.put("worker", name="w", work_pool_id=pool)
    return given
