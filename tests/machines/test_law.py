"""Random machines that change while objects move through them, everywhere and at once, against an oracle."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ledger import Ledger
from ledger.embedded import Embedded
from ledger.machines import Machine
from ledger.machines.definition_stream import MachineDefined
from tests.contracts.machines import NUMBERS, ledger_of_its_own
from tests.machines.oracle import BEATEN, MOVED, Past, Table
from tests.machines.things import Thing, Wrong, outcome

NAMES = "abcde"
STATE = st.sampled_from(NAMES)
KNOWN = st.sampled_from(NAMES[:4])
SOME = st.lists(STATE, max_size=2)
SAID = st.integers(0, 3)
OBJECTS = ("one", "two", "memory")
OBJECT = st.sampled_from(OBJECTS)
KEPT = st.sampled_from(OBJECTS[:2])
STEP = st.tuples(st.sampled_from(["move", "move", "undone", "other"]), KEPT, STATE, SAID, st.booleans())
LEVELS = st.sampled_from([psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ])
FEW = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MANY = settings(FEW, max_examples=60, stateful_step_count=60)


class Law(RuleBasedStateMachine):
    """A machine and three objects of it, two in a ledger and one in memory, beside an oracle."""

    def __init__(self, log: Ledger, user: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.log, self.user = log, user
        self.table = Table()
        self.things = {name: Thing(f"{name}-{next(NUMBERS)}") for name in OBJECTS}
        self.pasts: dict[str, Past] = {name: [] for name in OBJECTS}

    @initialize(kind=st.sampled_from(["bare", "asked", "called"]))
    def begin(self, kind: str) -> None:
        """With a table alone, or what is asked before each move, or what is called in its transaction too."""

        class Drawn(Machine, name="law.drawn"):
            pass

        self.machine, self.bare, self.called = Drawn, kind == "bare", kind == "called"
        if not self.bare:
            Drawn.guard_transition()(lambda thing, last, said: thing.decided())
            Drawn.after_transition(after_commit=True)(
                lambda thing, move: thing.committed.append(move.to_state)
            )
        if kind == "called":
            Drawn.after_transition()(lambda thing, move: thing.moved())
        self.remembered = Drawn(None, self.things["memory"])
        for name in NAMES[:3]:
            Drawn.state(name, initial=name == "a")
            self.table.add_state(name, name == "a")
        for old, new in ("ab", "bc", "ca"):
            Drawn.transition(old, new)
            self.table.add_edges(old, [new])

    def of(self, name: str) -> Machine:
        """A machine of an object that remembers nothing."""
        return self.remembered if name == "memory" else self.machine(self.log, self.things[name])

    # The definition changes

    @rule(name=KNOWN, initial=st.booleans())
    def add_state(self, name: str, initial: bool) -> None:
        done = outcome(lambda: self.machine.state(name, initial=initial))
        assert done == self.table.add_state(name, initial)

    @rule(old=KNOWN, news=SOME)
    def add_edges(self, old: str, news: list[str]) -> None:
        assert outcome(lambda: self.machine.transition(old, news)) == self.table.add_edges(old, news)

    @rule(old=st.none() | STATE, news=SOME)
    def remove_edges(self, old: str | None, news: list[str]) -> None:
        done = outcome(lambda: self.machine.remove_transitions(old, news))
        assert done == self.table.remove_edges(old, news)

    @rule(name=STATE)
    def remove_state(self, name: str) -> None:
        assert outcome(lambda: self.machine.remove_state(name)) == self.table.remove_state(name)

    @rule(old=st.none() | KNOWN, news=SOME, least=st.integers(1, 3))
    def add_guard(self, old: str | None, news: list[str], least: int) -> None:
        def declare() -> None:
            self.machine.guard_transition(old, news)(lambda thing, last, said: said["n"] >= least)

        assert outcome(declare) == self.table.add_ask(old, news, least)

    # Objects move

    @rule(name=OBJECT, new=STATE, number=SAID)
    def move(self, name: str, new: str, number: int) -> None:
        machine = self.of(name)
        assert outcome(lambda: machine.move(new, n=number)) == self.table.move(self.pasts[name], new, number)
        assert machine.current_state() == self.table.state(self.pasts[name])
        self.agrees(name)

    @rule(name=OBJECT, new=STATE, number=SAID)
    def try_move(self, name: str, new: str, number: int) -> None:
        done = outcome(lambda: self.of(name).try_move(new, n=number))
        wanted = self.table.move(self.pasts[name], new, number)
        assert done == ("not moved" if wanted in ("TransitionFailed", "GuardRefused") else wanted)
        self.agrees(name)

    @rule(name=OBJECT, new=STATE, number=SAID, other=STATE, others=SAID)
    def race(self, name: str, new: str, number: int, other: str, others: int) -> None:
        """Another moves the object after the move was decided and before it is recorded."""
        past, thing = self.pasts[name], self.things[name]
        wanted = self.table.answer(past, new, number)
        if not self.bare and new in self.table.states and self.table.leads(past, new):
            winner = self.table.move(past, other, others)
            thing.meanwhile = lambda: came.append(outcome(lambda: self.of(name).move(other, n=others)))
            came: list[str] = []
            done = outcome(lambda: self.of(name).move(new, n=number))
            assert came == [winner]
            if wanted == MOVED and winner == MOVED:
                wanted = BEATEN
            elif wanted == MOVED:
                self.table.move(past, new, number)
            assert done == wanted
        else:
            assert outcome(lambda: self.of(name).move(new, n=number)) == self.table.move(past, new, number)
        self.agrees(name)

    @rule(name=OBJECT, new=STATE, number=SAID, inner=STATE, inners=SAID, fails=st.booleans())
    def nest(self, name: str, new: str, number: int, inner: str, inners: int, fails: bool) -> None:
        """A callback after the move moves the object on; if it then fails, neither was made."""
        if not self.called:
            return
        past, thing, came = self.pasts[name], self.things[name], list[str]()
        kept = [*past]

        def act() -> None:
            came.append(outcome(lambda: self.of(name).move(inner, n=inners)))
            assert said(self.of(name)) == past
            if fails:
                raise Wrong

        wanted = self.table.answer(past, new, number)
        if wanted == MOVED:
            self.table.move(past, new, number)
            inner_wanted = self.table.move(past, inner, inners)
            thing.then = act
        try:
            done = outcome(lambda: self.of(name).move(new, n=number))
        except Wrong:
            done = "failed"
        assert done == ("failed" if wanted == MOVED and fails else wanted)
        if wanted == MOVED:
            assert came == [inner_wanted]
        if done == "failed":
            past[:] = kept
        self.agrees(name)

    @rule(steps=st.lists(STEP, max_size=6), end=st.sampled_from(["commit", "commit", "fail"]), level=LEVELS)
    def transaction(self, steps: list[Any], end: str, level: psycopg.IsolationLevel) -> None:
        """Moves in a transaction of the user's, some in savepoints that end undone, others in between."""
        self.user.isolation_level = level
        seen: dict[str, Past] = {}  # what the transaction took, and then decided
        taken: dict[str, int] = {}
        strict = level is psycopg.IsolationLevel.REPEATABLE_READ

        def take(name: str) -> Past:
            if name not in seen:
                seen[name] = [*self.pasts[name]]
                taken[name] = len(seen[name])
            return seen[name]

        def block() -> bool:
            with self.log.transaction(self.user) as joined:
                self.user.execute("SELECT count(*) FROM ledger.heads")
                for name in OBJECTS[:2] if strict else ():
                    take(name)
                for kind, name, new, number, lenient in steps:
                    if kind == "other":
                        self.move(name, new, number)
                        continue
                    with self.user.transaction() as savepoint:
                        past = [*take(name)] if kind == "undone" else take(name)
                        self.step(self.machine(joined, self.things[name]), past, new, number, lenient)
                        if kind == "undone":
                            raise psycopg.Rollback(savepoint)
                if end == "fail":
                    raise Wrong
            return True

        try:
            done = outcome(block)
        except Wrong:
            done = "failed"
        decided = [name for name, past in seen.items() if len(past) > taken[name]]
        beaten = any(len(self.pasts[name]) != taken[name] for name in decided)
        assert done == ("failed" if end == "fail" else BEATEN if beaten else MOVED)
        if done == MOVED:
            self.pasts.update({name: seen[name] for name in decided})
        for name in OBJECTS[:2]:
            self.agrees(name)

    def step(self, machine: Machine, past: Past, new: str, number: int, lenient: bool) -> None:
        wanted = self.table.move(past, new, number)
        if lenient and wanted in ("TransitionFailed", "GuardRefused"):
            wanted = "not moved"
        act = machine.try_move if lenient else machine.move
        assert outcome(lambda: act(new, n=number)) == wanted
        assert machine.current_state() == self.table.state(past)
        assert said(machine) == past

    @rule(name=OBJECT, new=STATE, number=SAID)
    def ask(self, name: str, new: str, number: int) -> None:
        machine, past = self.of(name), self.pasts[name]
        assert list(machine.allowed_transitions({"n": number})) == self.table.allowed(past, number)
        if new in self.table.states:
            possible = self.table.answer(past, new, number) == MOVED
            assert machine.can_transition_to(new, {"n": number}) == possible
            last = machine.last_transition_to(new)
            numbers = [nth for nth, (_, to, _) in enumerate(past, 1) if to == new]
            assert (last and last.number) == (numbers[-1] if numbers else None)

    # All that is kept of it agrees

    def agrees(self, name: str) -> None:
        """History, head, events and what was called after the commit."""
        machine, past = self.of(name), self.pasts[name]
        assert said(machine) == past
        assert machine.current_state(force_reload=True) == self.table.state(past)
        assert sorted(self.things[name].committed) == sorted(to for _, to, _ in past if not self.bare)
        if name != "memory" and past:
            head = self.log.head(machine.stream)
            assert head is not None
            assert (head.version, head.state_version, head.status) == (len(past), len(past), past[-1][1])
            events = [(event.topic, json.loads(event.data or "")) for event in self.log.read(machine.stream)]
            assert [topic for topic, _ in events] == ["law.drawn.moved"] * len(past)
            assert [(one["from_state"], one["to_state"], one["metadata"]["n"]) for _, one in events] == past

    def teardown(self) -> None:
        """Each move names a definition that has it in its table."""
        definitions: list[MachineDefined] = []
        if any(self.pasts[name] for name in OBJECTS[:2]):
            definitions = [event.event for event in self.log.read("machine/law.drawn")]  # type: ignore[misc]
        for name in OBJECTS[:2]:
            for move in self.of(name).history():
                ways = [(way["from"], way["to"]) for way in definitions[move.definition - 1].transitions]
                assert (move.from_state, move.to_state) in ways


def said(machine: Machine) -> Past:
    """The history, as the oracle keeps it; its numbers and sort keys are in order."""
    history = machine.history()
    assert [move.sort_key for move in history] == [10 * nth for nth in range(1, len(history) + 1)]
    return [(move.from_state, move.to_state, move.metadata["n"]) for move in history]


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[Callable[[], Law]]:
    """Makes one run of the law after the other, in one ledger."""
    with ledger_of_its_own(postgres, template) as (log, dsn), psycopg.connect(dsn) as user:
        yield lambda: Law(log, user)


def test_random_machines_do_what_the_oracle_does(shared: Callable[[], Law]) -> None:
    run_state_machine_as_test(shared, settings=FEW)


@pytest.mark.slow
def test_random_machines_do_what_the_oracle_does_for_long(shared: Callable[[], Law], minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    while time.monotonic() < until:
        run_state_machine_as_test(shared, settings=MANY)
