"""Routes of blocks: their types, their schemas, and documents with the values."""

from __future__ import annotations

from typing import Annotated, Any

from ledger import RecordExists
from ledger.tokens import Role

from ..problems import Refusal
from .bodies import FieldsOf
from .calls import Call, Reply, Routes
from .lists import Question, counted, counting, listed, reading
from .stubs import shown

ROUTES = Routes("")
TypeFields = Annotated[dict[str, Any], FieldsOf("block_type")]
SchemaFields = Annotated[dict[str, Any], FieldsOf("block_schema")]
TYPES, SCHEMAS = reading("block_types"), reading("block_schemas")
DOCUMENTS, COUNT = reading("block_documents"), counting("block_documents")
TYPE, SCHEMA, DOCUMENT = "/block_types", "/block_schemas", "/block_documents"


@ROUTES.post(f"{TYPE}/", status=201)
def create_type(call: Call, body: TypeFields) -> Any:
    """A new type; 409 if there is one of this slug."""
    return call.services.records.create("block_type", body).shown()


@ROUTES.look(f"{TYPE}/filter")
def types(call: Call, body: Question) -> Any:
    """Types by filters."""
    return listed(call, body, TYPES, shown)


@ROUTES.post(f"{TYPE}/install_system_block_types")
def install_types(call: Call) -> None:
    """Nothing: a client registers the types that it uses by itself."""


@ROUTES.get(f"{TYPE}/slug/{{slug}}")
def type_of_slug(call: Call, slug: str) -> Any:
    """The type of this slug."""
    return call.services.records.named("block_type", slug).shown()


@ROUTES.get(f"{TYPE}/slug/{{slug}}/block_documents")
def documents_of_type(call: Call, slug: str) -> Any:
    """The documents of a type."""
    type = call.services.records.named("block_type", slug).id
    found = listed(call, Question(), reading("block_documents", parent=type), lambda one: one.id)
    return [call.services.blocks.get(id, include_secrets=_with_secrets(call)) for id in found]


@ROUTES.get(f"{TYPE}/slug/{{slug}}/block_documents/name/{{name:path}}")
def document_named(call: Call, slug: str, name: str) -> Any:
    """The document of this type and name, with its type and schema; its secrets if they are asked for."""
    return call.services.blocks.named(slug, name, include_secrets=_with_secrets(call))


@ROUTES.get(f"{TYPE}/{{id:uuid}}")
def get_type(call: Call, id: str) -> Any:
    """One type."""
    return call.services.records.get("block_type", id).shown()


@ROUTES.patch(f"{TYPE}/{{id:uuid}}")
def change_type(call: Call, id: str, body: TypeFields) -> None:
    """Change a type."""
    call.services.records.change("block_type", id, body)


@ROUTES.delete(f"{TYPE}/{{id:uuid}}")
def delete_type(call: Call, id: str) -> None:
    """Delete a type, unless it is protected."""
    _check_protected(call, id)
    call.services.records.delete("block_type", id)


@ROUTES.post(f"{SCHEMA}/")
def create_schema(call: Call, body: SchemaFields) -> Reply:
    """A schema, whose checksum is computed here; one with the same checksum and version is answered (200)."""
    made = {name: value for name, value in body.items() if name != "checksum"}
    try:
        schema = call.services.blocks.create_schema(made)
    except RecordExists as there:
        return Reply(_schema_shown(call, there.id), 200)
    return Reply(_schema_shown(call, schema.id), 201)


@ROUTES.look(f"{SCHEMA}/filter")
def schemas(call: Call, body: Question) -> Any:
    """Schemas by filters."""
    return [_schema_shown(call, id) for id in listed(call, body, SCHEMAS, lambda one: one.id)]


@ROUTES.get(f"{SCHEMA}/checksum/{{checksum:path}}")
def schema_of_checksum(call: Call, checksum: str) -> Any:
    """The newest schema with this checksum; the parameter version: only of this version."""
    version = call.query.get("version")
    if version is not None:
        return _schema_shown(call, call.services.records.named("block_schema", checksum, version).id)
    found = call.services.records.below("block_schema", checksum)
    if not found:
        raise Refusal(404, "NotThere", "Block schema not found")
    return _schema_shown(call, max(found, key=lambda one: one.created).id)


