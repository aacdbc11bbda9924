"""
The records in a Prefect database: flows, deployments, pools, blocks, variables, limits and so on.

A record keeps its id, and the time at which Prefect created it. One that the ledger has already is left as it
is. Where another record of the ledger has the unique name, that one takes its place: what refers to the id of
the one refers to that of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ledger import Ledger
from ledger.errors import BadInput, RecordExists, RecordNotFound
from ledger.runs.artifacts import Artifacts
from ledger.runs.blocks import Blocks
from ledger.runs.kinds import kind_of
from ledger.runs.records import Records, open_class

from .counts import Counts
from .database import PrefectDatabase, Row, time_of
from .secrets import Secrets

KINDS: Final = {
    "flow": "flow", "block_type": "block_type", "block_schema": "block_schema",
    "concurrency_limit_v2": "concurrency_limit", "concurrency_limit": "concurrency_limit",
    "work_pool": "work_pool", "work_queue": "work_queue", "deployment": "deployment",
    "variable": "variable", "automation": "automation", "saved_search": "saved_search",
    "block_document": "block_document", "artifact": "artifact",
}  # fmt: skip
"""The kind of record that the rows of a table become."""
_REFERENCES: Final = {
    "flow_id": "flow", "block_type_id": "block_type", "block_schema_id": "block_schema",
    "work_pool_id": "work_pool", "work_queue_id": "work_queue", "deployment_id": "deployment",
    "concurrency_limit_id": "concurrency_limit",
}  # fmt: skip
"""The kinds of records to which fields refer."""


class RecordImport:
    """Takes records over. ids: of other records of the ledger that take the places of those of Prefect."""

    def __init__(self, ledger: Ledger, database: PrefectDatabase) -> None:
        self.ledger, self.database, self.records = ledger, database, Records(ledger)
        self.ids: dict[tuple[str, str], str] = {}
        self._places: dict[str, tuple[Row, str]] | None = None

    def referring(self, row: Mapping[str, Any]) -> Row:
        """A row whose references name the records of the ledger, and without what is not set."""
        return {
            name: self.ids.get((_REFERENCES[name], value), value) if name in _REFERENCES else value
            for name, value in row.items()
            if value is not None
        }

    def place_of(self, queue_id: str | None) -> dict[str, Any]:
        """The id and name of the pool of a queue, and the name of the queue; nothing for none.

        Prefect keeps only the queue's id with runs and deployments, and shows the rest.
        """
        if self._places is None:
            pools = {row["id"]: row for page in self.database.pages("work_pool") for row in page}
            queues = [row for page in self.database.pages("work_queue") for row in page]
            self._places = {
                row["id"]: (pools[row["work_pool_id"]], row["name"])
                for row in queues
                if row["work_pool_id"] in pools
            }
        place = self._places.get(queue_id or "")
        if place is None:
            return {}
        pool, queue = place
        return {
            "work_pool_id": self.ids.get(("work_pool", pool["id"]), pool["id"]),
            "work_pool_name": pool["name"],
            "work_queue_name": queue,
        }

    def take(self, table: str, rows: Sequence[Row]) -> Counts:
        """Take over some rows of a table; returns how many were new, known, and left out."""
        kind, counts = KINDS[table], Counts()
        known = self._known(kind, rows)
        if table == "block_document":
            return self._take_blocks([row for row in rows if row["id"] not in known], len(known))
        more = _MORE.get(table, _nothing)(self, rows)
        for row in rows:
            if row["id"] in known:
                counts.known += 1
                continue
            given = self.referring({**row, **more.get(row["id"], {})})
            self._create(kind, row, kind_of(kind).known(given), counts)
        return counts

    def _known(self, kind: str, rows: Sequence[Row]) -> set[str]:
        """The ids of those that the ledger has or had."""
        opened = [open_class(kind)(row["id"]) for row in rows]
        return {one.id for one in self.ledger.load_each(opened) if one.version}

    def _create(self, kind: str, row: Row, fields: Mapping[str, Any], counts: Counts) -> None:
        since = time_of(row["created"])
        try:
            if kind == "artifact":
                Artifacts(self.ledger).create(fields, id=row["id"], since=since)
            else:
                self.records.create(kind, fields, id=row["id"], since=since)
            counts.new += 1
        except RecordExists as taken:
            if taken.id != row["id"]:
                self.ids[kind, row["id"]] = taken.id
            counts.known += 1
        except BadInput as error:
            counts.leave(f"{kind} {row.get('name') or row['id']}", error)

    def _take_blocks(self, rows: Sequence[Row], known: int) -> Counts:
        """Blocks, those first to which others refer. Their values are encrypted with a key of the ledger."""
        counts, left = Counts(known=known), {row["id"]: row for row in rows}
        secrets, blocks = Secrets(self.database), Blocks(self.ledger)
        nested = _references(self.database, "block_document", list(left))
        while left:
            ready = [id for id in left if not any(one in left for one in nested.get(id, {}).values())]
            for id in ready or list(left):
                row = self.referring(left.pop(id))
                try:
                    data = secrets.decrypted(row.get("data"), row.get("name", id))
                    refs = {
                        name: {"$ref": {"block_document_id": one}} for name, one in nested.get(id, {}).items()
                    }
                    blocks.create({**row, "data": {**data, **refs}}, id=id)
                    counts.new += 1
                except RecordExists:
                    counts.known += 1
                except (BadInput, RecordNotFound) as error:
                    counts.leave(f"block {row.get('name', id)}", error)
        return counts


def _references(database: PrefectDatabase, table: str, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """What blocks or schemas are nested in others: by the outer one's id, the inner one's id by its name."""
    column = f"parent_{table}_id"
    found: dict[str, dict[str, str]] = {}
    for row in database.rows_with(f"{table}_reference", column, ids):
        found.setdefault(row[column], {})[row["name"]] = row[f"reference_{table}_id"]
    return found


# What rows of some tables have besides their own columns, by their ids.


def _nothing(_: RecordImport, rows: Sequence[Row]) -> dict[str, Row]:
    return {}


def _of_schemas(imported: RecordImport, rows: Sequence[Row]) -> dict[str, Row]:
    """The nested schemas: Prefect keeps them apart and puts them into the fields when it reads a schema."""
    more: dict[str, Row] = {}
    for row in rows:
        if nested := _nested_schemas(imported.database, row["id"]):
            ids = {
                name: [imported.ids.get(("block_schema", one["id"]), one["id"]) for one in ones]
                for name, ones in nested.items()
            }
            more[row["id"]] = {"references": ids, "fields": _whole_fields(imported.database, row)}
    return more


def _nested_schemas(database: PrefectDatabase, id: str) -> dict[str, list[Row]]:
    """The rows of the schemas that are nested in one, by the name of the field."""
    found = database.rows_with("block_schema_reference", "parent_block_schema_id", [id])
    wanted = [row["reference_block_schema_id"] for row in found]
    rows = {row["id"]: row for row in database.rows_with("block_schema", "id", wanted)}
    nested: dict[str, list[Row]] = {}
    for row in found:
        nested.setdefault(row["name"], []).append(rows[row["reference_block_schema_id"]])
    return nested


def _whole_fields(database: PrefectDatabase, row: Row) -> Row:
    """The fields of a schema with the definitions of all that is nested in it."""
    fields, definitions, references = (
        dict(row["fields"]),
        dict(row["fields"].get("definitions") or {}),
        dict[str, Any](),
    )
    for name, ones in _nested_schemas(database, row["id"]).items():
        told = []
        for one in ones:
            (block_type,) = database.rows_with("block_type", "id", [one["block_type_id"]])
            told.append({"block_schema_checksum": one["checksum"], "block_type_slug": block_type["slug"]})
            whole = _whole_fields(database, one)
            definitions |= whole.pop("definitions", {})
            definitions[whole["title"]] = whole
        references[name] = told[0] if len(told) == 1 else told
    return {
        **fields,
        "block_schema_references": references,
        **({"definitions": definitions} if definitions else {}),
    }


def _of_tags(_: RecordImport, rows: Sequence[Row]) -> dict[str, Row]:
    return {row["id"]: {"name": f"tag:{row['tag']}", "limit": row["concurrency_limit"]} for row in rows}


def _of_pools(_: RecordImport, rows: Sequence[Row]) -> dict[str, Row]:
    """A pool was READY because of its workers, which are not imported."""
    return {row["id"]: {"status": "NOT_READY"} for row in rows if row.get("status") == "READY"}


def _of_deployments(imported: RecordImport, rows: Sequence[Row]) -> dict[str, Row]:
    """The schedules, the pool and queue, and the job variables under the name that they have in the API."""
    ids = [row["id"] for row in rows]
    more: dict[str, Row] = {
        row["id"]: {
            "job_variables": row.get("infra_overrides") or {}, "schedules": [],
            **imported.place_of(row.get("work_queue_id")),
        }
        for row in rows
    }  # fmt: skip
    for row in imported.database.rows_with("deployment_schedule", "deployment_id", ids, "created"):
        more[row["deployment_id"]]["schedules"].append({name: row[name] for name in row.keys() & _SCHEDULE})
    return more


_SCHEDULE: Final = {
    "id", "created", "updated", "deployment_id", "schedule", "active", "max_scheduled_runs", "parameters",
    "slug",
}  # fmt: skip
_MORE: Final[Mapping[str, Callable[[RecordImport, Sequence[Row]], dict[str, Row]]]] = {
    "block_schema": _of_schemas,
    "concurrency_limit": _of_tags,
    "deployment": _of_deployments,
    "work_pool": _of_pools,
}
