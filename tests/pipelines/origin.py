"""
The origin, small: a whole project in one JSONB row, loaded, changed and saved under one lock (spec 1.1).

It is a model of what the first makers of this pipeline ran, with the weaknesses of spec 1.10 in it, so that a
test can show that its check fails there. Nothing of the ledger is used but the idents. What worked on this
state is in origin_work.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, Final, TypeVar

import psycopg
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from ledger.pipelines import Ident, ProcessingState

R = TypeVar("R")

TABLES: Final = """
    CREATE TABLE IF NOT EXISTS project_state (
        project_type text, project_name text, state jsonb NOT NULL, PRIMARY KEY (project_type, project_name));
    CREATE TABLE IF NOT EXISTS concurrency_limit (name text PRIMARY KEY, active_slots int NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS emitted (name text, resource text);
"""


# The tree: each level as a mutable model; a view is a detached copy.


class Node(BaseModel):
    """What every level has. Times are the host's, without a zone (W0-16)."""

    processing_state: ProcessingState = ProcessingState.PENDING
    processing_started_at: datetime | None = None
    processing_finished_at: datetime | None = None

    @property
    def finished(self) -> bool:
        return self.processing_finished_at is not None

    def mark_started(self) -> None:  # leaves processing_finished_at (W0-05)
        self.processing_state = ProcessingState.RUNNING
        self.processing_started_at = datetime.now()  # noqa: DTZ005

    def mark_completed(self) -> None:
        self.processing_state = ProcessingState.COMPLETED
        self.processing_finished_at = datetime.now()  # noqa: DTZ005

    def mark_failed(self) -> None:  # nobody can say why (W0-06)
        self.processing_state = ProcessingState.FAILED
        self.processing_finished_at = datetime.now()  # noqa: DTZ005


class Strip(Node):
    archived: bool = False
    compressed: bool = False
    uploaded: bool = False

    def set_archived(self, value: bool = True) -> None:
        self.archived = value

    def set_compressed(self, value: bool = True) -> None:  # does not cascade, as reset does (W0-20)
        self.compressed = value

    def set_uploaded(self, value: bool = True) -> None:
        self.uploaded = value

    def reset_compressed(self) -> None:
        self.compressed = self.uploaded = False


class Channel(Node):
    strips: dict[int, Strip] = {}

    def get_or_create_strip(self, strip_id: int) -> Strip:
        return self.strips.setdefault(strip_id, Strip())

    def all_completed(self, total_strips: int) -> bool:
        return all(i in self.strips and self.strips[i].finished for i in range(1, total_strips + 1))

    def all_compressed(self, total_strips: int) -> bool:
        return all(i in self.strips and self.strips[i].compressed for i in range(1, total_strips + 1))


class Slice(Node):
    channels: dict[int, Channel] = {}


class LSMProject(Node):
    slices: dict[int, Slice] = {}

    def delete_slice(self, slice_id: int) -> bool:
        return self.slices.pop(slice_id, None) is not None


class Batch(Node):
    enface_processed: bool = False

    def set_enface_processed(self, value: bool = True) -> None:
        self.enface_processed = value

    def reset_enface_processed(self) -> None:
        self.enface_processed = False


class Mosaic(Node):
    batches: dict[int, Batch] = {}

    def all_batches_done(self, total: int) -> bool:  # a failed batch is finished, and so done (W0-04)
        return bool(self.batches) and all(
            i in self.batches and self.batches[i].finished for i in range(1, total + 1)
        )


class OCTSlice(Node):
    registered: bool = False
    mosaics: dict[int, Mosaic] = {}

    def set_registered(self, value: bool = True) -> None:
        self.registered = value

    def reset_registered(self) -> None:
        self.registered = False


class OCTProject(Node):
    slices: dict[int, OCTSlice] = {}


BELOW: Final[dict[type[Node], tuple[str, type[Node]]]] = {
    LSMProject: ("slices", Slice),
    Slice: ("channels", Channel),
    Channel: ("strips", Strip),
    OCTProject: ("slices", OCTSlice),
    OCTSlice: ("mosaics", Mosaic),
    Mosaic: ("batches", Batch),
}
PROJECTS: Final[dict[str, type[Node]]] = {"lsm": LSMProject, "oct": OCTProject}


def found(project: Any, ident: Ident, *, create: bool = False) -> Any:
    """The item of an ident, created with what is above it, or None."""
    item: Any = project
    for name in ident.fields()[1:]:
        child_id, (field, kind) = getattr(ident, name), BELOW[type(item)]
        children = getattr(item, field)
        if create:
            children.setdefault(child_id, kind())
        item = children.get(child_id)
        if item is None:
            return None
    return item


# The store.


class Row:
    """The repository: one row a project, under the project's name as it was given (W0-14)."""

    def __init__(self, dsn: str, pipeline: str) -> None:
        self.dsn, self.pipeline, self.kind = dsn, pipeline, PROJECTS[pipeline]

    def load(self, project_name: str) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(
                "SELECT state FROM project_state WHERE project_type = %s AND project_name = %s",
                [self.pipeline, project_name],
            ).fetchone()
        return self.kind() if row is None else self.kind.model_validate(row[0])

    def save(self, project_name: str, state: Any) -> None:  # without a version (W0-02)
        with psycopg.connect(self.dsn) as connection:
            connection.execute(
                "INSERT INTO project_state VALUES (%s, %s, %s)"
                " ON CONFLICT (project_type, project_name) DO UPDATE SET state = EXCLUDED.state",
                [self.pipeline, project_name, Jsonb(state.model_dump(mode="json"))],
            )


class Slot:
    """The lock: a slot of a global concurrency limit, which knows neither owner nor lease (W0-03)."""

    def __init__(self, dsn: str, pipeline: str) -> None:
        self.dsn, self.pipeline = dsn, pipeline

    @contextmanager
    def acquire(self, project_name: str, timeout_seconds: float | None = None) -> Iterator[None]:
        name = f"{project_name.lower().replace('_', '-')}_{self.pipeline}_state_lock"
        deadline = time.monotonic() + (1e9 if timeout_seconds is None else timeout_seconds)
        self._run("INSERT INTO concurrency_limit VALUES (%s) ON CONFLICT DO NOTHING", name)
        take = "UPDATE concurrency_limit SET active_slots = 1 WHERE name = %s AND active_slots = 0"
        while not self._run(take, name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is taken")
            time.sleep(0.01)
        try:
            yield
        finally:
            self._run("UPDATE concurrency_limit SET active_slots = 0 WHERE name = %s", name)

    def _run(self, statement: Any, name: str) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement, [name]).rowcount


class OriginStore:
    """Lock, load, change, save; by ident, as the services of the origin offered it."""

    def __init__(self, dsn: str, pipeline: str, *, lock: bool = True) -> None:
        self.row, self.slot = Row(dsn, pipeline), Slot(dsn, pipeline) if lock else None

    @contextmanager
    def locked(self, project_name: str, timeout_seconds: float | None = None) -> Iterator[Any]:
        with self.slot.acquire(project_name, timeout_seconds) if self.slot else nullcontext():
            state = self.row.load(project_name)
            yield state
            self.row.save(project_name, state)

    def read(self, project_name: str, reader: Callable[[Any], R], timeout_seconds: float | None = None) -> R:
        with self.locked(project_name, timeout_seconds) as state:  # and so it saves (W0-01)
            return reader(state)

    @contextmanager
    def open_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> Iterator[Any]:
        with self.locked(ident.project_name, timeout_seconds) as state:
            yield found(state, ident, create=True)

    def read_item(self, ident: Ident, *, timeout_seconds: float | None = None) -> Any:
        return self.read(ident.project_name, lambda state: _view(found(state, ident)), timeout_seconds)

    def peek_item(self, ident: Ident) -> Any:
        return _view(found(self.row.load(ident.project_name), ident))


def _view(item: Any) -> Any:
    return None if item is None else item.model_copy(deep=True)
