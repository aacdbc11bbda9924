"""The values of Prefect's blocks, decrypted with the key that Prefect keeps in the same database."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from ledger import BadFile

if TYPE_CHECKING:
    from .database import PrefectDatabase


PLACE: Final = "the database of Prefect"


class Secrets:
    """Decrypts the values of blocks.

    The key is in the table `configuration`, unless the server was given another one by an environment
    variable, which is then needed here too.
    """

    def __init__(self, database: PrefectDatabase) -> None:
        found = database.rows_with("configuration", "key", ["ENCRYPTION_KEY"])
        kept = found[0]["value"].get("fernet_key") if found else None
        self._key = os.environ.get("PREFECT_SERVER_ENCRYPTION_KEY") or kept

    def decrypted(self, data: Any, block: str) -> dict[str, Any]:
        """The values of a block. Raises BadFile where they cannot be decrypted."""
        from cryptography.fernet import Fernet, InvalidToken

        if not isinstance(data, str):
            return dict(data or {})
        if not self._key:
            raise BadFile(
                "the database of Prefect", f"block {block}", "is encrypted, and the key is not in it"
            )
        try:
            values = json.loads(Fernet(self._key).decrypt(data.encode()))
        except (InvalidToken, ValueError):
            raise BadFile(
                PLACE,
                f"block {block}",
                "was encrypted with another key: set PREFECT_SERVER_ENCRYPTION_KEY to it",
            ) from None
        return dict(values)
