"""The fields of Prefect's filters, kind by kind; the columns they compare; which kinds go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ledger.runs.kinds import KINDS
from ledger.runs.states import StateType

from .criteria import (
    AFTER,
    ALL_ITEMS,
    ALL_TAGS,
    ANY_TAG,
    BEFORE,
    CHILD_OF,
    EQUAL,
    EXISTS,
    LIKE,
    NO_ID,
    NO_TAGS,
    NONE_OF,
    NOT_BEGUN,
    NOT_DEPLOYED,
    NULL,
    ONE_ID,
    ONE_OF,
    OWN_OR_FLOW,
    PREFIX,
    SUBFLOW,
    Column,
    Criterion,
    Field,
    texts,
)  # fmt: skip

Group: TypeAlias = "Mapping[str, Field | Group]"
"""The fields of a filter; what is no field is a group of fields."""


class Source(NamedTuple):
    """Where rows of a kind are: the table of a view; for records their kind, and the category of streams."""

    table: str
    kind: str = ""

    @property
    def category(self) -> str:
        """The category of a record's streams; empty for runs."""
        return KINDS[self.kind].category if self.kind else ""


class Join(NamedTuple):
    """Rows of two kinds go together where these two columns are equal."""

    own: Column
    other: Column


def column(name: str) -> Column:
    """A column of the view."""
    return Column("column", name)


def inside(name: str) -> Column:
    """A field of a record that is no column."""
    return Column("field", name)


def _state_types(given: Any) -> list[str]:
    try:
        return [StateType(one).value for one in texts(given)]
    except ValueError:
        raise ValueError(f"must be a list of: {', '.join(StateType)}") from None


def _times(place: Column, null: Criterion | None = NULL) -> Field:
    return Field(place, {"before_": BEFORE, "after_": AFTER, **({"is_null_": null} if null else {})})


def _ids(name: str = "id", **more: Criterion) -> Field:
    return Field(column(name), {"any_": ONE_ID, **more})


def _some(place: Column, **more: Criterion) -> Field:
    return Field(place, {"any_": ONE_OF, **more})


def _tags(**more: Criterion) -> Field:
    return Field(column("tags"), {"all_": ALL_TAGS, "is_null_": NO_TAGS, **more})


