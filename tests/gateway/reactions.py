"""Reactors for the tests of `pledger react`, and what is none."""

from __future__ import annotations

from consumers import Answer, Reactor
from ledger import Ledger, Recorded
from tests.lamp import LampSwitchedOn


def echo(ledger: Ledger) -> Reactor:
    """Answers each reading of a lamp with a light of its own."""

    def react(event: Recorded) -> list[Answer]:
        return [Answer(f"echo/{event.position}", [LampSwitchedOn()])]

    return Reactor(ledger, "echo", react, topics={"lamp.read"})


def broken(ledger: Ledger) -> Reactor:
    """Fails on the first event."""

    def react(event: Recorded) -> list[Answer]:
        raise RuntimeError(f"no idea what to do at {event.position}")

    return Reactor(ledger, "broken", react, topics={"lamp.read"})


def clumsy(_ledger: Ledger) -> Reactor:
    raise RuntimeError("not made")


def nothing(_ledger: Ledger) -> str:
    return "no reactor"


NO_FUNCTION = 7
