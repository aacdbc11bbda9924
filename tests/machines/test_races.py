"""Many who move one object at once: of those who decided on the same, one wins; nothing is lost or twice."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from typing import Any

import psycopg
import pytest

import ledger
from ledger import Ledger, TransitionConflict, retry_conflicts
from ledger.embedded import Embedded
from ledger.machines import From, Machine, State
from tests.contracts.machines import ledger_of_its_own
from tests.faults.conftest import ROOT, eventually
from tests.fork_server import python
from tests.machines.payments import Payment
from tests.machines.racer import MACHINES, Plain, Raced, Turn, at_once, outcome, turn

_numbers = count(1)
each_machine = pytest.mark.parametrize("name", sorted(MACHINES))


class Racer:
    """A process that takes orders."""

    def __init__(self, dsn: str, nth: int) -> None:
        command = [*python(), "-m", "tests.machines.racer", dsn, str(nth)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    with ledger_of_its_own(postgres, template) as made:
        yield made


@pytest.fixture
def log(shared: tuple[Ledger, str]) -> Ledger:
    return shared[0]


@pytest.fixture
def dsn(shared: tuple[Ledger, str]) -> str:
    return shared[1]


@pytest.fixture(scope="module")
def racers(shared: tuple[Ledger, str]) -> Iterator[list[Racer]]:
    """Two processes, ready."""
    made = [Racer(shared[1], nth) for nth in range(2)]
    try:
        assert [racer.answer() for racer in made] == ["ready"] * 2
        yield made
    finally:
        for racer in made:
            racer.end()


@pytest.fixture
def key() -> str:
    return f"R{next(_numbers)}"


def numbers(log: Ledger, machine: type[Machine], key: str) -> list[int]:
    """The numbers of the moves that are recorded, checked to be a path through the table."""
    history = machine(log, Raced(key)).history()
    for one, following in pairwise(history):
        assert following.from_state == one.to_state
        assert machine.definition.edge(one.to_state, following.to_state)
    return [move.number for move in history]


# The first move of all


@pytest.mark.parametrize("before", [0, 1, 2])
def test_two_processes_that_decided_on_the_same_are_a_winner_and_a_conflict(
    log: Ledger, racers: list[Racer], key: str, before: int
) -> None:
    """Spec S2-13, S2-14: the beaten one hears of a conflict, never of a move that the table forbids."""
    for nth in range(before):
        Turn(log, Raced(key)).move(["odd", "even"][nth % 2])
    for racer in racers:
        racer.order(machine="turn", key=key, to=["odd", "even"][before % 2], gate=True)
        assert racer.answer() == "decided"
    for racer in racers:
        racer.order()
    assert sorted(racer.answer() for racer in racers) == [
        ["TransitionConflict", None],
        ["moved", before + 1],
    ]
    last = Turn(log, Raced(key)).last_transition()
    assert last is not None
    assert last.sort_key == 10 * (before + 1)


@each_machine
def test_two_processes_that_run_freely_leave_one_first_move(
    log: Ledger, racers: list[Racer], name: str
) -> None:
    """Spec S2-14: who comes when the winner is through is refused from the winner's state, not from none."""
    for _ in range(25):
        key = f"R{next(_numbers)}"
        for racer in racers:
            racer.order(machine=name, key=key, to="odd")
        answers = Counter(tuple(racer.answer()) for racer in racers)
        assert answers.pop(("moved", 1)) == 1
        assert set(answers) <= {("TransitionConflict", None), ("TransitionFailed", "odd")}
        assert numbers(log, MACHINES[name], key) == [1]


# Many at once


@each_machine
@pytest.mark.parametrize("threads", [16, 64])
def test_of_many_at_once_one_makes_the_move(log: Ledger, key: str, name: str, threads: int) -> None:
    machine = MACHINES[name]
    answers = Counter(at_once(threads, lambda: outcome(lambda: machine(log, Raced(key)).move("odd"))))
    assert answers.pop(("moved", 1)) == 1
    assert set(answers) <= {("TransitionConflict", None), ("TransitionFailed", "odd")}
    assert numbers(log, machine, key) == [1]


@pytest.mark.parametrize(("name", "each"), [("plain", 16), ("turn", 8)])
def test_moves_at_once_all_get_through_when_they_are_retried(
    log: Ledger, racers: list[Racer], key: str, name: str, each: int
) -> None:
    """64 and 32 threads of three processes: one winner a version, nothing lost, no deadlock."""
    for racer in racers:
        racer.order(machine=name, key=key, threads=each)
    won = at_once(2 * each, lambda: turn(log, MACHINES[name], key))
    for racer in racers:
        won += racer.answer()
    assert sorted(won) == list(range(1, 4 * each + 1))
    assert numbers(log, MACHINES[name], key) == sorted(won)


