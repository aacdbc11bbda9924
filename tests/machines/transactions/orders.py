"""An order, whose callbacks are what its object says, and the user's own table of things on a shelf."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg

from ledger import (
    Ledger,
)
from ledger.machines import From, Machine, State, Transition, after, after_commit, before
from tests.contracts.machines import NUMBERS
from tests.machines.payments import Payment

Connection = psycopg.Connection[Any]
Connect = Callable[..., Connection]


class Wrong(Exception):
    """What a callback raises."""


class Order(Machine, name="transactions.order"):
    """placed → packed → sent → placed; what is to be called lies in the object's `calls`."""

    PLACED = State("placed", initial=True)
    PACKED = State("packed")
    SENT = State("sent")
    table = (From(PLACED).To(PACKED), From(PACKED).To(SENT), From(SENT).To(PLACED))

    @before()
    def run_before(order: Thing, move: Transition) -> None:
        order.called("before", move)

    @after()
    def run_after(order: Thing, move: Transition) -> None:
        order.called("after", move)

    @after_commit()
    def run_after_commit(order: Thing, move: Transition) -> None:
        order.called("after_commit", move)


class Thing:
    """A row of the user's own, which notes what is called on it."""

    def __init__(self) -> None:
        self.id = f"thing-{next(NUMBERS)}"
        self.noted: list[str] = []
        self.acts: dict[str, Callable[[Transition], object]] = {}

    def called(self, when: str, move: Transition) -> None:
        self.noted.append(f"{when} {move.to_state}")
        if when in self.acts:
            self.acts[when](move)


def put(connection: Connection, item: str) -> None:
    connection.execute("INSERT INTO public.shelf VALUES (%s)", [item])


def there(log: Ledger, item: str) -> bool:
    with log.reader() as connection:
        return connection.execute("SELECT 1 FROM public.shelf WHERE item = %s", [item]).fetchone() is not None


def states(log: Ledger, key: Any, machine: type[Machine] = Payment) -> list[str]:
    """The states that an object has gone through, as everybody sees them."""
    return [move.to_state for move in machine(log, key).history()]


def in_thread(act: Callable[[], object]) -> None:
    """Do it as somebody else would: another thread is in no callback."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
