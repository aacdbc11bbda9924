"""A condition on the state of objects, for the user's own statement about rows that the ledger does not know.

sql.SQL("SELECT p.* FROM payments p WHERE p.bank = %s AND {}").format(
    InState(Payment, "submitted").where(key=sql.Identifier("p", "id")))
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import sql

from ledger import BadInput
from ledger.errors import shown
from ledger.log.install import checked_schema, views_schema
from ledger.log.sql import Statements
from ledger.machines import Machine

from .info import MachineInfo, of_class

SQL = Statements(__package__, "fragments")
Key = sql.Composable | Sequence[sql.Composable]
Types = type | Sequence[type]

_PART: Final = {str: "part_as_text", int: "part_as_bigint", UUID: "part_as_uuid"}
_NAME: Final = {str: "text_in_name", int: "plain_in_name", UUID: "plain_in_name"}


class InState:
    """Objects that are in one of some states of a machine, also those that never moved (spec S2-50).

    An object that never moved is in the initial state, since no known time: `longer_than` excludes it.
    machine: its class, or what `machine_info(log, name)` returned. schema: that of the ledger. As fresh as
    the view in_state. Raises InvalidState for an unknown state.
    """

    _inverted = False

    def __init__(
        self,
        machine: type[Machine] | MachineInfo,
        *states: Any,
        longer_than: timedelta | None = None,
        schema: str = "ledger",
    ) -> None:
        self.machine = of_class(machine)
        self.states = self.machine.checked(*states)
        self.longer_than, self.schema = longer_than, checked_schema(schema)

    def where(self, *, key: Key, types: Types = str) -> sql.Composed:
        """The condition as a boolean expression for a WHERE clause.

        key: the columns that hold the parts of the object's key, in order. types: of each part, or of all:
        str for text, int for integers, UUID. PostgreSQL refuses a wrong one as `text = bigint`. If few
        objects are in the states, the planner can start from them, if there is an index on the columns; if
        few rows of the user's are in question, from these. Raises BadInput.
        """
        columns = [key] if isinstance(key, sql.Composable) else list(key)
        kinds = [types] * len(columns) if isinstance(types, type) else list(types)
        _check(columns, kinds)
        held, absent = self._asked()
        return sql.SQL("({}EXISTS {})").format(
            sql.SQL("NOT " if absent else ""), self._rows(columns, kinds, held)
        )

    def _asked(self) -> tuple[sql.Composed, bool]:
        """The condition on the view's rows, and whether objects without such a row are meant.

        If the initial state is among the states, objects are meant that are in no other state: they may have
        no row.
        """
        initial, since = self.machine.initial_state in self.states, self._since()
        moved = not initial or self.longer_than is not None
        wanted = sql.SQL("i.status = ANY ({})" if moved else "i.status <> ALL ({})")
        states = sql.SQL("ARRAY[{}]").format(sql.SQL(", ").join(map(_literal, self.states)))
        return wanted.format(states) + since, moved == self._inverted

    def _since(self) -> sql.Composed:
        if self.longer_than is None:
            return sql.Composed([])
        return sql.SQL(" AND i.since < now() - {}::interval").format(sql.Literal(self.longer_than))

    def _rows(
        self, columns: Sequence[sql.Composable], kinds: Sequence[type], held: sql.Composed
    ) -> sql.Composed:
        ledger = sql.Identifier(self.schema)
        parts: list[sql.Composable] = []
        same: list[sql.Composable] = []
        name: list[sql.Composable] = [sql.Literal(self.machine.name)]
        for nth, (column, kind) in enumerate(zip(columns, kinds, strict=True), 1):
            part = sql.Identifier(f"part_{nth}")
            read = SQL[_PART[kind]].named(schema=ledger, nth=sql.Literal(nth + 1))
            parts.append(sql.SQL(", {} AS {}").format(read, part))
            same.append(sql.SQL("s.{} = {}").format(part, column))
            name.append(SQL[_NAME[kind]].named(schema=ledger, column=column))
        return SQL.objects_held.named(
            views=sql.Identifier(views_schema(self.schema)), machine=sql.Literal(self.machine.name),
            held=held, parts=sql.Composed(parts), same=sql.SQL(" AND ").join(same),
            name=sql.SQL(" || '/' || ").join(name),
        )  # fmt: skip


class NotInState(InState):
    """Objects that are in none of some states: exactly those that `InState` excludes (S2-51)."""

    _inverted = True


def _check(columns: Sequence[Any], kinds: Sequence[Any]) -> None:
    if not columns or not all(isinstance(column, sql.Composable) for column in columns):
        raise BadInput(
            'key must be a column of psycopg.sql, such as sql.Identifier("p", "id"), or a list of them, '
            f"not {shown(columns)}"
        )
    if len(kinds) != len(columns) or not all(kind in _PART for kind in kinds):
        raise BadInput(
            f"types must be str, int or UUID for each of {len(columns)} columns, not {shown(kinds)}"
        )


def _literal(text: str) -> sql.Composed:
    """A text literal without `%`, which psycopg doubles only in statements with parameters."""
    pieces = map(sql.Literal, text.split("%"))
    return sql.SQL("({})::text").format(sql.SQL(" || chr(37) || ").join(pieces))
