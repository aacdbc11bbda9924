"""
Block types and schemas: registered once each, a schema under the checksum of its fields.

The checksum is the one that Prefect's client computes, so that a client finds what it registered before. The
schemas of nested blocks are registered with the one that names them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ..errors import BadRecord, RecordExists, RecordNotFound, RecordProtected
from ..log.ledger import Ledger
from .json_values import checked_uuid, plain
from .kinds import kind_of
from .records import Record, Records, open_class

_DEFINITION = "#/definitions/"


def checksum(fields: Mapping[str, Any]) -> str:
    """The checksum of a schema's fields: `sha256:` and 64 hexadecimal digits.

    Left out are `secret_fields`, and the definitions of nested blocks, which have checksums of their own.
    """
    counted = _without_secret_fields(dict(fields))
    if counted.get("definitions"):
        counted["definitions"] = own_definitions(counted, counted["definitions"])
        if not counted["definitions"]:
            del counted["definitions"]
    # The text is that of Prefect's hash of a call with one argument: [[fields], {}].
    return "sha256:" + sha256(json.dumps([[counted], {}], sort_keys=True).encode()).hexdigest()


def own_definitions(part: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that a part of a schema refers to, and those that they refer to, without blocks."""
    found: dict[str, Any] = {}
    left = [part]
    while left:
        for name in _references(left.pop()):
            definition = definitions.get(name)
            if name not in found and definition and definition.get("block_type_slug") is None:
                found[name] = definition
                left.append(definition)
    return found


def _references(value: Any) -> list[str]:
    """The names of the definitions that a part of a schema refers to, at any depth."""
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    if not isinstance(value, Mapping):
        return []
    reference = value.get("$ref")
    own = [reference.replace(_DEFINITION, "")] if isinstance(reference, str) and reference else []
    return own + [name for item in value.values() for name in _references(item)]


def _without_secret_fields(value: Any) -> Any:
    """Dicts in dicts without the key; lists are left as they are, as Prefect does."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_secret_fields(item) for key, item in value.items() if key != "secret_fields"}


class BlockSchemas:
    """The block types and schemas of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.records = ledger, Records(ledger)

    # Types

    def create_type(self, fields: Mapping[str, Any]) -> Record:
        """Create a block type. Raises BadRecord, RecordExists, RecordProtected for a reserved name."""
        name = str(fields.get("name", ""))
        if name.lower().startswith("prefect"):
            raise RecordProtected("block_type", name, "is reserved: its name begins with 'prefect'")
        return self.records.create("block_type", {**fields, "is_protected": False})

    def change_type(self, id: str, fields: Mapping[str, Any]) -> Record:
        """Change how a block type is described. Raises BadRecord, RecordNotFound."""
        described = ("logo_url", "documentation_url", "description", "code_example")
        return self.records.change("block_type", id, {key: fields[key] for key in described if key in fields})

    # Schemas

    def create(self, given: Mapping[str, Any]) -> tuple[Record, bool]:
        """The schema with these fields and this version, registered if it is not yet; True if it is new.

        given: fields, block_type_id, capabilities, version. The checksum is computed. Raises BadRecord,
        RecordNotFound for its type or the type of a nested block.
        """
        block_type = self.records.get("block_type", checked_uuid(given.get("block_type_id")))
        fields = dict(given.get("fields") or {})
        return self._registered({**given, "fields": fields}, block_type, fields.get("definitions"))

    def _registered(
        self, given: Mapping[str, Any], block_type: Record, definitions: Mapping[str, Any] | None
    ) -> tuple[Record, bool]:
        fields = dict(given["fields"])
        if definitions:
            fields["definitions"] = dict(definitions)
        known = kind_of("block_schema").known(given)
        made = {**known, "block_type_id": block_type.id, "fields": fields, "checksum": checksum(fields)}
        whole = kind_of("block_schema").checked(made)
        try:
            return self.records.named("block_schema", whole["checksum"], whole["version"]), False
        except RecordNotFound:
            pass
        references = {
            name: [self._nested(name, one, fields) for one in (ones if isinstance(ones, list) else [ones])]
            for name, ones in (fields.get("block_schema_references") or {}).items()
        }
        try:
            return self.records.create("block_schema", {**made, "references": references}), True
        except RecordExists as taken:
            return self.records.get("block_schema", taken.id), False

    def _nested(self, name: str, reference: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
        """The id of the schema of a nested block, registered from the definitions if it is not yet."""
        block_type = self.records.named("block_type", str(reference.get("block_type_slug")))
        try:
            return self.by_checksum(str(reference.get("block_schema_checksum"))).id
        except RecordNotFound:
            pass
        definitions = fields.get("definitions") or {}
        named = [definitions.get(key) for key in _references((fields.get("properties") or {}).get(name))]
        own = [one for one in named if one and one.get("block_type_slug") == block_type["slug"]]
        if not own:
            raise BadRecord("block_schema", [f"fields: there is no definition of the nested block {name}"])
        nested, _ = self._registered({"fields": own[0]}, block_type, definitions)
        return nested.id

    def by_checksum(self, checksum: str, version: str | None = None) -> Record:
        """The schema with this checksum, and this version, else the newest one. Raises RecordNotFound."""
        if version is not None:
            return self.records.named("block_schema", checksum, version)
        holders = self.records.names.below("block_schema", checksum).values()
        opened = self.ledger.load_each([open_class("block_schema")(id) for id in holders])
        found = [schema.shown() for schema in opened if schema.is_present]
        if not found:
            raise RecordNotFound("block_schema", checksum)
        return max(found, key=lambda schema: schema.created)

    def shown(self, schema: Record, block_type: Record | None = None) -> dict[str, Any]:
        """Its JSON as Prefect's clients read it, with its type."""
        shown = schema.shown()
        del shown["references"]
        shown["fields"].setdefault("block_schema_references", {})
        found = block_type or self.records.get("block_type", schema["block_type_id"])
        return {**shown, "block_type": plain(found.shown())}
