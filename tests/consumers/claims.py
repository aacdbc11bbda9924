"""For tests: a machine with timeouts, and runners in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from consumers.timeouts import TimeoutCounts, Timeouts
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.machines import From, Machine, State, Transition, after, guard

SOON, LONG = timedelta(milliseconds=20), timedelta(hours=1)
DOORS: dict[str, Callable[[], object]] = {}
"""What happens while a claim is asked whether it may be late."""


class Claim(Machine, name="timed_claim"):
    """open → held → late | lost by themselves, or done; late → closed by itself."""

    OPEN = State("open", initial=True)
    HELD = State("held")
    LATE = State("late")
    LOST = State("lost")
    DONE = State("done")
    CLOSED = State("closed")
    table = (
        From(OPEN).To(HELD, CLOSED),
        From(HELD).To(DONE, OPEN),
        From(HELD).To(LOST, after=2 * SOON),
        From(HELD).To(LATE, after=SOON),
        From(LATE).To(CLOSED, after=LONG),
    )

    @guard(to=LATE)
    def may_be_late(claim: Any, last: Transition | None, metadata: Mapping[str, Any]) -> bool:
        """Not those that are named so."""
        DOORS.get(claim, lambda: None)()
        return not claim.startswith("never late")

    @guard(to=LOST)
    def may_be_lost(claim: Any, last: Transition | None, metadata: Mapping[str, Any]) -> bool:
        """Not those that are named so."""
        return not claim.endswith("never lost")

    @after(to=LATE)
    def tell(claim: Any, transition: Transition) -> None:
        """Some cannot be told."""
        if claim.startswith("deaf"):
            raise LookupError("it does not hear")


class Reason(BaseModel):
    """Why."""

    why: str


def machine(name: str, **ways: Any) -> type[Machine]:
    """A machine whose one transition is due by itself, as is told."""
    kind: type[Machine] = type(
        "Made",
        (Machine,),
        {"A": State("a", initial=True), "B": State("b")},
        **({"name": name} if name else {}),
    )
    kind.transition("a", "b", **ways)
    KNOWN.machines.pop(name, None)  # it is this test's alone
    return kind


def hold(log: Ledger, *claims: str) -> None:
    """Let claims be held, for longer than SOON."""
    for claim in claims:
        Claim(log, claim).move("held")
    if claims:
        time.sleep(SOON.total_seconds() * 1.1)


def state(log: Ledger, claim: str) -> str | None:
    return Claim(log, claim).current_state()


@contextmanager
def running(runner: Timeouts, told: Callable[[TimeoutCounts], None] = lambda figures: None) -> Iterator[None]:
    """A runner in a thread."""
    stop, failed = threading.Event(), []

    def run() -> None:
        try:
            runner.run(stop, told)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not failed


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
