"""
The kinds of records: the fields of each with their defaults, and what makes its name unique (spec S3, 4.2).

The names of fields are those of Prefect's JSON. `KINDS` is the table; `Kind.checked` reads what a client
sent, and `Kind.merged` what it changes. Unknown fields are refused: `Kind.known` leaves them out for who
talks to clients of other versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
)

from ..errors import BadInput, BadRecord
from .json_values import checked_uuid, kept, utc

# The types of fields.


def _matching(pattern: str, what: str) -> Callable[[str], str]:
    """A check that a text matches a pattern as a whole."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {what}")
        return text

    return check


def _not_blank(text: str) -> str:
    if not text.strip("' \""):
        raise ValueError("must not be empty")
    return text


Id = Annotated[str, BeforeValidator(checked_uuid)]
Time = Annotated[datetime, AfterValidator(utc)]
Json = Annotated[Any, BeforeValidator(kept)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(kept)]
Labels = dict[str, StrictBool | StrictInt | StrictFloat | str]
AnyName = Annotated[str, AfterValidator(_matching("[^/%&><]*", "without the characters / % & > <"))]
Name = Annotated[AnyName, Field(min_length=1)]
Slug = Annotated[str, AfterValidator(_matching("[a-z0-9-]*", "lower-case letters, digits and dashes"))]
VariableName = Annotated[
    str,
    Field(max_length=255),
    AfterValidator(_matching("[a-z0-9_-]*", "lower-case letters, digits, dashes and underscores")),
]
NotNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]

MAX_VARIABLE: Final = 5000
"""Greatest length of a variable's value as JSON text, in characters."""


class DeploymentStatus(StrEnum):
    """Whether somebody polls for the runs of a deployment."""

    READY = "READY"
    NOT_READY = "NOT_READY"


class PoolStatus(StrEnum):
    """Whether a work pool, or a queue of it, has workers that poll it."""

    READY = "READY"
    NOT_READY = "NOT_READY"
    PAUSED = "PAUSED"


class WorkerStatus(StrEnum):
    """Whether the heartbeats of a worker arrive."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"


class CollisionStrategy(StrEnum):
    """What happens to a flow run that finds the concurrency limit of its deployment full."""

    ENQUEUE = "ENQUEUE"
    CANCEL_NEW = "CANCEL_NEW"


class Fields(BaseModel):
    """The fields of a kind; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Who(Fields):
    """Who created or updated something."""

    id: Id | None = None
    type: str | None = None
    display_value: str | None = None


class ConcurrencyOptions(Fields):
    """How a deployment uses its concurrency limit. grace_period_seconds: for the infrastructure to start."""

    collision_strategy: CollisionStrategy
    grace_period_seconds: Annotated[int, Field(ge=60, le=86400)] | None = None


class Schedule(Fields):
    """A schedule of a deployment: an interval, cron or rrule as JSON. slug: unique in the deployment."""

    id: Id
    created: Time
    updated: Time
    deployment_id: Id | None = None
    schedule: JsonObject
    active: bool = True
    max_scheduled_runs: Positive | None = None
    parameters: JsonObject = {}
    slug: str | None = None


class QueueFilter(Fields):
    """Which runs an old work queue without a pool has."""

    tags: list[str] | None = None
    deployment_ids: list[Id] | None = None


class StorageConfiguration(Fields):
    """How a work pool stores bundles of code and results."""

    bundle_upload_step: JsonObject | None = None
    bundle_execution_step: JsonObject | None = None
    default_result_storage_block_id: Id | None = None


class SavedFilter(Fields):
    """One condition of a saved search."""

    object: str
    property: str
    type: str
    operation: str
    value: Json


_PLACEHOLDER = re.compile(r"\{\{\s*([\w.\-\[\]$]+)\s*\}\}")


def _declared(template: dict[str, Any]) -> dict[str, Any]:
    """A base job template, whose job uses only variables that it declares."""
    if not template:
        return template
    job, variables = template.get("job_configuration"), template.get("variables")
    if not (isinstance(job, dict) and job and isinstance(variables, dict) and variables):
        raise ValueError("must have both job_configuration and variables")
    used = set(_PLACEHOLDER.findall(json.dumps(job)))
    if missing := sorted(used - set(variables.get("properties") or {})):
        raise ValueError(f"job_configuration uses variables that are not declared: {', '.join(missing)}")
    return template


# The fields of each kind.


