"""The routes that records of several kinds have in the same form, declared once.

ROUTES = RecordRoutes("/variables", "variable", "variables")
ROUTES.declare_lists()
ROUTES.declare_records()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from ledger.runs.records import Record

from .bodies import FieldsOf
from .calls import Call, Routes
from .lists import Question, counted, counting, listed, reading


class RecordRoutes(Routes):
    """The routes of one kind of records.

    kind, plural: its names in `ledger.runs.kinds` and in `projections.runs`.
    """

    def __init__(self, prefix: str, kind: str, plural: str) -> None:
        super().__init__(prefix)
        self.kind, self.rows, self.number = kind, reading(plural), counting(plural)
        self.fields = Annotated[dict[str, Any], FieldsOf(kind)]

    def declare_lists(self, show: Callable[[Call, Record], Any] = lambda _, record: record.shown()) -> None:
        """POST /filter and POST /count."""
        rows, number = self.rows, self.number

        @self.look("/filter")
        def filter(call: Call, body: Question) -> Any:
            """Those that the filters mean."""
            return listed(call, body, rows, lambda one: show(call, one))

        @self.look("/count")
        def count(call: Call, body: Question) -> int:
            """How many the filters mean."""
            return counted(call, body, number)

    def declare_records(self) -> None:
        """POST /, and GET, PATCH and DELETE of one by its id."""
        kind = self.kind

        @self.post("/", status=201, body=self.fields)
        def create(call: Call, body: dict[str, Any]) -> Any:
            """A new one; 409 where its name is taken."""
            return call.services.records.create(kind, body).shown()

        @self.get("/{id:uuid}")
        def get(call: Call, id: str) -> Any:
            """One of them."""
            return call.services.records.get(kind, id).shown()

        @self.patch("/{id:uuid}", body=self.fields)
        def change(call: Call, id: str, body: dict[str, Any]) -> None:
            """Change fields of one."""
            call.services.records.change(kind, id, body)

        @self.delete("/{id:uuid}")
        def delete(call: Call, id: str) -> None:
            """Delete one."""
            call.services.records.delete(kind, id)
