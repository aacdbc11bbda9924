"""
The readiness reactions of project state: a fact for each time that all children of a parent are done.

    readiness(log).run()

The reactor folds the log in order, parent by parent. If a set was not complete before an append and is
complete after it, the reactor records one fact in a stream of the parent's own
(`ledger/pipelines/readiness.py`). Its command id comes from the last event of that append that affects the
set; what held only inside an append was never visible. Two workers that finish the last two children at once
do not see each other; here one of their events comes after the other.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final

from ledger import (
    BadInput,
    BadName,
    Event,
    Ledger,
    Recorded,
    UnreadableEvent,
    split_name,
    stream_name,
)
from ledger.domain.barrier import Barrier, Outcome
from ledger.pipelines import LSM, OCT, Pipeline
from ledger.pipelines.facts import Created, Deleted, Facts, Planned
from ledger.pipelines.item import Item, OpenItem, evolve
from ledger.pipelines.readiness import Gate

from .reactor import Answer, Reactor

NAME: Final = "readiness"
"""The reactor's name, under which its position is kept."""
MOST: Final = 1000
"""Parents whose children are kept in memory; others are read again when something happens to them."""

Key = tuple[str | int, ...]
_MOVING = (Created, Deleted, Planned)
"""What can change about a parent, or above it, whether a set is complete."""
_log = logging.getLogger(__name__)


def readiness(ledger: Ledger, *pipelines: Pipeline, **totals: int | None) -> Reactor:
    """The reactor that records readiness of these pipelines, by default of LSM and PS-OCT.

    It is named `readiness`, and for pipelines of your own `readiness.scenes`: each keeps its own position, so
    that a process that does not import a pipeline does not skip its events. totals: `strips_per_slice=4`,
    …, for projects without a plan. A plan is better: it is in the log. Other totals give
    other answers to the same log. Raises BadInput for a total that no gate has.
    """
    name = ".".join((NAME, *sorted(pipeline.name for pipeline in pipelines)))
    gates = [gate for pipeline in pipelines or (LSM, OCT) for gate in pipeline.gates]
    reaction = Readiness(ledger, gates, totals)
    return Reactor(ledger, name, reaction, topics=reaction.topics)


