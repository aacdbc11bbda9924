"""
Artifacts, and the collection of each key, which follows the latest one.

An artifact with a key and the collection of that key are appended together. The latest is the newest in the
order of the collection's stream, not by a time. When it is deleted, the collection goes back to the newest
that is left, which its own history names; when none is left, the collection is deleted (spec S3, 4.2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from ..errors import RecordNotFound
from ..log.append import Append, Exact, append_of
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .json_values import plain
from .records import OpenRecord, Record, Records, open_class

_KEYS: Final = UUID("6b1f2b0e-5e0c-4b39-9d34-6a1d0f4d7c55")
"""The namespace of the ids of collections; permanent."""
_PAGE: Final = 100


def collection_id(key: str) -> str:
    """The id of the collection of a key."""
    return str(uuid5(_KEYS, key))


class Artifacts:
    """The artifacts of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.records = ledger, Records(ledger)

    def create(
        self, fields: Mapping[str, Any], *, id: str | None = None, since: datetime | None = None
    ) -> Record:
        """Create an artifact; with a key, it is the latest of that key. Raises BadRecord, RecordExists.

        since: when another system created it, for one that is imported.
        """
        artifact, *_ = self.records.prepared("artifact", fields, id=id)
        if artifact.state.fields["key"] is None:
            return self.records.create("artifact", fields, id=artifact.id, since=since)

        def attempt() -> Record:
            opened = self.records.open("artifact", artifact.id)
            opened.create(fields, since)
            self.ledger.commit(opened, *self._followed(opened))
            return opened.shown()

        return retry_conflicts(attempt)

    def appends_of_create(self, fields: Mapping[str, Any], *, id: str | None = None) -> list[Append]:
        """The appends that create a new artifact, for who records it together with a state (spec S3-48)."""
        artifact, *_ = self.records.prepared("artifact", fields, id=id)
        return [append_of(stream) for stream in (artifact, *self._followed(artifact))]

    def get(self, id: str) -> Record:
        """The artifact of this id. Raises RecordNotFound."""
        return self.records.get("artifact", id)

    def latest(self, key: str) -> Record:
        """The collection of a key, with the fields of its latest artifact. Raises RecordNotFound."""
        opened = self._collection(key)
        if not opened.is_present:
            raise RecordNotFound("artifact_collection", key)
        return opened.shown()

    def change(self, id: str, fields: Mapping[str, Any]) -> Record:
        """Change an artifact, and its copy where it is the latest. Raises BadRecord, RecordNotFound."""

        def attempt() -> Record:
            opened = self.records.open("artifact", id)
            opened.change(fields)
            collection = self._collection(opened.state.fields["key"])
            if collection.is_present and collection.state.fields["latest_id"] == opened.id:
                collection.change(_copy(opened))
            self.ledger.commit(opened, collection)
            return opened.shown()

        return retry_conflicts(attempt)

    def delete(self, id: str) -> Record:
        """Delete an artifact; the collection of its key goes back to an earlier one.

        Raises RecordNotFound.
        """

        def attempt() -> Record:
            opened = self.records.open("artifact", id)
            opened.delete()
            read = [self._collection(opened.state.fields["key"])]
            if read[0].is_present and read[0].state.fields["latest_id"] == opened.id:
                read += self._go_back(read[0], opened.id)
            # What was only read must not change either: two deletions may each choose what the other deletes.
            checks = [Append(stream.name, [], Exact(stream.version)) for stream in read if not stream.news]
            self.ledger.commit(opened, *read, checks=checks)
            return opened.shown()

        return retry_conflicts(attempt)

    def _collection(self, key: str | None) -> OpenRecord:
        """The collection of a key as it is now; for no key, one that is not there."""
        if key is None:
            return open_class("artifact_collection")(collection_id(""))
        return self.records.open("artifact_collection", collection_id(key))

    def _followed(self, artifact: OpenRecord) -> list[OpenRecord]:
        """The collection of an artifact's key, open, with this one as the latest."""
        if (key := artifact.state.fields["key"]) is None:
            return []
        collection = self._collection(key)
        if collection.is_present:
            collection.change(_copy(artifact))
        else:
            collection.create(_copy(artifact))
        return [collection]

    def _go_back(self, collection: OpenRecord, deleted: str) -> list[OpenRecord]:
        """Make the newest artifact that is not deleted the latest, or delete the collection.

        Returns the artifact, if there is one.
        """
        for id in self._earlier(collection):
            if id != deleted and (artifact := self.records.open("artifact", id)).is_present:
                collection.change(_copy(artifact))
                return [artifact]
        collection.delete()
        return []

    def _earlier(self, collection: OpenRecord) -> Iterator[str]:
        """The ids that were the latest once, the last one first, from the collection's history.

        An id that became the latest again by a deletion stands before newer ones that are all deleted.
        """
        upto, seen = collection.version, set[str]()
        while upto > 0:
            for event in self.ledger.read(collection.name, upto=upto, limit=_PAGE, backwards=True):
                upto = event.version - 1
                id = json.loads(event.data or "{}").get("fields", {}).get("latest_id")
                if id is not None and id not in seen:
                    seen.add(id)
                    yield id


def _copy(artifact: OpenRecord) -> dict[str, Any]:
    return {**plain(artifact.state.fields), "latest_id": artifact.id}
