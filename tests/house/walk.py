"""What one call touches: `python3 dev.py walk` prints the files, functions and calls of common calls.

Each walk runs three times to warm up, then once traced. Only the product's own code counts: a call is a
Python function of one of the wings that is entered, a switch is a call that leads into another file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg

import ledger
from ledger import Body, Ledger
from ledger.embedded import throwaway
from ledger.jobs import Jobs
from ledger.log.install import init
from ledger.machines import From, Machine, State
from ledger.pipelines import LSMStateService, LSMStripId
from tests.house.rules import ROOT, WINGS

WARM = 3


@dataclass
class Walk:
    """What one traced call touched; `steps` are its calls in order, as FILE:FUNCTION."""

    files: int = 0
    functions: int = 0
    calls: int = 0
    switches: int = 0
    steps: list[str] = field(default_factory=list)


class Tracer:
    """Counts calls of the product's own functions while it is on."""

    def __init__(self) -> None:
        self.walk = Walk()
        self._files: set[str] = set()
        self._stack: list[str | None] = []
        self._ours: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            name = self._name(frame.f_code)
            caller = next((one for one in reversed(self._stack) if one is not None), name)
            self._stack.append(name)
            if name is not None:
                self.walk.switches += name != caller
                self._files.add(name)
                self.walk.calls += 1
                self.walk.steps.append(f"{name}:{frame.f_code.co_qualname}")
        elif event == "return" and self._stack:
            self._stack.pop()

    def _name(self, code: CodeType) -> str | None:
        if code not in self._ours:
            path = Path(code.co_filename)
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in WINGS
            self._ours[code] = path.relative_to(ROOT).as_posix() if inside else None
        return self._ours[code]

    def end(self) -> Walk:
        self.walk.files, self.walk.functions = len(self._files), len(set(self.walk.steps))
        return self.walk


def traced(call: Callable[[], object]) -> Walk:
    """The walk of one call."""
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        call()
    finally:
        sys.setprofile(None)
    return tracer.end()


class Ticket(Machine, name="walked_ticket"):
    """A machine without guards or callbacks."""

    OPEN = State("open", initial=True)
    CLOSED = State("closed")
    table = (From(OPEN).To(CLOSED),)


def walks(log: Ledger) -> Iterator[tuple[str, Callable[[], object]]]:
    """The calls that are walked, by name."""
    numbers = iter(range(1_000_000))
    service, jobs = LSMStateService(log), Jobs(log)

    for number in range(WARM + 1):
        with service.open_strip(LSMStripId("walked", 1, 1, number)) as strip:
            strip.mark_started()
    strips = iter(range(WARM + 1))

    def complete() -> None:
        with service.open_strip(LSMStripId("walked", 1, 1, next(strips))) as strip:
            strip.mark_completed()

    def move() -> None:
        ticket = Ticket(log, next(numbers))
        ticket.move("closed")

    yield "open_strip … mark_completed", complete
    yield "read_project", lambda: service.read_project("walked")
    yield "jobs.submit", lambda: jobs.submit("walked.operation", {"number": next(numbers)})
    yield "a machine's move", move
    yield "log.append(stream, body)", lambda: log.append("walked/1", Body("walked.happened", 1, "{}"))


@contextmanager
def ledger_to_walk() -> Iterator[Ledger]:
    """A ledger of its own, thrown away at the end."""
    with throwaway() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            init(connection)
        with ledger.connect(server.dsn(), actor="walker") as log:
            yield log


def measured() -> dict[str, Walk]:
    """Every walk, warm."""
    found = {}
    with ledger_to_walk() as log:
        for name, call in walks(log):
            for _ in range(WARM):
                call()
            found[name] = traced(call)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py walk", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--steps", action="store_true", help="print each call too")
    options = parser.parse_args()
    found = measured()
    if options.json:
        print(json.dumps({name: asdict(walk) for name, walk in found.items()}))
        return 0
    print(f"{'walk':30} {'files':>6} {'functions':>10} {'calls':>6} {'switches':>9}")
    for name, walk in found.items():
        print(f"{name:30} {walk.files:6} {walk.functions:10} {walk.calls:6} {walk.switches:9}")
        if options.steps:
            print("".join(f"    {step}\n" for step in walk.steps), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
