"""
Blocks: named values of a schema, such as logins and places of storage. Each value is encrypted before it is
in an event; what the schema marks as secret is shown only to who asks for it.

    blocks = Blocks(log)
    made = blocks.create({"name": "db", "data": {"password": "x"}, "block_type_id": …, "block_schema_id": …})
    made["data"]                                            # {"password": "********"}
    blocks.get(made["id"], include_secrets=True)["data"]    # {"password": "x"}

The ledger has one current key, named in a setting. A write checks in its append that this is still the key,
so that after a rotation (`rotate`) no present value needs an older one. Older keys are needed only to read
the history. A value `{"$ref": {"block_document_id": ID}}` nests another block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID, uuid5

from ..errors import BadRecord, RecordExists, RecordNotFound, RecordProtected, StreamConflict
from ..log.append import Append, Exact
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .block_schemas import BlockSchemas
from .json_values import checked_uuid, kept, new_id, plain
from .keys import Key, Keys
from .records import OpenRecord, Record, Records, open_class
from .secret_fields import hidden, put_back, secret_paths

T = TypeVar("T")

KEY_SETTING: Final = str(uuid5(UUID("6b1f2b0e-5e0c-4b39-9d34-6a1d0f4d7c55"), "block key"))
"""The id of the setting that names the current key; permanent."""
DEEPEST: Final = 50
"""How deep blocks may be nested."""


class Blocks:
    """The block documents of a ledger. keys: by default those that the environment names."""

    def __init__(self, ledger: Ledger, keys: Keys | None = None) -> None:
        self.ledger, self.records, self.schemas = ledger, Records(ledger), BlockSchemas(ledger)
        self.keys = keys or Keys.from_environment()

    # Write

    def create(self, given: Mapping[str, Any], *, id: str | None = None) -> dict[str, Any]:
        """Create a document; returns it as it is shown, without secrets.

        given: name (not for an anonymous one), data, block_schema_id, block_type_id, is_anonymous. Raises
        BadRecord, BadKey, RecordExists, RecordNotFound for its type, its schema or a nested document.
        """
        name = given.get("name") or (f"anonymous-{new_id()}" if given.get("is_anonymous") else "")
        schema = self.records.get("block_schema", checked_uuid(given.get("block_schema_id")))
        block_type = self.records.get("block_type", checked_uuid(given.get("block_type_id")))
        made, (data, references) = id or new_id(), _separated(_object(given.get("data")))
        self._check_references(made, references)

        def attempt(key: Key, check: Append) -> Record:
            fields = {
                "name": name,
                "data": {field: key.encrypted(value, made, field) for field, value in data.items()},
                "block_schema_id": schema.id,
                "block_type_id": block_type.id,
                "is_anonymous": bool(given.get("is_anonymous")),
                "references": references,
            }
            return self.records.create("block_document", fields, id=made, also=[check])

        return self.shown([self._with_key(attempt)])[0]

    def change(self, id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Change the values of a document; returns it as it is shown, without secrets.

        given: data, block_schema_id (of the same type), merge_existing_data: whether values that are not
        given stay (they do by default). What was shown instead of a secret changes nothing when it is sent
        back. Raises BadRecord, BadKey, RecordNotFound.
        """

        def attempt(key: Key, check: Append) -> Record:
            opened = self.records.open("block_document", id)
            opened.require()
            changes = self._changes(opened, given, key)
            return self.records.change("block_document", id, changes, expected=opened.version, also=[check])

        return self.shown([self._with_key(attempt)])[0]

    def delete(self, id: str) -> None:
        """Delete a document; those in which it is nested lose it. Raises RecordNotFound."""
        self.records.delete("block_document", id)

    def delete_schema(self, id: str) -> None:
        """Delete a schema and its documents. Raises RecordNotFound, RecordProtected."""
        schema = self.records.get("block_schema", id)
        self._refuse_protected(schema["block_type_id"])
        for document in self.records.below("block_document", schema["block_type_id"]):
            if document["block_schema_id"] == schema.id:
                self.delete(document.id)
        self.records.delete("block_schema", schema.id)

    def delete_type(self, id: str) -> None:
        """Delete a type with its schemas and documents. Raises RecordNotFound, RecordProtected."""
        self._refuse_protected(id)
        for document in self.records.below("block_document", checked_uuid(id)):
            self.delete(document.id)
        schemas = self.ledger.states(("block_schema/", open_class("block_schema")))
        for stream, _, state in next(iter(schemas.values()), []):
            if state.status == "present" and state.fields["block_type_id"] == checked_uuid(id):
                self.records.delete("block_schema", stream.partition("/")[2])
        self.records.delete("block_type", id)

    # Read

    def get(self, id: str, *, include_secrets: bool = False) -> dict[str, Any]:
        """The document of this id as it is shown. Raises RecordNotFound, BadKey."""
        return self.shown([self.records.get("block_document", id)], include_secrets=include_secrets)[0]

    def named(self, type_slug: str, name: str, *, include_secrets: bool = False) -> dict[str, Any]:
        """The document of this name and type as it is shown. Raises RecordNotFound, BadKey."""
        block_type = self.records.named("block_type", type_slug)
        found = self.records.named("block_document", block_type.id, name)
        return self.shown([found], include_secrets=include_secrets)[0]

    def shown(self, documents: Sequence[Record], *, include_secrets: bool = False) -> list[dict[str, Any]]:
        """Documents as Prefect's clients read them: decrypted, with nested ones, schema and type.

        include_secrets: also what the schema marks as secret, else HIDDEN stands there. Raises BadKey.
        """
        reading = _Reading(self, include_secrets)
        return [reading.shown(document) for document in documents]

    # Keys

    def rotate(self) -> int:
        """Encrypt all present values with the newest key; returns how many documents changed.

        Where the keys are in a file, a new one is made there first. Each document that changes is one fact.
        A server that lacks the new key refuses to write values, and to read new ones, until it has it.
        Raises BadKey.
        """
        key = self.keys.newest() if self.keys.file is None else self.keys.added()
        retry_conflicts(lambda: self._set_current(key))
        found = self.ledger.states(("block_document/", open_class("block_document")))
        ids = [name.partition("/")[2] for names in found.values() for name, _, _ in names]
        return sum(retry_conflicts(lambda id=id: self._encrypted_anew(id, key)) for id in ids)  # type: ignore[misc]

    def _encrypted_anew(self, id: str, key: Key) -> bool:
        opened = self.records.open("block_document", id)
        if not opened.is_present:
            return False
        old = opened.state.fields["data"]
        if all(value["key"] == key.fingerprint for value in old.values()):
            return False
        keys = self.keys.all()
        data = {field: key.encrypted(self._value(keys, id, field, old[field]), id, field) for field in old}
        opened.change({"data": data})
        self.ledger.commit(opened)
        return True

    def _set_current(self, key: Key) -> None:
        setting = self.records.open("setting", KEY_SETTING)
        if setting.is_present:
            setting.change({"value": key.fingerprint})
            self.ledger.commit(setting)
        else:
            self._first_setting(key)

    def _first_setting(self, key: Key) -> None:
        fields = {"key": "block-key", "value": key.fingerprint}
        try:
            self.records.create("setting", fields, id=KEY_SETTING)
        except RecordExists:
            raise StreamConflict(f"run_setting/{KEY_SETTING}", "a new stream", 1) from None

    def _with_key(self, attempt: Callable[[Key, Append], T]) -> T:
        """Call `attempt` with the current key, and with what its append must check: that it still is it."""

        def once() -> T:
            setting = self.records.open("setting", KEY_SETTING)
            if not setting.is_present:
                self._first_setting(self.keys.newest())
                setting = self.records.open("setting", KEY_SETTING)
            key = self.keys.get(str(setting.state.fields["value"]))
            return attempt(key, Append(setting.name, [], Exact(setting.version)))

        return retry_conflicts(once)

    def _value(self, keys: Mapping[str, Key], id: str, field: str, kept: Mapping[str, str]) -> Any:
        key = keys.get(kept["key"]) or self.keys.get(kept["key"])
        return key.decrypted(kept["token"], id, field)

    def decrypted(self, document: Record) -> dict[str, Any]:
        """The values of a document in clear, without those of nested ones. Raises BadKey."""
        keys = self.keys.all()
        return {name: self._value(keys, document.id, name, one) for name, one in document["data"].items()}

    # How a change is decided

    def _changes(self, opened: OpenRecord, given: Mapping[str, Any], key: Key) -> dict[str, Any]:
        """The fields that change. A value that stays the same keeps its encrypted text."""
        before, document = opened.state.fields, opened.shown()
        changes = self._moved(before, given)
        if given.get("data") is None:
            return changes
        current = self.decrypted(document)
        schema = self.records.get("block_schema", before["block_schema_id"])
        data, references = _separated(
            put_back(_object(given["data"]), current, secret_paths(schema["fields"]))
        )
        if given.get("merge_existing_data", True):
            left = {name: id for name, id in before["references"].items() if name not in data}
            data = {**{name: one for name, one in current.items() if name not in references}, **data}
            references = {**left, **references}
        self._check_references(opened.id, references)
        changes["data"] = {
            name: plain(before["data"][name])
            if name in current and current[name] == value and before["data"][name]["key"] == key.fingerprint
            else key.encrypted(value, opened.id, name)
            for name, value in data.items()
        }
        return {**changes, "references": references}

    def _moved(self, before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The schema that is proposed, if one is. Raises BadRecord for one of another type."""
        if given.get("block_schema_id") is None:
            return {}
        proposed = self.records.get("block_schema", checked_uuid(given["block_schema_id"]))
        if proposed["block_type_id"] != before["block_type_id"]:
            raise BadRecord("block_document", ["block_schema_id: is a schema of another type"])
        return {"block_schema_id": proposed.id}

    def _check_references(self, id: str, references: Mapping[str, str]) -> None:
        """Raise RecordNotFound for a document that is not there, BadRecord for a circle."""
        left, seen = list(references.values()), set[str]()
        while left:
            one = left.pop()
            if one == id:
                raise BadRecord("block_document", ["data: the document would be nested in itself"])
            if one in seen:
                continue
            seen.add(one)
            opened = self.records.open("block_document", one)
            if opened.is_present:
                left += opened.state.fields["references"].values()
            elif one in references.values():
                raise RecordNotFound("block_document", one)

    def _refuse_protected(self, type_id: str) -> None:
        block_type = self.records.get("block_type", type_id)
        if block_type["is_protected"]:
            raise RecordProtected("block_type", block_type["name"], "is protected")


class _Reading:
    """Documents that are read together: each type, schema and nested document once."""

    def __init__(self, blocks: Blocks, include_secrets: bool) -> None:
        self.blocks, self.include_secrets = blocks, include_secrets
        self._found: dict[tuple[str, str], Record] = {}

    def shown(self, document: Record) -> dict[str, Any]:
        """A document with its schema and type."""
        data, references = self._whole(document, 0)
        block_type = self._get("block_type", document["block_type_id"])
        schema = self._get("block_schema", document["block_schema_id"])
        shown = document.shown()
        del shown["references"]
        return {
            **shown,
            "data": data,
            "block_schema": self.blocks.schemas.shown(schema, block_type),
            "block_type_name": block_type["name"],
            "block_type": block_type.shown(),
            "block_document_references": references,
        }

    def _whole(self, document: Record, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of a document with those of nested ones, and what is said of these."""
        data, nested = self.blocks.decrypted(document), {}
        if not self.include_secrets:
            schema = self._get("block_schema", document["block_schema_id"])
            data = hidden(data, secret_paths(schema["fields"]))
        for name, id in document["references"].items():
            if depth < DEEPEST and (child := self._nested(id)) is not None:
                data[name], below = self._whole(child, depth + 1)
                nested[name] = {"block_document": self._said_of(child, below)}
        return data, nested

    def _said_of(self, child: Record, below: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": child.id,
            "name": child["name"],
            "block_type": self._get("block_type", child["block_type_id"]).shown(),
            "is_anonymous": child["is_anonymous"],
            "block_document_references": below,
        }

    def _nested(self, id: str) -> Record | None:
        try:
            return self._get("block_document", id)
        except RecordNotFound:  # deleted since
            return None

    def _get(self, kind: str, id: str) -> Record:
        if (kind, id) not in self._found:
            self._found[kind, id] = self.blocks.records.get(kind, id)
        return self._found[kind, id]


def _object(data: Any) -> dict[str, Any]:
    if data is not None and not isinstance(data, Mapping):
        raise BadRecord("block_document", ["data: must be an object"])
    return dict(kept(data or {}))


def _separated(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values, and the ids of nested documents by their fields. Raises BadRecord."""
    values: dict[str, Any] = {}
    references: dict[str, str] = {}
    for name, value in data.items():
        if isinstance(value, Mapping) and "$ref" in value:
            id = value["$ref"].get("block_document_id") if isinstance(value["$ref"], Mapping) else None
            if id is None:
                raise BadRecord("block_document", [f"data.{name}: $ref has no block_document_id"])
            references[name] = checked_uuid(id)
        else:
            values[name] = value
    return values, references
