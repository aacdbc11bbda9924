"""
A process that moves objects of one machine as its standard input says, for tests of races.

Each line in is the arguments of one order as JSON, each line out what came of it; `decided` in between, where
the order wants to be told once it has decided, and the move is recorded when the next line comes in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import ledger
from ledger import Ledger, Refused, retry_conflicts
from ledger.machines import From, Machine, State, Transition, before


class Raced:
    """An object that several move at once. decided: called between its decision and its record."""

    def __init__(self, key: str, decided: Callable[[], object] = lambda: None) -> None:
        self.id, self.decided = key, decided


class Turn(Machine, name="races.turn"):
    """idle → even ⇄ odd: there is always one way to go on, and never two."""

    IDLE = State("idle", initial=True)
    EVEN = State("even")
    ODD = State("odd")
    table = (From(IDLE).To(ODD), From(ODD).To(EVEN), From(EVEN).To(ODD))

    @before()
    def wait(raced: Raced, move: Transition) -> None:
        raced.decided()


class Plain(Turn, name="races.plain"):
    """The same without anything to be called: an append by itself."""

    @classmethod
    def clear(cls) -> None:
        cls._define(cls.definition.without_callbacks("wait"))


Plain.clear()
MACHINES: dict[str, type[Machine]] = {"turn": Turn, "plain": Plain}


def outcome(act: Callable[[], Transition]) -> tuple[str, Any]:
    """The number of the move that was made; or the error, and the state that it speaks of."""
    try:
        return "moved", act().number
    except Refused as error:
        return type(error).__name__, getattr(error, "from_state", None)


def turn(log: Ledger, machine: type[Machine], key: str, most: int = 1000) -> int:
    """One move to whichever state is next, tried again until it got through: the number that it has."""

    def once() -> Transition:
        done = None
        while done is None:  # others may move it between the question and the move: then it is refused
            moved = machine(log, Raced(key))
            done = moved.transition_to(*moved.allowed_transitions()).attempt()
        return done

    return retry_conflicts(once, attempts=most + 1, pause=0.001, max_pause=0.02).number


def at_once(threads: int, act: Callable[[], Any]) -> list[Any]:
    """What comes of an act that so many threads begin at one moment."""
    barrier = Barrier(threads)

    def begin() -> Any:
        barrier.wait(60)
        return act()

    with ThreadPoolExecutor(threads) as pool:
        return [one.result(60) for one in [pool.submit(begin) for _ in range(threads)]]


def tell(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def decided() -> None:
    tell("decided")
    sys.stdin.readline()


def do(log: Ledger, order: dict[str, Any]) -> Any:
    machine, key = MACHINES[order["machine"]], order["key"]
    if threads := order.get("threads"):
        return at_once(threads, lambda: turn(log, machine, key))
    raced = Raced(key, decided) if order.get("gate") else Raced(key)
    return outcome(lambda: machine(log, raced).move(order["to"]))


def main() -> None:
    with ledger.connect(sys.argv[1], actor=f"racer {sys.argv[2]}") as log:
        tell("ready")
        while line := sys.stdin.readline():
            tell(do(log, json.loads(line)))


if __name__ == "__main__":
    main()
