"""
The readiness reactions of project state: a fact for each time that all children of a parent are done.

    readiness(log).run()

The log is folded in its order, parent by parent. A set that was not complete before an append and is
complete after it makes one fact, in a stream of the parent's own (`ledger/project_state/readiness.py`), under
a command id of the last event of that append that bears on the set; what was so only in the midst of an
append, nobody ever saw. Two workers that finish the last two children at once do not see each other; here one
of their events comes after the other.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from ledger import BadInput, BadName, Event, Ledger, Recorded, split_name, stream_name
from ledger.project_state.facts import Created, Deleted, Facts, Planned
from ledger.project_state.item import Item, evolve
from ledger.project_state.open_item import OpenItem
from ledger.project_state.readiness import GATES, Gate
from ledger.store.together import recorded_with

from .reactor import Answer, Reactor

NAME: Final = "readiness"
"""The reactor's name, under which its position is kept."""
MOST: Final = 1000
"""Parents whose children are kept in memory; others are read again when something happens to them."""

Key = tuple[str | int, ...]
_MOVING = (Created, Deleted, Planned)
"""What, of a parent and above, can change whether a set is complete."""
_log = logging.getLogger(__name__)


def readiness(ledger: Ledger, **totals: int | None) -> Reactor:
    """The reactor that records readiness. totals: `strips_per_slice=4`, …, for projects without a plan.

    A plan is better: it is in the log. With other totals the same log is answered otherwise.
    Raises BadInput for a total that no gate knows.
    """
    reaction = Readiness(ledger, GATES, totals)
    return Reactor(ledger, NAME, reaction, topics=reaction.topics)


class Readiness:
    """What the reactor answers: see the module. It may be asked again about an event of before."""

    def __init__(
        self, ledger: Ledger, gates: Sequence[Gate], totals: Mapping[str, int | None], *, most: int = MOST
    ) -> None:
        known = sorted({gate.total for gate in gates})
        if wrong := [name for name in totals if name not in known]:
            raise BadInput(f"{wrong[0]!r} is no total that readiness looks at; there are: {', '.join(known)}")
        self.ledger, self.gates, self.totals, self.most = ledger, gates, totals, most
        self.topics = frozenset(topic for gate in gates for topic in _topics(gate))
        self._kinds = {kind.CATEGORY: kind for gate in gates for kind in gate.levels}
        self._families: OrderedDict[tuple[Gate, Key], Family] = OrderedDict()
        self._append: Together | None = None

    def __call__(self, event: Recorded) -> list[Answer]:
        """The facts that this event makes: mostly none; a new plan makes one for each set it completes."""
        item = self._item_of(event.stream)
        if item is None:
            return []
        kind, key = item
        gates = [gate for gate in self.gates if kind in gate.levels[: gate.depth + 1]]
        return [answer for gate in gates for answer in self._answers(gate, key, event)]

    def _item_of(self, stream: str) -> tuple[type[OpenItem[Any]], Key] | None:
        """Level and key of the item with this stream; None where it is no item's."""
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
        for parent, family in self._touched(gate, key, event):
            if family.see(key, fact, event) and self._together(event).ends(gate, parent, event):
                yield from _answer(gate, parent, family, event)

    def _together(self, event: Recorded) -> Together:
        """The append of an event; the last one that was asked for is remembered."""
        if self._append is None or not self._append.has(event):
            events = recorded_with(self.ledger, event)
            self._append = Together(events[0].position, events[-1].position)
            for one in events:
                item = self._item_of(one.stream) if one.topic in self.topics else None
                if item is not None:
                    self._append.note(*item, one.event, one.position)
        return self._append

    # The families in memory

    def _touched(self, gate: Gate, key: Key, event: Recorded) -> list[tuple[Key, Family]]:
        """The sets on which an event of the item `key` bears, as they were just before it."""
        parent = key[: gate.depth]
        if len(parent) == gate.depth:
            family = self._families.get((gate, parent))
            if family is None or family.position >= event.position:  # asked again: it was folded beyond
                family = self._before(gate, parent, event)[parent]
                self._families[gate, parent] = family
                if len(self._families) > self.most:
                    self._families.popitem(last=False)
            self._families.move_to_end((gate, parent))
            return [(parent, family)]
        below = self._before(gate, key, event)
        for kept in [kept for kept in self._families if kept[0] is gate and kept[1][: len(key)] == key]:
            del self._families[kept]
            if kept[1] in below:
                self._families[kept] = below[kept[1]]
        return sorted(below.items())

    def _before(self, gate: Gate, key: Key, event: Recorded) -> dict[Key, Family]:
        """The sets at or below `key` just before an event, and which were complete before its append."""
        families = self._load(gate, key, event.position - 1)
        first = self._together(event).first
        if first < event.position:
            before = self._load(gate, key, first - 1)
            for parent, family in families.items():
                family.append = event.recorded_at
                family.was = parent in before and before[parent].complete
        return families

    def _load(self, gate: Gate, key: Key, upto: int) -> dict[Key, Family]:
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
            parent: Family(gate, self.totals, self._path(gate, parent, states), below, upto)
            for parent, below in children.items()
        }

    def _path(self, gate: Gate, parent: Key, states: Mapping[Key, Item]) -> list[Item]:
        above = [parent[:n] for n in range(1, gate.depth + 1)]
        return [states.get(key) or gate.levels[len(key) - 1].initial(*key) for key in above]


