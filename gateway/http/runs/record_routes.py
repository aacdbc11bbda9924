"""The routes that records of several kinds have in the same form, declared once.

ROUTES = RecordRoutes("/variables", "variable", "variables")
ROUTES.declare_lists()
ROUTES.declare_records()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from ledger.runs.kinds import kind_of
from ledger.runs.records import Record

from .bodies import FieldsOf
from .calls import Call, Handler, Routes
from .lists import Question, counted, counting, listed, reading


class RecordRoutes(Routes):
    """The routes of one kind of records.

    kind, plural: its names in `ledger.runs.kinds` and in `projections.runs`.
    """

    def __init__(self, prefix: str, kind: str, plural: str) -> None:
        super().__init__(prefix)
        self.kind, self.rows, self.number = kind, reading(plural), counting(plural)
        self.fields = Annotated[dict[str, Any], FieldsOf(kind)]
        self._one, self._all = kind.replace("_", " "), plural.replace("_", " ")

    def declare_lists(self, show: Callable[[Call, Record], Any] = lambda _, record: record.shown()) -> None:
        """POST /filter and POST /count."""
        rows, number = self.rows, self.number

        @self.look("/filter")
        @_told(f"{self._all.capitalize()} by filters.")
        def filter(call: Call, body: Question) -> Any:
            return listed(call, body, rows, lambda one: show(call, one))

        @self.look("/count")
        @_told(f"How many {self._all} there are.")
        def count(call: Call, body: Question) -> int:
            return counted(call, body, number)

    def declare_records(self) -> None:
        """POST /, and GET, PATCH and DELETE of one by its id."""
        kind, one = self.kind, self._one
        conflict = "; 409 if there is one of this name" if kind_of(kind).unique else ""

        @self.post("/", status=201, body=self.fields)
        @_told(f"Create one {one}{conflict}.")
        def create(call: Call, body: dict[str, Any]) -> Any:
            return call.services.records.create(kind, body).shown()

        @self.get("/{id:uuid}")
        @_told(f"One {one}.")
        def get(call: Call, id: str) -> Any:
            return call.services.records.get(kind, id).shown()

        @self.patch("/{id:uuid}", body=self.fields)
        @_told(f"Change fields of one {one}.")
        def change(call: Call, id: str, body: dict[str, Any]) -> None:
            call.services.records.change(kind, id, body)

        @self.delete("/{id:uuid}")
        @_told(f"Delete one {one}.")
        def delete(call: Call, id: str) -> None:
            call.services.records.delete(kind, id)


def _told(about: str) -> Callable[[Handler], Handler]:
    """What a route says of itself."""

    def tell(handler: Handler) -> Handler:
        handler.__doc__ = about
        return handler

    return tell