class Readiness:
    """The reaction (see the module). It may be called again with an earlier event."""

    def __init__(
        self, ledger: Ledger, gates: Sequence[Gate], totals: Mapping[str, int | None], *, most: int = MOST
    ) -> None:
        known = sorted({gate.total for gate in gates})
        if wrong := [name for name in totals if name not in known]:
            raise BadInput(f"{wrong[0]!r} is no total that readiness looks at; there are: {', '.join(known)}")
        self.ledger, self.gates, self.totals, self.most = ledger, gates, totals, most
        self.topics = frozenset(topic for gate in gates for topic in _topics(gate))
        self._kinds = {kind.CATEGORY: kind for gate in gates for kind in gate.levels}
        self._sets: OrderedDict[tuple[Gate, Key], Children] = OrderedDict()
        self._append: WholeAppend | None = None

    def __call__(self, event: Recorded) -> list[Answer]:
        """The facts that follow from an event: usually none; a new plan gives one a set it completes."""
        item = self._item_of(event.stream)
        if item is None:
            return []
        kind, key = item
        gates = [gate for gate in self.gates if kind in gate.levels[: gate.depth + 1]]
        return [answer for gate in gates for answer in self._answers(gate, key, event)]

    def forget(self) -> None:
        """Forget the sets in memory: the next events do not follow on the previous ones."""
        self._sets.clear()
        self._append = None

    def _item_of(self, stream: str) -> tuple[type[OpenItem[Any]], Key] | None:
        """Level and key of the item with this stream; None if it is not an item's stream."""
        category, parts = split_name(stream)
        kind = self._kinds.get(category)
        try:
            key = kind.key_of(parts) if kind and parts else ()
        except BadInput:
            return None
        return (kind, key) if kind and key and kind.name_of(*key) == stream else None

    def _answers(self, gate: Gate, key: Key, event: Recorded) -> Iterator[Answer]:
        fact = event.event
        if not isinstance(fact, Event) or (len(key) <= gate.depth and not isinstance(fact, _MOVING)):
            return
        for parent, children in self._touched(gate, key, event):
            if children.see(key, fact, event) and self._append_of(event).ends(gate, parent, event):
                yield from _answer(gate, parent, children, event)

    def _append_of(self, event: Recorded) -> WholeAppend:
        """The append of an event; the last one is cached."""
        if self._append is None or not self._append.has(event):
            events = self.ledger.recorded_with(event)
            self._append = WholeAppend(events[0].position, events[-1].position)
            for one in events:
                item = self._item_of(one.stream) if one.topic in self.topics else None
                if item is not None:
                    with suppress(UnreadableEvent):  # it parks its own stream, and affects no set
                        self._append.note(*item, one.event, one.position)
        return self._append

    # The sets in memory

    def _touched(self, gate: Gate, key: Key, event: Recorded) -> list[tuple[Key, Children]]:
        """The sets that an event of the item `key` affects, as they were just before it."""
        parent = key[: gate.depth]
        if len(parent) == gate.depth:
            children = self._sets.get((gate, parent))
            if children is None or children.position >= event.position:  # called again
                children = self._before(gate, parent, event)[parent]
                self._sets[gate, parent] = children
                if len(self._sets) > self.most:
                    self._sets.popitem(last=False)
            self._sets.move_to_end((gate, parent))
            return [(parent, children)]
        below = self._before(gate, key, event)
        for kept in [kept for kept in self._sets if kept[0] is gate and kept[1][: len(key)] == key]:
            del self._sets[kept]
            if kept[1] in below:
                self._sets[kept] = below[kept[1]]
        return sorted(below.items())

    def _before(self, gate: Gate, key: Key, event: Recorded) -> dict[Key, Children]:
        """The sets at or below `key` just before an event, and which were complete before its append."""
        sets = self._load(gate, key, event.position - 1)
        first = self._append_of(event).first
        if first < event.position:
            before = self._load(gate, key, first - 1)
            for parent, children in sets.items():
                was = parent in before and before[parent].barrier.complete
                children.barrier.begin(event.recorded_at, was_complete=was)
        return sets

    def _load(self, gate: Gate, key: Key, upto: int) -> dict[Key, Children]:
        """The sets of the parent `key`, or of all parents below it, as of a position, in one query."""
        kinds, depth = gate.levels[: gate.depth + 1], gate.depth
        wanted = [(kind.name_of(*key[:n]), kind) for n, kind in enumerate(kinds[: len(key)], 1)]
        wanted += [(stream_name(kind.CATEGORY, *key) + "/", kind) for kind in kinds[len(key) :]]
        states: dict[Key, Item] = {
            item.key: item.state for item in self.ledger.load_below(*wanted, upto=upto)
        }
        children: dict[Key, dict[int, Item]] = {key: {}} if len(key) == depth else {}
        for found, state in states.items():
            if len(found) >= depth:
                below = children.setdefault(found[:depth], {})
                below.update({int(found[-1]): state} if len(found) > depth else {})
        return {
            parent: Children(gate, self.totals, self._path(gate, parent, states), below, upto)
            for parent, below in children.items()
        }

    def _path(self, gate: Gate, parent: Key, states: Mapping[Key, Item]) -> list[Item]:
        above = [parent[:n] for n in range(1, gate.depth + 1)]
        return [states.get(key) or gate.levels[len(key) - 1].initial(*key) for key in above]