class Family:
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
        self.present: set[int] = set()
        self.good: set[int] = set()
        self.total, self.complete = 0, False
        self.append: datetime | None = None
        self.was = False  # complete before that append
        self._count(children)

    def see(self, key: Key, fact: Event, event: Recorded) -> bool:
        """Fold a fact of the item `key`, of the path or a child; whether its append made the set complete."""
        if self.append != event.recorded_at:
            self.append, self.was = event.recorded_at, self.complete
        kind = self.gate.levels[len(key) - 1]
        if len(key) <= len(self.path):
            self.path[len(key) - 1] = evolve(self.path[len(key) - 1], fact, event.recorded_at)
            self._count(self.children)
        else:
            child_id = int(key[-1])
            before = self.children.get(child_id) or kind.initial(*key)
            self.children[child_id] = evolve(before, fact, event.recorded_at)
            self._count([child_id])
        self.position = event.position
        return self.complete and not self.was

    def _count(self, changed: Iterable[int]) -> None:
        """Look again which of these children show and are good, and whether the set is complete."""
        shown, life = self._shows(), self.path[-1].incarnation
        for child_id in changed:
            child = self.children[child_id]
            present = shown and child.exists and child.under == life
            good = present and self.gate.good(child)
            (self.present.add if present else self.present.discard)(child_id)
            (self.good.add if good else self.good.discard)(child_id)
        self.total = self.gate.expected(self.path[0], self.totals)
        self.complete = self.gate.complete(self.total, self.present, self.good)

    def _shows(self) -> bool:
        """Whether the parent is there to be seen (as Tree.shows)."""
        above = zip(self.path, self.path[1:], strict=False)
        return all(item.exists for item in self.path) and all(
            below.under == item.incarnation for item, below in above
        )


class Together:
    """One append: where it begins and ends, and which of its events is the last that bears on a set."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self._last = first, last
        self._path: dict[tuple[type[OpenItem[Any]], Key], int] = {}
        self._below: dict[tuple[type[OpenItem[Any]], Key], int] = {}

    def note(self, kind: type[OpenItem[Any]], key: Key, fact: object, position: int) -> None:
        """One of its events; they come in order."""
        if isinstance(fact, Event):
            self._below[kind, key[:-1]] = position
            if isinstance(fact, _MOVING):
                self._path[kind, key] = position

    def has(self, event: Recorded) -> bool:
        """Whether the event is of this append."""
        return self.first <= event.position <= self._last

    def ends(self, gate: Gate, parent: Key, event: Recorded) -> bool:
        """Whether nothing that bears on the set of this parent comes after the event."""
        above = [self._path.get((kind, parent[:n]), 0) for n, kind in enumerate(gate.levels[: gate.depth], 1)]
        return event.position >= max(self._below.get((gate.levels[gate.depth], parent), 0), *above)


def _answer(gate: Gate, parent: Key, family: Family, event: Recorded) -> Iterator[Answer]:
    try:
        stream = gate.readiness.name_of(*parent)
    except BadName as wrong:  # a project whose name leaves no room for one more word
        _log.warning("%s is complete, but nothing can be recorded: %s", parent, wrong)
        return
    fact = gate.readiness.READY(
        total=family.total, present=len(family.present), position=event.position, by=event.stream
    )
    yield Answer(stream, [fact], key="/".join(map(str, (gate.readiness.CATEGORY, *parent[1:]))))


def _topics(gate: Gate) -> Iterator[str]:
    """What bears on a gate: all facts of the children, and births, deaths and plans above them."""
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
    """The topic of a fact; none where its level does not have that fact."""
    if "topic" in vars(fact):
        yield fact.topic