class FlowFields(Fields):
    """A flow."""

    name: Name
    tags: list[str] = []
    labels: Labels | None = {}


class DeploymentFields(Fields):
    """A deployment of a flow, with its schedules inside.

    concurrency_limit_id: of a record of kind concurrency_limit. infrastructure and storage are Prefect's old
    blocks. last_polled is not recorded at each poll (see `ledger.runs.deployments`).
    """

    name: AnyName
    flow_id: Id
    version: str | None = None
    description: str | None = None
    paused: bool = False
    schedules: list[Schedule] = []
    concurrency_limit: NotNegative | None = None
    concurrency_limit_id: Id | None = None
    concurrency_options: ConcurrencyOptions | None = None
    job_variables: JsonObject = {}
    parameters: JsonObject = {}
    pull_steps: list[JsonObject] | None = []
    tags: list[str] = []
    labels: Labels | None = {}
    work_pool_id: Id | None = None
    work_pool_name: str | None = None
    work_queue_id: Id | None = None
    work_queue_name: str | None = None
    last_polled: Time | None = None
    path: str | None = None
    entrypoint: str | None = None
    storage_document_id: Id | None = None
    infrastructure_document_id: Id | None = None
    parameter_openapi_schema: JsonObject | None = {}
    enforce_parameter_schema: bool = True
    created_by: Who | None = None
    updated_by: Who | None = None
    version_info: JsonObject | None = None
    status: DeploymentStatus = DeploymentStatus.NOT_READY


class WorkPoolFields(Fields):
    """A work pool. default_queue_id: the queue that is made with it."""

    name: Annotated[Name, AfterValidator(_not_blank)]
    description: str | None = None
    type: str = "prefect-agent"
    base_job_template: Annotated[JsonObject, AfterValidator(_declared)] = {}
    is_paused: bool = False
    concurrency_limit: NotNegative | None = None
    status: PoolStatus | None = PoolStatus.NOT_READY
    default_queue_id: Id | None = None
    storage_configuration: StorageConfiguration = Field(default_factory=StorageConfiguration)
    last_transitioned_status_at: Time | None = None
    last_status_event_id: Id | None = None


class WorkQueueFields(Fields):
    """A queue of a work pool. priority: 1 is the highest."""

    name: Name
    work_pool_id: Id | None = None
    description: str | None = ""
    is_paused: bool = False
    concurrency_limit: NotNegative | None = None
    priority: Positive = 1
    filter: QueueFilter | None = None
    last_polled: Time | None = None
    status: PoolStatus = PoolStatus.NOT_READY


class WorkerFields(Fields):
    """A worker of a pool. last_heartbeat_time: the last one before it went offline."""

    name: Annotated[str, Field(min_length=1)]
    work_pool_id: Id
    last_heartbeat_time: Time | None = None
    heartbeat_interval_seconds: Positive | None = None
    status: WorkerStatus = WorkerStatus.OFFLINE


class BlockTypeFields(Fields):
    """A type of blocks."""

    name: Name
    slug: Slug
    logo_url: str | None = None
    documentation_url: str | None = None
    description: str | None = None
    code_example: str | None = None
    is_protected: bool = False


class BlockSchemaFields(Fields):
    """A schema of a block type. references: the ids of the nested schemas, by the field that holds them."""

    checksum: str
    fields: JsonObject = {}
    block_type_id: Id | None = None
    capabilities: list[str] = []
    version: str = "non-versioned"
    references: dict[str, list[Id]] = {}


class EncryptedValue(Fields):
    """A value that is encrypted. key: the fingerprint of its key."""

    key: str
    token: str


class BlockDocumentFields(Fields):
    """The values of a block, each encrypted. references: the ids of nested documents by their fields."""

    name: Annotated[Slug, Field(min_length=1)]
    data: dict[str, EncryptedValue] = {}
    block_schema_id: Id
    block_type_id: Id
    is_anonymous: bool = False
    references: dict[str, Id] = {}


def _not_too_long(value: Any) -> Any:
    from ..domain.canonical_json import body

    if value is not None and len(body(value)) > MAX_VARIABLE:
        raise ValueError(f"must have at most {MAX_VARIABLE} characters as JSON")
    return value


class VariableFields(Fields):
    """A variable."""

    name: VariableName
    value: Annotated[Json, AfterValidator(_not_too_long)]
    tags: list[str] = []