def _of_flow_run(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Task runs without a flow run are left out, unless the filter asks for them or for any."""
    null, wanted = told.get("is_null_", False), told.get("any_")
    rest = {name: value for name, value in told.items() if name not in ("is_null_", "any_")}
    if null is not True and wanted is not None:
        return {**rest, "any_": wanted}
    return {**rest, "is_null_": null}


_NO_CRITERION: Final = Criterion("no_condition", lambda given: given)
"""A criterion that Prefect takes and ignores."""
_TYPE: Final = Criterion("one_of", _state_types)
_NO_TYPE: Final = Criterion("none_of", _state_types, True)
_NAME: Final = _some(column("name"), like_=LIKE)
_KEY: Final = _some(column("name"), like_=LIKE, exists_=EXISTS)
_LATEST: Final = Field(inside("latest_id"), {"any_": ONE_ID})

FIELDS: Final[Mapping[str, Group]] = {
    "flows": {
        "id": _ids(not_any_=NO_ID),
        "deployment": Field(column("id"), {"is_null_": NOT_DEPLOYED}),
        "name": _NAME,
        "tags": _tags(),
    },
    "flow_runs": {
        "id": _ids(not_any_=NO_ID),
        "name": _NAME,
        "tags": _tags(any_=ANY_TAG),
        "deployment_id": _ids("deployment_id", is_null_=NULL),
        "work_queue_name": _some(column("work_queue_name"), is_null_=NULL),
        "state": {
            "type": Field(column("state_type"), {"any_": _TYPE, "not_any_": _NO_TYPE}),
            "name": _some(column("state_name"), not_any_=NONE_OF),
        },
        "flow_version": _some(column("flow_version")),
        "start_time": _times(Column("began"), NOT_BEGUN),
        "end_time": _times(column("end_time")),
        "expected_start_time": _times(column("expected_start_time"), None),
        "next_scheduled_start_time": _times(column("next_scheduled_start_time"), None),
        "parent_flow_run_id": Field(column("id"), {"any_": CHILD_OF}),
        "parent_task_run_id": _ids("parent_task_run_id", is_null_=NULL),
        "idempotency_key": _some(column("idempotency_key"), not_any_=NONE_OF),
        "created_by": {
            "id_": Field(Column("creator", "id"), {"id_": ONE_ID}),
            "type_": Field(Column("creator", "type"), {"type_": ONE_OF}),
            "is_null_": Field(column("created_by"), {"is_null_": NULL}),
        },
    },
    "task_runs": {
        "id": _ids(),
        "name": _NAME,
        "tags": _tags(),
        "state": {
            "type": Field(column("state_type"), {"any_": _TYPE}),
            "name": _some(column("state_name")),
        },
        "start_time": _times(column("start_time")),
        "end_time": _times(column("end_time")),
        "expected_start_time": _times(column("expected_start_time"), None),
        "subflow_runs": Field(column("id"), {"exists_": SUBFLOW}),
        "flow_run_id": Field(column("flow_run_id"), {"any_": ONE_ID, "is_null_": NULL}, _of_flow_run),
    },
    "deployments": {
        "id": _ids(not_any_=NO_ID),
        "name": _NAME,
        "flow_or_deployment_name": Field(column("name"), {"like_": OWN_OR_FLOW}),
        "paused": Field(Column("flag_field", "paused"), {"eq_": EQUAL}),
        "tags": _tags(any_=ANY_TAG),
        "work_queue_name": _some(inside("work_queue_name")),
        "concurrency_limit": Field(
            column("id"), {"ge_": _NO_CRITERION, "le_": _NO_CRITERION, "is_null_": _NO_CRITERION}
        ),
    },
    "work_pools": {
        "id": _ids(),
        "name": _some(column("name")),
        "type": _some(inside("type")),
    },
    "work_pool_queues": {
        "id": _ids(),
        "name": _some(column("name"), startswith_=PREFIX),
    },
    "workers": {
        "last_heartbeat_time": _times(Column("time_field", "last_heartbeat_time"), None),
        "status": _some(inside("status"), not_any_=NONE_OF),
    },
    "artifacts": {
        "id": _ids(),
        "key": _KEY,
        "flow_run_id": _ids("parent"),
        "task_run_id": Field(inside("task_run_id"), {"any_": ONE_ID}),
        "type": _some(inside("type"), not_any_=NONE_OF),
    },
    "artifact_collections": {
        "latest_id": _LATEST,
        "key": _KEY,
        "flow_run_id": _ids("parent"),
        "task_run_id": Field(inside("task_run_id"), {"any_": ONE_ID}),
        "type": _some(inside("type"), not_any_=NONE_OF),
    },
    "variables": {"id": _ids(), "name": _NAME, "tags": _tags()},
    "block_types": {
        "name": Field(column("name"), {"like_": LIKE}),
        "slug": _some(inside("slug")),
    },
    "block_schemas": {
        "block_type_id": _ids("parent"),
        "block_capabilities": Field(Column("list_field", "capabilities"), {"all_": ALL_ITEMS}),
        "id": _ids(),
        "version": _some(inside("version")),
    },
    "block_documents": {
        "id": _ids(),
        "is_anonymous": Field(Column("flag_field", "is_anonymous"), {"eq_": EQUAL}),
        "block_type_id": _ids("parent"),
        "name": _NAME,
    },
    "automations": {
        "id": _ids(),
        "name": _some(column("name")),
        "created": Field(column("created"), {"before_": BEFORE}),
        "tags": _tags(any_=ANY_TAG),
    },
    "concurrency_limits": {},
    "saved_searches": {},
}
"""The filters of each kind, as Prefect's clients name them."""

SOURCES: Final = {
    "flow_runs": Source("flow_runs"),
    "task_runs": Source("task_runs"),
    "flows": Source("run_records", "flow"),
    "deployments": Source("run_records", "deployment"),
    "work_pools": Source("run_records", "work_pool"),
    "work_pool_queues": Source("run_records", "work_queue"),
    "workers": Source("run_records", "worker"),
    "artifacts": Source("run_records", "artifact"),
    "artifact_collections": Source("run_records", "artifact_collection"),
    "variables": Source("run_records", "variable"),
    "block_types": Source("run_records", "block_type"),
    "block_schemas": Source("run_records", "block_schema"),
    "block_documents": Source("run_records", "block_document"),
    "automations": Source("run_records", "automation"),
    "concurrency_limits": Source("run_records", "concurrency_limit"),
    "saved_searches": Source("run_records", "saved_search"),
}

JOINS: Final = {
    ("flow_runs", "flows"): Join(column("flow_id"), column("id")),
    ("flow_runs", "task_runs"): Join(column("id"), column("flow_run_id")),
    ("flow_runs", "deployments"): Join(column("deployment_id"), column("id")),
    ("flow_runs", "work_pool_queues"): Join(column("work_queue_id"), column("id")),
    ("task_runs", "flow_runs"): Join(column("flow_run_id"), column("id")),
    ("work_pool_queues", "work_pools"): Join(column("parent"), column("id")),
    ("flows", "deployments"): Join(column("id"), column("parent")),
    ("flows", "flow_runs"): Join(column("id"), column("flow_id")),
    ("deployments", "flows"): Join(column("parent"), column("id")),
    ("deployments", "flow_runs"): Join(column("id"), column("deployment_id")),
    ("deployments", "work_pool_queues"): Join(inside("work_queue_id"), column("id")),
    ("artifacts", "flow_runs"): Join(column("parent"), column("id")),
    ("artifacts", "task_runs"): Join(inside("task_run_id"), column("id")),
    ("artifact_collections", "flow_runs"): Join(column("parent"), column("id")),
    ("artifact_collections", "task_runs"): Join(inside("task_run_id"), column("id")),
    ("block_documents", "block_types"): Join(column("parent"), column("id")),
    ("block_documents", "block_schemas"): Join(inside("block_schema_id"), column("id")),
    ("block_types", "block_schemas"): Join(column("id"), column("parent")),
    ("block_schemas", "block_types"): Join(column("parent"), column("id")),
}

Tree: TypeAlias = "Mapping[str, Tree]"
_POOLS: Final[Tree] = {"work_pool_queues": {"work_pools": {}}}
_RUNS: Final[Tree] = {"flow_runs": {"flows": {}, "deployments": {}}, "task_runs": {}}

TREES: Final[Mapping[str, Tree]] = {
    "flow_runs": {"flows": {}, "task_runs": {}, "deployments": {}, **_POOLS},
    "task_runs": {"flow_runs": {"flows": {}, "deployments": {}, **_POOLS}},
    "flows": {"deployments": _POOLS, "flow_runs": {"task_runs": {}}},
    "deployments": {"flows": {}, "flow_runs": {"task_runs": {}}, **_POOLS},
    "artifacts": _RUNS,
    "artifact_collections": _RUNS,
    "block_documents": {"block_types": {}, "block_schemas": {}},
    "block_types": {"block_schemas": {}},
    "block_schemas": {"block_types": {}},
}
"""From a listed kind to those that a body may filter besides; each is looked up through the one above it."""
