"""
What a view is: a name, the topics it wants, tables of its own, and what a batch of events does to them.

    class DonePerActor(View):
        name = "done_per_actor"
        topics = ("lsm.strip.completed",)
        tables = "CREATE TABLE {done_per_actor} (actor text PRIMARY KEY, done bigint NOT NULL)"
        statements = (
            "INSERT INTO {done_per_actor} AS d (actor, done) "
            "SELECT meta->>'actor', count(*) FROM {batch} b GROUP BY 1 "
            "ON CONFLICT (actor) DO UPDATE SET done = d.done + excluded.done",
        )

A statement reads the events of a batch from `{batch}`, a relation with the columns of the log. Where they
come from does not matter to it: the log, another source, or an append that keeps the view inline. A
view that needs Python overrides `apply`, which reads the events and returns statements.

The effect of a batch may depend only on the batch and on the view's own tables: never on the clock, on
random numbers, on a sum of floats, or on where one batch ends and the next begins. Then a rebuild gives the
same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, ClassVar, Final, LiteralString

from psycopg import sql

from ledger import BadName, Recorded
from ledger.domain.canonical_json import digest
from ledger.domain.known import KNOWN
from ledger.domain.names import checked_topic
from ledger.domain.topics import with_former
from ledger.log.sql import named

KEPT_BY_APPENDS: Final = ("heads", "commands")
"""Names that a view cannot have, because they mean something else to `pledger rebuild`."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
_PLACES = ("batch", "ledger", "reader", "streams", "views")
_TABLE = re.compile(r"CREATE\s+TABLE\s+\{(\w+)\}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One set-based statement; `{batch}` and the view's tables in braces, values as `%(name)s`."""

    text: LiteralString
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Batch:
    """Events in order: those of the view's topics after one position, up to another.

    A statement reads them from `{batch}`. `events` loads them into Python, for a view that needs that;
    rows: executes a statement at once and returns its rows.
    """

    def __init__(
        self,
        after: int,
        upto: int,
        read: Callable[[], Sequence[Recorded]],
        rows: Callable[[Statement], list[tuple[Any, ...]]],
    ) -> None:
        self.after, self.upto, self._read, self.rows = after, upto, read, rows

    @cached_property
    def events(self) -> Sequence[Recorded]:
        """The events themselves, read on first use."""
        return self._read()


class View:
    """A view; a subclass declares it and registers it by its name.

    name: also its tables' prefix. topics: None for all; events that were recorded under a former name of
    one (`was=`) are included. tables: CREATE TABLE {name} (…); …, without what the engine adds. indexes:
    CREATE INDEX ON {name} …; …, created after the first filling. statements: what a batch does, in order.
    reads: SQL functions and views for readers, in `{views}`. forget: statements that remove what the streams
    in `{streams}` contributed, so that it can be added again; none if rows sum over several streams.
    statuses: whether it reads the ledger's table `topic_statuses`; sets: whether also `sets`. inline: whether
    an append may keep it, since its statements give the same in any order of appends. number: raise it
    whenever `apply` changes in Python.
    """

    name: ClassVar[str]
    topics: ClassVar[Sequence[str] | None] = None
    tables: ClassVar[LiteralString]
    indexes: ClassVar[LiteralString] = ""
    statements: ClassVar[Sequence[LiteralString]] = ()
    reads: ClassVar[LiteralString] = ""
    forget: ClassVar[Sequence[LiteralString]] = ()
    statuses: ClassVar[bool] = False
    sets: ClassVar[bool] = False
    inline: ClassVar[bool] = False
    number: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            made = cls()
            made.check()
            other = type(KNOWN.views.get(cls.name, made))
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise BadName(
                    "view", cls.name, f"is the name of {other.__module__}.{other.__qualname__} already"
                )
            KNOWN.views[cls.name] = made

    def apply(self, batch: Batch) -> Iterable[Statement]:
        """The statements for a batch; a pure function. By default `statements`, for every batch."""
        return map(Statement, self.statements)

    @property
    def is_sql(self) -> bool:
        """Whether `statements` contains all that a batch does."""
        return type(self).apply is View.apply

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of its tables, in the order in which they are made."""
        return tuple(_TABLE.findall(self.tables))

    @property
    def categories(self) -> list[str] | None:
        """The categories whose events it also gets, whatever their topics; None for no others."""
        return None

    @property
    def wanted(self) -> list[str] | None:
        """The topics of the events that it gets: its `topics` and their former names; None for all."""
        return None if self.topics is None else sorted(with_former(self.topics))

    @property
    def definition(self) -> str:
        """A digest of what determines the tables and their rows: if it changes, the view needs a rebuild."""
        topics = None if self.wanted is None else " ".join(self.wanted)
        parts = (self.name, topics, self.number, self.tables, *self.statements)
        return digest(*parts).hex()[:16]

    def check(self) -> None:
        """Refuse a view that cannot be followed. Raises BadName, TypeError."""
        for what, name in (("view", self.name), *(("table", name) for name in self.table_names)):
            if not _NAME.match(name):
                raise BadName(what, name, "must be lower-case letters, digits and '_', at most 40")
        if self.name in KEPT_BY_APPENDS:
            raise BadName(
                "view", self.name, "names a table of the ledger in `pledger rebuild`: choose another"
            )
        if not self.table_names:
            raise TypeError(f"view {self.name} has no table: tables must hold CREATE TABLE {{NAME}} (…)")
        if self.is_sql and not self.statements:
            raise TypeError(f"view {self.name} does nothing: give it statements, or override apply")
        for what in ("topics", "statements", "forget"):
            if isinstance(getattr(self, what), str):
                raise TypeError(f"view {self.name}: {what} must be a tuple; a tuple of one needs a comma")
        for topic in self.topics or ():
            checked_topic(topic)
        places = dict.fromkeys((*self.table_names, *_PLACES), sql.SQL(""))
        for text in (self.tables, self.indexes, self.reads, *self.forget, *self.statements):
            filled(text, places)
        taken = {
            name: view for view in KNOWN.views.values() for name in view.table_names if view.name != self.name
        }
        if wrong := [name for name in self.table_names if name in taken]:
            raise BadName("table", wrong[0], f"is a table of view {taken[wrong[0]].name} already")


@cache
def parts(package: str, name: str) -> Mapping[str, LiteralString]:
    """The parts of a view, from NAME.sql beside its module: tables, indexes, apply…, forget…, reads."""
    return named(files(package) / f"{name}.sql")


def filled(text: LiteralString, names: Mapping[str, sql.Composable]) -> sql.Composed:
    """A view's statement with the names of one place in it. Raises TypeError for a name that is not there."""
    try:
        return sql.SQL(text).format(**names)
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join(f"{{{name}}}" for name in names)
        wrong = (
            f"names {{{error.args[0]}}}" if isinstance(error, KeyError) else f"cannot be filled in, {error}"
        )
        raise TypeError(
            f"a statement of a view {wrong}; there are {known} (a brace itself is doubled): {text}"
        ) from error
