"""
Views whose rows are the states of streams, folded by the domain's own `evolve`.

    class Strips(StateView):
        name = "strips"
        streams = (LSMStripState,)
        born = ("lsm.strip.created",)
        tables = '''CREATE TABLE {strips} (
            position bigint NOT NULL,
            version  bigint NOT NULL,
            status   text   NOT NULL,
            stream   text   COLLATE "C" PRIMARY KEY,
            state    jsonb  NOT NULL
        )'''

A column with the name of a field of the state holds that field; `picks` has an expression for every other
column. So a further column is one line, and only the domain defines what a fact does to a state.

If the head of a stream is at the version that the batch ends with, its state is taken as it is, and nothing
is folded. Other streams are folded in this process, starting from the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final, LiteralString

from ledger import LedgerError
from ledger.domain.canonical_json import digest
from ledger.domain.names import split_name
from ledger.domain.state import dump, load
from ledger.domain.stream import Stream
from ledger.domain.topics import read_event, with_former
from ledger.log.sql import Statements

from .view import Batch, Statement, View

SQL: Final = Statements(__package__, "state_view")
OWN: Final = ("stream", "version", "position", "state")
"""The columns of every table of states."""

AT_ONCE: Final = 500
"""States that are sent at once."""

_CONSTRAINTS: Final = ("CONSTRAINT", "CHECK", "UNIQUE", "PRIMARY", "EXCLUDE", "FOREIGN", "LIKE")


class StateView(View):
    """A view of states; its first table has one row per stream.

    streams: the classes of streams whose states it holds. born: topics; only a stream whose first event has
    one of them has a row. picks: SQL expressions by column, for columns that are not fields of the state:
    `s.state` is the state, `r` the row of its fields. topics: of further events that `statements` read; these
    run after the states. stream, version, state: of the row; position: of the first event.
    """

    streams: ClassVar[Sequence[type[Stream[Any, Any]]]]
    born: ClassVar[Sequence[str]]
    picks: ClassVar[Mapping[str, LiteralString]] = {}
    topics: ClassVar[Sequence[str] | None] = ()

    @property
    def categories(self) -> list[str] | None:
        """The categories of its streams."""
        return [kind.CATEGORY for kind in self.streams]

    @property
    def definition(self) -> str:
        """As of any view; a change of the states' folding code needs a rebuild too."""
        marks = (f"{kind.CATEGORY} {kind.state_schema()}" for kind in self.streams)
        picks = (f"{name} {text}" for name, text in self.picks.items())
        return digest(super().definition, *marks, *picks, *self.born).hex()[:16]

    def check(self) -> None:
        """As of any view. Raises TypeError if a required column of the table of states is missing."""
        super().check()
        if missing := [name for name in OWN if name not in self.columns]:
            raise TypeError(f"view {self.name}: its table {self.table_names[0]} has no column {missing[0]}")

    def apply(self, batch: Batch) -> Iterator[Statement]:
        """Take the states of heads, fold the rest, and run the view's statements."""
        rest = batch.rows(Statement(self._texts["take"], self._values))
        folded = list(self._folded(rest))
        for start in range(0, len(folded), AT_ONCE):
            streams, versions, positions, states = zip(*folded[start : start + AT_ONCE], strict=True)
            values = {"streams": list(streams), "versions": list(versions), "positions": list(positions)}
            # One document: an array of texts takes far longer to send.
            yield Statement(self._texts["write"], {**values, "states": f"[{','.join(states)}]"})
        yield from super().apply(batch)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the table of states."""
        words = (part.split(None, 1)[0] for part in _parts(self.tables))
        return tuple(word for word in words if word.upper() not in _CONSTRAINTS)

    @cached_property
    def _values(self) -> dict[str, Any]:
        return {
            "born": sorted(with_former(self.born)),
            "marks": [kind.state_schema() for kind in self.streams],
        }

    @cached_property
    def _texts(self) -> dict[str, LiteralString]:
        """The statements, with their columns filled in."""
        table = self.table_names[0]
        own = {name: f"s.{name}" for name in OWN}
        picked = {name: own.get(name) or self.picks.get(name) or f"r.{name}" for name in self.columns}
        kept = [name for name in self.columns if name not in ("stream", "position")]
        parts = {
            "{rows}": f"{{{table}}}",
            "{columns}": ", ".join(picked),
            "{picked}": ", ".join(picked.values()),
            "{changes}": ", ".join(f"{name} = excluded.{name}" for name in kept),
        }
        texts = {}
        for name in ("take", "write"):
            text: str = SQL[name].template
            for part, value in parts.items():
                text = text.replace(part, value)
            texts[name] = text
        return texts

    def _folded(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, int, int, str]]:
        """Stream, version, position and state, as JSON text, of each stream after some events."""
        kinds = {kind.CATEGORY: kind for kind in self.streams}
        for stream, group in groupby(rows, itemgetter(0)):
            events = list(group)
            *_, born, base, base_version = events[0]
            if base is None and not born:
                continue
            kind = kinds[stream.partition("/")[0]]
            try:
                opened = kind(*split_name(stream)[1])
            except (LedgerError, TypeError, ValueError):
                continue  # the name is no key of this kind
            if base is not None:
                opened.restore(load(kind.STATE, base), base_version)
            for _, _, _, topic, schema, data, at, *_ in events:
                if data is not None:  # else bytes of another application
                    opened.replay(read_event(topic, schema, data), at)
            yield stream, events[-1][1], events[0][2], dump(opened.state)


def _parts(tables: str) -> Iterator[str]:
    """The parts between the commas of the first CREATE TABLE."""
    text = re.sub(r"--.*", "", tables)
    depth, start = 0, 0
    for place, char in enumerate(text):
        if char == "(":
            depth += 1
            start = place + 1 if depth == 1 else start
        elif depth == 1 and char in ",)":
            yield text[start:place].strip()
            start = place + 1
        if char == ")":
            depth -= 1
            if not depth:
                return
