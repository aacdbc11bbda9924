"""The block in which runs keep their results where their flow names none: a setting of the server."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from ..errors import BadRecord, RecordExists
from ..log.ledger import Ledger
from .json_values import checked_uuid
from .records import Records

KEY: Final = "server-default-result-storage"
ID: Final = str(uuid5(UUID("6b1f2b0e-5e0c-4b39-9d34-6a1d0f4d7c55"), KEY))
"""The id of the setting; permanent."""
CAPABILITY: Final = "write-path"
"""What the schema of such a block must be able to do."""


class DefaultStorage:
    """The default storage of results of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.records = Records(ledger)

    def get(self) -> str | None:
        """The id of the block document; None if none is set, or it was deleted since."""
        setting = self.records.open("setting", ID)
        if not setting.is_present:
            return None
        id = str(setting.state.fields["value"])
        return id if self.records.open("block_document", id).is_present else None

    def set(self, id: str) -> None:
        """Set it. Raises RecordNotFound; BadRecord for a block that stores nothing."""
        document = self.records.get("block_document", checked_uuid(id))
        schema = self.records.get("block_schema", document["block_schema_id"])
        if CAPABILITY not in schema["capabilities"]:
            raise BadRecord("block_document", [f"cannot keep results: its schema lacks {CAPABILITY}"])
        try:
            self.records.create("setting", {"key": KEY, "value": document.id}, id=ID)
        except RecordExists:
            self.records.change("setting", ID, {"value": document.id})

    def clear(self) -> None:
        """Set none; nothing happens where none is set."""
        if self.records.open("setting", ID).is_present:
            self.records.delete("setting", ID)
