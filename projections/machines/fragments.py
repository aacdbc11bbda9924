"""Who is in which state, as a part of the user's own statement, beside rows that the ledger does not know.

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
from ledger.machines import Machine
from ledger.store.install import checked_schema, views_schema

from ..sql import template
from .known import Known, of_class

Key = sql.Composable | Sequence[sql.Composable]
Types = type | Sequence[type]

_PART: Final = {str: "part_as_text", int: "part_as_bigint", UUID: "part_as_uuid"}
_NAME: Final = {str: "text_in_name", int: "plain_in_name", UUID: "plain_in_name"}


class InState:
    """Which objects are in one of some states of a machine, also those that never moved (spec S2-50).

    An object that never moved is in the initial state; it has been so for no known time, and is not in it
    `longer_than` anything. machine: its class, or what `known_machine(log, name)` gave. schema: that of the
    ledger. As fresh as the view in_state. Raises InvalidState for an unknown state.
    """

    _inverted = False

    def __init__(
        self,
        machine: type[Machine] | Known,
        *states: Any,
        longer_than: timedelta | None = None,
        schema: str = "ledger",
    ) -> None:
        self.machine = of_class(machine)
        self.states = self.machine.checked(*states)
        self.longer_than, self.schema = longer_than, checked_schema(schema)

    def where(self, *, key: Key, types: Types = str) -> sql.Composed:
        """The condition as a boolean expression, for a WHERE of psycopg.

        key: the columns that hold the parts of the object's key, in their order. types: of each of them,
        or of all: str for text, int for integers, UUID. PostgreSQL refuses a wrong one as `text = bigint`.
        Where few objects are in the states, the statement is led from them to the user's rows, if these have
        an index on the columns; where the user's rows are few, from these to the states. Raises BadInput.
        """
        columns = [key] if isinstance(key, sql.Composable) else list(key)
        kinds = [types] * len(columns) if isinstance(types, type) else list(types)
        _check(columns, kinds)
        held, absent = self._asked()
        return sql.SQL("({}EXISTS {})").format(
            sql.SQL("NOT " if absent else ""), self._rows(columns, kinds, held)
        )

    def _asked(self) -> tuple[sql.Composed, bool]:
        """What to look for, and whether the object is meant that has no such row.

        With the initial state those are meant that are in none of the other states: they may have no row.
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
            read = sql.SQL(template(_PART[kind])).format(schema=ledger, nth=sql.Literal(nth + 1))
            parts.append(sql.SQL(", {} AS {}").format(read, part))
            same.append(sql.SQL("s.{} = {}").format(part, column))
            name.append(sql.SQL(template(_NAME[kind])).format(schema=ledger, column=column))
        return sql.SQL(template("objects_held")).format(
            views=sql.Identifier(views_schema(self.schema)), machine=sql.Literal(self.machine.name),
            held=held, parts=sql.Composed(parts), same=sql.SQL(" AND ").join(same),
            name=sql.SQL(" || '/' || ").join(name),
        )  # fmt: skip


class NotInState(InState):
    """Which objects are in none of some states: exactly those that `InState` leaves out (S2-51)."""

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
    """A text in a statement, without a `%`, which is doubled only where parameters are sent with it."""
    pieces = map(sql.Literal, text.split("%"))
    return sql.SQL("({})::text").format(sql.SQL(" || chr(37) || ").join(pieces))