def test_who_is_retried_after_the_winner_is_refused_rightly(log: Ledger, key: str) -> None:
    """Spec S2-13, S2-46: the retry looks at the table again, from where the winner left the object."""

    def once() -> tuple[str, Any]:
        return outcome(lambda: retry_conflicts(lambda: Plain(log, Raced(key)).move("odd"), attempts=101))

    answers = Counter(at_once(16, once))
    assert answers == {("moved", 1): 1, ("TransitionFailed", "odd"): 15}


def test_moves_in_transactions_that_cross_each_other_do_not_lock_for_ever(
    log: Ledger, dsn: str, key: str
) -> None:
    """Half of them move A and then B, half B and then A, with a callback before each."""
    nth = count()

    def whole() -> list[int]:
        order = ["A", "B"] if next(nth) % 2 else ["B", "A"]
        with psycopg.connect(dsn) as connection:

            def once() -> list[int]:
                with log.transaction(connection) as joined:
                    machines = [Turn(joined, Raced(f"{key}-{name}")) for name in order]
                    return [one.move(one.allowed_transitions()[0]).number for one in machines]

            return retry_conflicts(once, attempts=1001, pause=0.001, max_pause=0.02)

    won = at_once(8, whole)
    assert sorted(won) == [[n, n] for n in range(1, 9)]
    for name in "AB":
        assert numbers(log, Turn, f"{key}-{name}") == list(range(1, 9))


# Who comes while another is at it


def waiting(connection: psycopg.Connection[Any]) -> Callable[[], bool]:
    """Whether somebody in this database waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return lambda: connection.execute(query).fetchall()[0][0] == 1


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_who_moves_while_another_transaction_holds_the_move_waits_for_its_end(
    log: Ledger, connect: Callable[..., psycopg.Connection[Any]], key: str, begun: bool, commits: bool
) -> None:
    """Spec S2-11, S2-12: after a rollback as if nothing had been; after a commit, beaten."""
    user, watcher = connect(), connect(autocommit=True)
    if begun:
        Payment(log, key).move("submitted", submission_id="S1")
    with log.join(user) as joined:
        Payment(joined, key).move("cancelled")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: Payment(log, key).move("cancelled", by="the other"))
        eventually(waiting(watcher))
        assert not other.done()
        if commits:
            user.commit()
            with pytest.raises(TransitionConflict):
                other.result(30)
        else:
            user.rollback()
            assert other.result(30).metadata == {"by": "the other"}
    history = Payment(log, key).history()
    assert [move.to_state for move in history] == ["submitted"] * begun + ["cancelled"]
    assert history[-1].metadata == ({} if commits else {"by": "the other"})


def test_a_block_that_only_decided_holds_nobody_up(
    log: Ledger, connect: Callable[..., psycopg.Connection[Any]], key: str
) -> None:
    """What is decided in a join takes its locks at the end of the block."""

    def block() -> None:
        with log.transaction(connect()) as joined:
            Payment(joined, key).move("cancelled")
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(lambda: Payment(log, key).move("submitted", submission_id="S1"))
                assert other.result(30).number == 1

    with pytest.raises(TransitionConflict):
        block()
    assert Payment(log, key).current_state() == "submitted"


# What is recorded once


def test_the_initial_transition_is_recorded_once_by_many(log: Ledger, key: str) -> None:
    """Spec S2-31: they all want that it is there, so none is beaten."""
    made = at_once(16, lambda: Plain(log, Raced(key), initial_transition=True).current_state())
    assert (made, numbers(log, Plain, key)) == (["idle"] * 16, [1])


def test_the_definition_is_recorded_once_by_many(log: Ledger, dsn: str) -> None:
    """Each ledger object stands for a process here: all of them define the machine at their first move."""

    class Fresh(Machine, name="races.fresh"):
        A = State("a", initial=True)
        B = State("b")
        table = (From(A).To(B),)

    opened = [ledger.connect(dsn) for _ in range(8)]
    places, lock = iter(opened), threading.Lock()

    def first() -> int:
        with lock:
            place = next(places)
        return Fresh(place, f"F{next(_numbers)}").move("b").definition

    try:
        assert at_once(8, first) == [1] * 8
    finally:
        for one in opened:
            one.close()
    assert len(log.read("machine/races.fresh")) == 1