@ROUTES.get(f"{SCHEMA}/{{id:uuid}}")
def get_schema(call: Call, id: str) -> Any:
    """One schema with its type."""
    return _schema_shown(call, id)


@ROUTES.delete(f"{SCHEMA}/{{id:uuid}}")
def delete_schema(call: Call, id: str) -> None:
    """Delete a schema, unless its type is protected."""
    _check_protected(call, call.services.records.get("block_schema", id)["block_type_id"])
    call.services.records.delete("block_schema", id)


class DocumentQuestion(Question):
    """Which documents are meant. include_secrets: with their secret values in clear."""

    include_secrets: bool = False


@ROUTES.post(f"{DOCUMENT}/", status=201)
def create(call: Call, body: dict[str, Any]) -> Any:
    """A new document; 409 if its type has one of this name. Secrets are encrypted before they are kept."""
    return call.services.blocks.create(body)


@ROUTES.look(f"{DOCUMENT}/filter")
def filter(call: Call, body: DocumentQuestion) -> Any:
    """Documents by filters; without anonymous ones unless they are asked for."""
    secrets = body.include_secrets
    _check_secrets(call, secrets)
    found = listed(call, _without_anonymous(body), DOCUMENTS, lambda one: one.id)
    return [call.services.blocks.get(id, include_secrets=secrets) for id in found]


@ROUTES.look(f"{DOCUMENT}/count")
def count(call: Call, body: Question) -> int:
    """How many documents there are."""
    return counted(call, _without_anonymous(body), COUNT)


@ROUTES.get(f"{DOCUMENT}/{{id:uuid}}")
def get(call: Call, id: str) -> Any:
    """One document with its type and schema; its secrets if they are asked for."""
    return call.services.blocks.get(id, include_secrets=_with_secrets(call))


@ROUTES.patch(f"{DOCUMENT}/{{id:uuid}}")
def change(call: Call, id: str, body: dict[str, Any]) -> None:
    """Change values of a document; merge_existing_data (true): others stay as they are."""
    merge = body.pop("merge_existing_data", True)
    call.services.blocks.change(id, body, merge=bool(merge))


@ROUTES.delete(f"{DOCUMENT}/{{id:uuid}}")
def delete(call: Call, id: str) -> None:
    """Delete a document."""
    call.services.blocks.delete(id)


@ROUTES.get("/block_capabilities/")
def capabilities(call: Call) -> list[str]:
    """What blocks can do: the capabilities of all schemas."""
    found = listed(call, Question(), SCHEMAS, lambda one: one["capabilities"])
    return sorted({name for names in found for name in names})


def _schema_shown(call: Call, id: str) -> dict[str, Any]:
    """A schema as JSON, with its type."""
    schema = call.services.records.get("block_schema", id).shown()
    type = schema["block_type_id"]
    shown = None if type is None else call.services.records.get("block_type", type).shown()
    return {**schema, "block_type": shown}


def _check_protected(call: Call, type: str) -> None:
    if call.services.records.get("block_type", type)["is_protected"]:
        raise Refusal(403, "Forbidden", "protected block types cannot be deleted.")


def _without_anonymous(asked: Any) -> Any:
    wanted = {"is_anonymous": {"eq_": False}, **(asked.block_documents or {})}
    asked.block_documents = wanted
    return asked


def _with_secrets(call: Call) -> bool:
    """Whether secrets are asked for. Raises Refusal: a reader may not see them."""
    asked = call.query.get("include_secrets", "").lower() in ("true", "1")
    _check_secrets(call, asked)
    return asked


def _check_secrets(call: Call, asked: bool) -> None:
    if asked and not call.caller.role.covers(Role.OPERATOR):
        detail = f"{call.caller.name} is {call.caller.role}, and secrets need {Role.OPERATOR}"
        raise Refusal(403, "Forbidden", detail)