class ArtifactFields(Fields):
    """What a run left behind to look at, or its result."""

    key: Slug | None = None
    type: str | None = None
    description: str | None = None
    data: Json = None
    metadata_: dict[str, str] | None = None
    flow_run_id: Id | None = None
    task_run_id: Id | None = None


class ArtifactCollectionFields(ArtifactFields):
    """The latest artifact of a key: a copy of its fields. Its id follows from the key."""

    key: Slug
    latest_id: Id


class ConcurrencyLimitFields(Fields):
    """A limit of how many may do something at the same time; its slots are facts of their own."""

    name: Name
    limit: NotNegative
    active: bool = True
    slot_decay_per_second: Annotated[float, Field(ge=0)] = 0.0


class AutomationFields(Fields):
    """An automation. It is kept and listed; nothing evaluates its triggers."""

    name: str
    description: str = ""
    enabled: bool = True
    tags: list[str] = []
    trigger: JsonObject = {}
    actions: list[JsonObject] = []
    actions_on_trigger: list[JsonObject] = []
    actions_on_resolve: list[JsonObject] = []
    owner_resource: str | None = None


class SavedSearchFields(Fields):
    """A search that the page of Prefect keeps."""

    name: str
    filters: list[SavedFilter] = []


class SettingFields(Fields):
    """A setting of the server."""

    key: str
    value: Json = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records.

    category: the first part of the names of its streams. unique: the fields that no two records share, the
    parent's id first, so that the names of one parent's records stand together. parent: the field with the id
    of the record that it belongs to.
    """

    name: str
    category: str
    model: type[Fields]
    unique: tuple[str, ...] = ()
    parent: str | None = None

    def checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """All fields of a new record, as they are kept. Raises BadRecord."""
        try:
            return kept(self.model.model_validate(dict(fields)).model_dump())  # type: ignore[no-any-return]
        except ValidationError as error:
            raise BadRecord(self.name, wrong_fields(error)) from None
        except BadInput as error:
            raise BadRecord(self.name, [str(error)]) from None

    def merged(self, before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those of these fields whose values differ from those before, as they are kept. Raises BadRecord."""
        after = self.checked({**{key: before[key] for key in before if key in self.fields}, **fields})
        return {key: after[key] for key in after if key not in before or before[key] != after[key]}

    def known(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Without the fields that this kind does not have."""
        return {key: value for key, value in fields.items() if key in self.fields}

    @property
    def fields(self) -> Iterable[str]:
        """The names of its fields."""
        return self.model.model_fields.keys()

    def name_of(self, fields: Mapping[str, Any]) -> tuple[str, ...] | None:
        """What no other record of this kind shares; None for a kind without unique names."""
        return tuple(str(fields[field]) for field in self.unique) or None


def wrong_fields(error: ValidationError) -> list[str]:
    """What is wrong, a line for each field; without the values, which may be secrets."""
    return [
        f"{'.'.join(map(str, one['loc'])) or 'fields'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("flow", "flow", FlowFields, ("name",)),
        Kind("deployment", "deployment", DeploymentFields, ("flow_id", "name"), "flow_id"),
        Kind("work_pool", "work_pool", WorkPoolFields, ("name",)),
        Kind("work_queue", "work_queue", WorkQueueFields, ("work_pool_id", "name"), "work_pool_id"),
        Kind("worker", "run_worker", WorkerFields, ("work_pool_id", "name"), "work_pool_id"),
        Kind("block_type", "block_type", BlockTypeFields, ("slug",)),
        Kind("block_schema", "block_schema", BlockSchemaFields, ("checksum", "version"), "block_type_id"),
        Kind(
            "block_document",
            "block_document",
            BlockDocumentFields,
            ("block_type_id", "name"),
            "block_type_id",
        ),
        Kind("variable", "run_variable", VariableFields, ("name",)),
        Kind("artifact", "artifact", ArtifactFields),
        Kind("artifact_collection", "artifact_collection", ArtifactCollectionFields),
        Kind("concurrency_limit", "concurrency_limit", ConcurrencyLimitFields, ("name",)),
        Kind("automation", "automation", AutomationFields),
        Kind("saved_search", "saved_search", SavedSearchFields, ("name",)),
        Kind("setting", "run_setting", SettingFields, ("key",)),
    )
}
"""Every kind of records, by its name."""


def kind_of(name: str) -> Kind:
    """The kind of this name. Raises BadInput."""
    try:
        return KINDS[name]
    except KeyError:
        raise BadInput(f"no kind of records is named {name!r}; kinds: {', '.join(KINDS)}") from None
