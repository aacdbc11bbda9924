"""
The filter language of Prefect's API, compiled to SQL.

    body = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}, "flows": {"name": {"any_": ["etl"]}}}
    condition = Filters("flow_runs", body, views).condition

A body has one filter for each kind of thing. A filter of another kind than the listed one keeps the rows for
which there is a row of that kind that fulfils it: flow runs whose flow is named so. `operator` joins the
criteria of a filter or of a field: `and_` (the default) or `or_`. A filter that is there and empty keeps the
rows that go with any row of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import sql

from ledger import BadInput
from ledger.errors import shown
from ledger.log.sql import Statement, Statements

from .criteria import Field, Values, conditions
from .fields import FIELDS, JOINS, SOURCES, TREES, Group, Tree

SQL: Final = Statements(__package__, "lists", "criteria")

_JOINED: Final = {"and_": sql.SQL(" AND "), "or_": sql.SQL(" OR ")}


class Filters:
    """The filters of a body for one listed kind.

    table: the alias of the listed rows. condition: what they must fulfil; `values` has its parameters.
    Raises BadInput, which names the place, for an unknown filter, field or criterion and a wrong value.
    """

    def __init__(
        self, kind: str, body: Mapping[str, Any], views: sql.Identifier, *, kept: bool = True
    ) -> None:
        """kept: leave out what was deleted."""
        self.kind, self.views, self.values = kind, views, Values()
        self._aliases = 0
        self._body = {name: told for name, told in body.items() if told is not None}
        known = [kind, *_kinds(TREES.get(kind, {}))]
        if wrong := [name for name in self._body if name not in known]:
            raise BadInput(f"{kind} have no filter {shown(wrong[0])}; there are {', '.join(known)}")
        self.table = self._alias()
        self.condition = self._all(kind, self.table, TREES.get(kind, {}), kept)

    def add(self, condition: Statement, value: Any) -> None:
        """Add a condition of its own to those of the body."""
        more = condition.named(table=sql.Identifier(self.table), value=self.values.add(value))
        self.condition = sql.SQL(" AND ").join([self.condition, more])

    @property
    def rows(self) -> sql.Composed:
        """The table of the listed rows, with its alias."""
        return self._rows(self.kind, self.table)

    def _all(self, kind: str, table: str, tree: Tree, kept: bool = True) -> sql.Composed:
        """The conditions of a row of one kind, and those of the rows that go with it."""
        found = [self._kept(kind, table)] if kept else []
        if kind in self._body:
            found.append(self._joined(FIELDS[kind], self._body[kind], table, kind))
        found += [self._exists(kind, table, other, tree[other]) for other in tree if self._wants(other, tree)]
        return sql.SQL(" AND ").join(found) if found else sql.Composed([sql.SQL("true")])

    def _wants(self, kind: str, tree: Tree) -> bool:
        """Whether the body has a filter of a kind, or of one that is looked up through it."""
        return any(name in self._body for name in (kind, *_kinds(tree[kind])))

    def _exists(self, kind: str, table: str, other: str, tree: Tree) -> sql.Composed:
        alias, join = self._alias(), JOINS[kind, other]
        same = sql.SQL(" = ").join([join.other.of(alias, self.views), join.own.of(table, self.views)])
        conditions = sql.SQL(" AND ").join([same, self._all(other, alias, tree)])
        return SQL.exists_in.named(other=self._rows(other, alias), conditions=conditions)

    def _joined(self, group: Group, told: Any, table: str, place: str) -> sql.Composed:
        """The criteria of a filter, or of a group of fields, joined by its operator."""
        if not isinstance(told, Mapping):
            raise BadInput(f"{place} must be an object, not {shown(told)}")
        given = dict(told)
        operator = given.pop("operator", None) or "and_"
        if operator not in _JOINED:
            raise BadInput(f"{place}.operator must be and_ or or_, not {shown(operator)}")
        found: list[sql.Composable] = []
        for name, value in given.items():
            if name not in group:
                raise BadInput(f"{place} has no field {shown(name)}; it has {', '.join(group)}")
            if value is not None:
                found += self._of_field(group[name], name, value, table, f"{place}.{name}")
        return sql.SQL("({})").format(_JOINED[operator].join(found) if found else sql.SQL("true"))

    def _of_field(
        self, field: Field | Group, name: str, told: Any, table: str, place: str
    ) -> list[sql.Composable]:
        """The criteria of one field, joined by its operator; without one it holds for every row."""
        if not isinstance(field, Field):
            return [self._joined(field, told, table, place)]
        if name in field.criteria:  # the field has its criterion's name: created_by.type_
            told = {name: told}
        if not isinstance(told, Mapping):
            raise BadInput(f"{place} must be an object, not {shown(told)}")
        given = dict(told)
        operator = given.pop("operator", None) or "and_"
        if operator not in _JOINED:
            raise BadInput(f"{place}.operator must be and_ or or_, not {shown(operator)}")
        found = conditions(field, given, table, self.views, self.values, place)
        return [sql.SQL("({})").format(_JOINED[operator].join(found) if found else sql.SQL("true"))]

    def _kept(self, kind: str, table: str) -> sql.Composed:
        names = {"table": sql.Identifier(table), "category": sql.Literal(SOURCES[kind].category)}
        return SQL["record_is_kept" if SOURCES[kind].category else "run_is_kept"].named(**names)

    def _rows(self, kind: str, table: str) -> sql.Composed:
        source = sql.Identifier(SOURCES[kind].table)
        return sql.SQL("{}.{} {}").format(self.views, source, sql.Identifier(table))

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"


def _kinds(tree: Tree) -> list[str]:
    """All kinds in a tree."""
    return [name for kind in tree for name in (kind, *_kinds(tree[kind]))]