class Children:
    """One parent, what is above it, and its children, folded up to a position of the log."""

    def __init__(
        self,
        gate: Gate,
        totals: Mapping[str, int | None],
        path: list[Item],
        children: dict[int, Item],
        position: int,
    ) -> None:
        self.gate, self.totals, self.path = gate, totals, path
        self.children, self.position = children, position
        self.barrier = Barrier[int](numbered=gate.numbered)
        self._note(children)

    def see(self, key: Key, fact: Event, event: Recorded) -> bool:
        """Fold a fact of the item `key`, on the path or a child; whether its append completed the set."""
        self.barrier.begin(event.recorded_at)
        kind = self.gate.levels[len(key) - 1]
        if len(key) <= len(self.path):
            self.path[len(key) - 1] = evolve(self.path[len(key) - 1], fact, event.recorded_at)
            self._note(self.children)
        else:
            child_id = int(key[-1])
            before = self.children.get(child_id) or kind.initial(*key)
            self.children[child_id] = evolve(before, fact, event.recorded_at)
            self._note([child_id])
        self.position = event.position
        return self.barrier.closes

    def _note(self, changed: Iterable[int]) -> None:
        """Record for these children whether they are done, awaited, or not in the set."""
        shown, life = self._shows(), self.path[-1].incarnation
        for child_id in changed:
            child = self.children[child_id]
            present = shown and child.exists and child.under == life
            outcome = Outcome.DONE if self.gate.good(child) else Outcome.WAITING
            self.barrier.note(child_id, outcome if present else None)
        self.barrier.expected = self.gate.expected(self.path[0], self.totals) or None

    def _shows(self) -> bool:
        """Whether the parent is visible (as Tree.shows)."""
        above = zip(self.path, self.path[1:], strict=False)
        return all(item.exists for item in self.path) and all(
            below.under == item.incarnation for item, below in above
        )


class WholeAppend:
    """One append: where it begins and ends, and which of its events is the last that affects a set."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self._last = first, last
        self._path: dict[tuple[type[OpenItem[Any]], Key], int] = {}
        self._below: dict[tuple[type[OpenItem[Any]], Key], int] = {}

    def note(self, kind: type[OpenItem[Any]], key: Key, fact: object, position: int) -> None:
        """Add one of its events; they come in order."""
        if isinstance(fact, Event):
            self._below[kind, key[:-1]] = position
            if isinstance(fact, _MOVING):
                self._path[kind, key] = position

    def has(self, event: Recorded) -> bool:
        """Whether the event belongs to this append."""
        return self.first <= event.position <= self._last

    def ends(self, gate: Gate, parent: Key, event: Recorded) -> bool:
        """Whether no later event of the append affects the set of this parent."""
        above = [self._path.get((kind, parent[:n]), 0) for n, kind in enumerate(gate.levels[: gate.depth], 1)]
        return event.position >= max(self._below.get((gate.levels[gate.depth], parent), 0), *above)


def _answer(gate: Gate, parent: Key, children: Children, event: Recorded) -> Iterator[Answer]:
    try:
        stream = gate.readiness.name_of(*parent)
    except BadName as wrong:  # a project whose name leaves no room for one more word
        _log.warning("%s is complete, but nothing can be recorded: %s", parent, wrong)
        return
    fact = gate.readiness.READY(
        total=children.barrier.expected or 0,
        present=len(children.barrier),
        position=event.position,
        by=event.stream,
    )
    yield Answer(stream, [fact], key="/".join(map(str, (gate.readiness.CATEGORY, *parent[1:]))))


def _topics(gate: Gate) -> Iterator[str]:
    """The topics that affect a gate: all facts of the children; births, deaths and plans above them."""
    *above, child = gate.levels[: gate.depth + 1]
    yield from _topics_of(child.FACTS)
    for kind in above:
        for fact in (kind.FACTS.created, kind.FACTS.deleted, kind.FACTS.planned):
            yield from _named(fact)


def _topics_of(facts: Facts) -> Iterator[str]:
    for field in fields(facts):
        value = getattr(facts, field.name)
        for fact in value.values() if isinstance(value, Mapping) else [value]:
            yield from _named(fact)


def _named(fact: type[Event]) -> Iterator[str]:
    """The topic of a fact; none if its level does not have that fact."""
    if "topic" in vars(fact):
        yield fact.topic
