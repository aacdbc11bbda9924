"""Routes of blocks: their types, their schemas, and documents with the values."""

from __future__ import annotations

from typing import Annotated, Any

from ledger.tokens import Role

from ..problems import Refusal
from .bodies import FieldsOf
from .calls import Call, Reply, Routes
from .lists import Question, counted, counting, listed, reading
from .stubs import shown

ROUTES = Routes("")
TypeFields = Annotated[dict[str, Any], FieldsOf("block_type")]
SchemaFields = Annotated[dict[str, Any], FieldsOf("block_schema")]
DocumentFields = Annotated[dict[str, Any], FieldsOf("block_document")]
TYPES, SCHEMAS = reading("block_types"), reading("block_schemas")
DOCUMENTS, COUNT = reading("block_documents"), counting("block_documents")
TYPE, SCHEMA, DOCUMENT = "/block_types", "/block_schemas", "/block_documents"


@ROUTES.post(f"{TYPE}/", status=201)
def create_type(call: Call, body: TypeFields) -> Any:
    """A new type; 409 if there is one of this slug."""
    return call.services.blocks.schemas.create_type(body).shown()


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
    found = listed(call, Question(), reading("block_documents", parent=type), lambda one: one)
    return call.services.blocks.shown(found, include_secrets=_with_secrets(call))


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
    call.services.blocks.schemas.change_type(id, body)


@ROUTES.delete(f"{TYPE}/{{id:uuid}}")
def delete_type(call: Call, id: str) -> None:
    """Delete a type with its schemas and documents; 403 if it is protected."""
    call.services.blocks.delete_type(id)


@ROUTES.post(f"{SCHEMA}/")
def create_schema(call: Call, body: SchemaFields) -> Reply:
    """A schema, whose checksum is computed here; one with the same checksum and version is answered (200)."""
    schemas, given = call.services.blocks.schemas, dict(body)
    given.pop("checksum", None)
    schema, is_new = schemas.create(given)
    return Reply(schemas.shown(schema), 201 if is_new else 200)


@ROUTES.look(f"{SCHEMA}/filter")
def schemas(call: Call, body: Question) -> Any:
    """Schemas by filters."""
    return listed(call, body, SCHEMAS, call.services.blocks.schemas.shown)


@ROUTES.get(f"{SCHEMA}/checksum/{{checksum:path}}")
def schema_of_checksum(call: Call, checksum: str) -> Any:
    """The newest schema with this checksum; the parameter version: only of this version."""
    schemas = call.services.blocks.schemas
    return schemas.shown(schemas.by_checksum(checksum, call.query.get("version")))


@ROUTES.get(f"{SCHEMA}/{{id:uuid}}")
def get_schema(call: Call, id: str) -> Any:
    """One schema with its type."""
    return call.services.blocks.schemas.shown(call.services.records.get("block_schema", id))


@ROUTES.delete(f"{SCHEMA}/{{id:uuid}}")
def delete_schema(call: Call, id: str) -> None:
    """Delete a schema with its documents; 403 if its type is protected."""
    call.services.blocks.delete_schema(id)


class DocumentQuestion(Question):
    """Which documents are meant. include_secrets: with their secret values in clear."""

    include_secrets: bool = False


@ROUTES.post(f"{DOCUMENT}/", status=201)
def create(call: Call, body: DocumentFields) -> Any:
    """A new document; 409 if its type has one of this name. Secrets are encrypted before they are kept."""
    return call.services.blocks.create(body)


@ROUTES.look(f"{DOCUMENT}/filter")
def filter(call: Call, body: DocumentQuestion) -> Any:
    """Documents by filters; without anonymous ones unless they are asked for."""
    _check_secrets(call, body.include_secrets)
    found = listed(call, _without_anonymous(body), DOCUMENTS, lambda one: one)
    return call.services.blocks.shown(found, include_secrets=body.include_secrets)


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
    call.services.blocks.change(id, body)


@ROUTES.delete(f"{DOCUMENT}/{{id:uuid}}")
def delete(call: Call, id: str) -> None:
    """Delete a document."""
    call.services.blocks.delete(id)


@ROUTES.get("/block_capabilities/")
def capabilities(call: Call) -> list[str]:
    """What blocks can do: the capabilities of all schemas."""
    found = listed(call, Question(), SCHEMAS, lambda one: one["capabilities"])
    return sorted({name for names in found for name in names})


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
