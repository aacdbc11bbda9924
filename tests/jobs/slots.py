"""A slot in tests: runs an operation to its outcome, with a deadline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from consumers.jobs.messages import Failed, Outcome, Stopped, Succeeded, Task
from consumers.jobs.sandbox.slot import Slot

PLACE = "tests.jobs.hostile:registry"
PATIENCE = 60.0


_tokens = count(2)


def task(operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Task:
    """A task of a job that nobody recorded, with a token that no other has."""
    token = next(_tokens)
    return Task("job/1", token, token, operation, json.dumps(payload or {}), "1", 1, **fields)


def until(what: Callable[[], Any], why: str, seconds: float = PATIENCE) -> Any:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.002)
    return found


def ready(slot: Slot) -> Slot:
    """Wait until it can be given a task."""

    def heard() -> bool:
        if not slot.free:
            wait([slot.pipe], 0.1)
            slot.read_outcome()
        return slot.free

    until(heard, "the slot does not become free")
    return slot


def outcome(slot: Slot) -> Outcome:
    """What comes of the task that it runs; killed at its timeout, as a worker does."""

    def came() -> Outcome | None:
        if slot.overdue():
            slot.kill()
        wait([slot.pipe], 0.01)
        return slot.read_outcome() if slot.pipe.poll() else None

    found: Outcome = until(came, "no outcome came")
    return found


def run(slot: Slot, operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Outcome:
    """Run an operation in a slot."""
    ready(slot).run(task(operation, payload, **fields))
    return outcome(slot)


def failure(slot: Slot, operation: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Failed:
    """Run an operation that fails."""
    found = run(slot, operation, payload, **fields)
    assert isinstance(found, Failed), found
    return found


def success(slot: Slot, operation: str, payload: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Run an operation that succeeds: its result."""
    found = run(slot, operation, payload)
    assert isinstance(found, Succeeded), found
    return found.result


def stopped(slot: Slot) -> str:
    """Why the task that it runs has stopped."""
    found = outcome(slot)
    assert isinstance(found, Stopped), found
    return found.reason


def lives(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False
