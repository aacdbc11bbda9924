"""A small reactor for tests: it mourns the lamps that broke."""

from __future__ import annotations

from typing import Any

from consumers import Answer, Reactor
from ledger import Ledger, Recorded
from ledger.log.readers import Positions
from tests.lamp import LampBroke, LampMade, LampRead


def mourn(event: Recorded) -> list[Answer]:
    """For each lamp that broke, two events in one stream and one in another."""
    name = event.stream.partition("/")[2]
    return [
        Answer("mourning", [LampRead(value=name), LampRead(value=event.position)]),
        Answer(f"grave/{name}", [LampMade()], key="grave"),
    ]


def mourning(log: Ledger, **options: Any) -> Reactor:
    return Reactor(log, "mourner", mourn, topics={"lamp.broke"}, **options)


def values(log: Ledger, stream: str = "mourning") -> list[Any]:
    return [event.event.value for event in log.read(stream)]  # type: ignore[union-attr]


def broken(log: Ledger, *names: str) -> list[int]:
    return [
        log.append(f"lamp/{name}", LampMade(), LampBroke(), command=f"break {name}").last_position
        for name in names
    ]


def kept(log: Ledger, name: str = "mourner") -> int:
    cursor = Positions(log).kept(name)
    return -1 if cursor is None else cursor.position
