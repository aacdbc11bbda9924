"""
Eggs on trays in a farm, with lives and deaths; and batches of jobs, without: what the laws of progress count.

A naive fold says what is right. It knows nothing of SQL: it keeps every unit, looks at all of them after each
event, and notes where what it sees is another than before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from ledger import Body, Ledger, Recorded
from ledger.domain.barrier import Barrier, Outcome
from ledger.domain.canonical_json import body
from ledger.domain.sets import Total, UnitSet
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from tests.announcements import announce_sets

MOVES = {
    "egg.laid": TopicStatus("cold"),
    "egg.warmed": TopicStatus("warm"),
    "egg.hatched": TopicStatus("hatched"),
    "egg.lost": TopicStatus("lost"),
    "egg.eaten": TopicStatus("eaten"),
    "egg.found": TopicStatus(field="how"),
    "batch.became": TopicStatus(field="how"),
}
EGGS = UnitSet(
    "egg", "tray", done=frozenset({"hatched", "flown"}), failed=frozenset({"lost"}),
    running=frozenset({"warm"}), gone=frozenset({"eaten"}), life="tray.built", death="tray.broken",
    born="egg.laid",
    total=Total("farm.planned", ("plan", "eggs"), depth=1, reset="farm.founded", otherwise=2),
)  # fmt: skip
BATCHES = UnitSet(
    "batch", "job", done=frozenset({"hatched"}), failed=frozenset({"lost"}), gone=frozenset({"eaten"}),
    total=Total("job.split", ("batches",)),
)  # fmt: skip
STATES = {"warm": "running", "hatched": "done", "flown": "done", "lost": "failed"}

Fact = tuple[str, str, Any]
"""Stream, topic, body."""


def declare(log: Ledger) -> None:
    """Tell a ledger of eggs and batches, and of nothing else."""
    announce_statuses(log, MOVES)
    announce_sets(log, [EGGS, BATCHES])


def append(log: Ledger, facts: Iterable[Fact]) -> None:
    """Record facts one after the other."""
    for stream, topic, data in facts:
        log.append(stream, Body(topic, 1, body(data)))


HOW = st.sampled_from(["cold", "warm", "hatched", "flown", "lost", "eaten", "odd", None, 7])
TRAYS = st.sampled_from(["1/a", "1/b", "1-/a", "1/a0"])
JOBS = st.sampled_from(["x", "x-", "y"])


def named(history: Iterable[Fact], name: str) -> list[Fact]:
    """The same history, of farms and jobs whose names begin with `name`."""
    return [(stream.replace("@", name), topic, data) for stream, topic, data in history]


def facts() -> st.SearchStrategy[list[Fact]]:
    """Histories of farms and jobs whose names begin with @; sense is not asked for."""
    name = "@"
    eggs = st.tuples(TRAYS, st.integers(0, 2)).map(lambda at: f"egg/{name}{at[0]}/{at[1]}")
    trays, farms = (
        TRAYS.map(lambda at: f"tray/{name}{at}"),
        st.sampled_from([f"farm/{name}1", f"farm/{name}1-"]),
    )
    jobs = JOBS.map(lambda at: f"job/{name}{at}")
    batches = st.tuples(JOBS, st.integers(0, 2)).map(lambda at: f"batch/{name}{at[0]}/{at[1]}")
    under = st.sampled_from([{"under": n} for n in (0, 1, 1, 1, 2, 2, 3, None, "1", 1.5, 2**70)] + [{}])
    simple = st.sampled_from(
        ["egg.warmed", "egg.hatched", "egg.hatched", "egg.lost", "egg.eaten", "egg.seen"]
    )
    numbers = st.sampled_from([0, 1, 3, 5, None, [1, 2], "3", 2.5, -1])
    plans = st.one_of(numbers.map(lambda n: {"plan": {"eggs": n}}), st.sampled_from([{}, {"plan": 3}]))
    return st.lists(
        st.one_of(
            st.tuples(eggs, st.just("egg.laid"), under),
            st.tuples(eggs, simple, st.just({})),
            st.tuples(eggs, st.just("egg.found"), HOW.map(lambda how: {"how": how})),
            st.tuples(trays, st.sampled_from(["tray.built", "tray.built", "tray.broken"]), st.just({})),
            st.tuples(farms, st.just("farm.planned"), plans),
            st.tuples(farms, st.just("farm.founded"), st.just({})),
            st.tuples(batches, st.just("batch.became"), HOW.map(lambda how: {"how": how})),
            st.tuples(jobs, st.just("job.split"), numbers.map(lambda n: {"batches": n})),
            st.tuples(batches, st.just("tray.built"), st.just({})),  # of no meaning there
        ),
        max_size=30,
    )


@dataclass
class Farmer:
    """The naive fold; each set is a barrier. `seen`: what is true of each parent now, since which event."""

    how: dict[str, str] = field(default_factory=dict)
    under: dict[str, int] = field(default_factory=dict)
    births: dict[str, int] = field(default_factory=dict)
    alive: dict[str, bool] = field(default_factory=dict)
    planned: dict[str, int | None] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    seen: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def fold(self, event: Recorded, data: Any) -> None:
        """One more event, and a look at all parents."""
        category, stream = event.stream.split("/")[0], event.stream
        if category in ("egg", "batch"):
            how = MOVES[event.topic].status or data.get("how") if event.topic in MOVES else None
            if how is not None:
                self.how[stream] = str(how)
            if event.topic == "egg.laid":
                self.under[stream] = data["under"] if type(data.get("under")) is int else 0
        if event.topic in ("tray.built", "tray.broken") and category == "tray":
            self.alive[stream] = event.topic == "tray.built"
            self.births[stream] = self.births.get(stream, 0) + self.alive[stream]
        if event.topic == "farm.founded":
            self.planned[stream] = None
        if event.topic == "farm.planned" and "eggs" in (
            plan := data.get("plan") or {} if type(data.get("plan")) is dict else {}
        ):
            self.planned[stream] = number(plan["eggs"])
        if event.topic == "job.split":
            self.planned[stream] = number(data["batches"])
        for parent in (
            {parent_of(unit) for unit in self.how}
            | set(self.births)
            | {s for s in self.planned if s[0] == "j"}
        ):
            self._look(parent, event.position)

    def _look(self, parent: str, position: int) -> None:
        tray = parent.startswith("tray/")
        life = (self.births.get(parent, 0), self.alive.get(parent)) if tray else None
        units = {unit: how for unit, how in self.how.items() if self._counts(unit, parent)}
        total = self.planned.get("/".join(["farm", parent.split("/")[1]]) if tray else parent)
        barrier, running = Barrier[str](total), 0
        for unit, how in units.items():
            kind = STATES.get(how, "") if tray or (how != "warm" and how != "flown") else ""
            running += kind == "running"
            barrier.note(unit, Outcome(kind) if kind in ("done", "failed") else Outcome.WAITING)
        if units or (not tray and total is not None):
            self.ever.add(parent)
        if parent in self.ever if not tray else parent in self.births:
            over = (barrier.count(Outcome.DONE), barrier.count(Outcome.FAILED))
            now = (life, len(barrier), running, *over, total)
            if self.seen.get(parent, (None, 0))[0] != now:
                self.seen[parent] = (now, position)

    def _counts(self, unit: str, parent: str) -> bool:
        if parent_of(unit) != parent or self.how[unit] == "eaten":
            return False
        lives = parent.startswith("tray/")
        return not lives or (self.alive.get(parent, False) and self.under.get(unit) == self.births[parent])

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """By parent: present, running, done, failed, total, position."""
        return {
            parent: (*counts, 2 if total is None and parent.startswith("tray/") else total, position)
            for parent, ((_, *counts, total), position) in self.seen.items()
        }


def parent_of(unit: str) -> str:
    """The parent of a unit, by name."""
    category, *key = unit.split("/")
    return "/".join([{"egg": "tray", "batch": "job"}[category], *key[:-1]])


def number(said: Any) -> int | None:
    """What a plan says."""
    if isinstance(said, list):
        return len(said)
    return said if type(said) is int and said >= 0 else None


def appended(log: Ledger, history: Sequence[Fact]) -> Farmer:
    """Record a history, and fold it by hand."""
    start, farmer = log.bound(), Farmer()
    append(log, history)
    for event in log.log(start, log.bound()):
        farmer.fold(event, json.loads(event.data or "{}"))
    return farmer
