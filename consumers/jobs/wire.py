"""
How worker and child speak: frames on a pair of sockets, outcomes in them as JSON.

A frame is the key of this pair (8 random bytes), the length of the body (4 bytes), and the body. What an
operation writes there by chance does not begin with the key, and is seen at once. The worker never unpickles
and never waits for what a child sends: it takes what is there, up to LONGEST bytes a frame.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from ledger import BadBody, canon

from .messages import Broken, Deferred, Outcome, Prepared, PutOff, Recorded, Stopped, Succeeded, Task

KEY: Final = 8
"""Bytes of a key."""
HEAD: Final = KEY + 4
LONGEST: Final = 64 * 2**20
"""Bytes of a body, at most."""
PIECE: Final = 2**18
"""Bytes that are read at once."""
KINDS: Final[dict[str, type[Outcome]]] = {
    kind.__name__: kind for kind in (Succeeded, Deferred, PutOff, Broken, Recorded, Stopped)
}

_NAMES: Final = {kind: tuple(one.name for one in fields(kind)) for kind in KINDS.values()}
_TASK: Final = tuple(one.name for one in fields(Task))


class Garbled(Exception):
    """What came was no frame of the child's."""


class Line(socket.socket):
    """The worker's end: nothing that the child does makes it wait. `wait` of multiprocessing takes it."""

    def __init__(self, ours: socket.socket, key: bytes) -> None:
        super().__init__(fileno=ours.detach())
        self.key = key
        self._came = bytearray()
        self.setblocking(False)

    def poll(self, seconds: float = 0.0) -> bool:
        """Whether something came, or it ended."""
        asked = select.poll()
        asked.register(self, select.POLLIN)
        return bool(asked.poll(seconds * 1000))

    def give(self, body: bytes, seconds: float) -> None:
        """Send a frame. Raises OSError where nobody takes it within so many seconds."""
        left = memoryview(frame(self.key, body))
        deadline = time.monotonic() + seconds
        while left:
            try:
                left = left[super().send(left) :]
            except BlockingIOError:
                asked = select.poll()
                asked.register(self, select.POLLOUT)
                if not asked.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError(f"nobody took it within {seconds:g} seconds") from None

    def take(self) -> bytes | None:
        """The body of the next frame; None while it is not there. Raises EOFError, OSError, Garbled.

        Nothing beyond it is read: what comes next makes this readable again.
        """
        try:
            while (missing := self._missing()) > 0:
                piece = self.recv(min(missing, PIECE))
                if not piece:
                    raise EOFError
                self._came += piece
                if not self.key.startswith(self._came[:KEY]):
                    raise Garbled
        except BlockingIOError:
            return None
        body = bytes(self._came[HEAD:])
        self._came.clear()
        return body

    def _missing(self) -> int:
        """How many bytes to read before anything can be said: those of the head, then those of the body."""
        if len(self._came) < HEAD:
            return HEAD - len(self._came)
        length = int.from_bytes(self._came[KEY:HEAD], "big")
        if length > LONGEST:
            raise Garbled
        return HEAD + length - len(self._came)


def frame(key: bytes, body: bytes) -> bytes:
    """A body as it is sent."""
    return key + len(body).to_bytes(4, "big") + body


def read_frame(fd: int) -> bytes:
    """The body of the next frame, waited for. Raises EOFError, OSError."""
    head = _exactly(fd, HEAD)
    return _exactly(fd, int.from_bytes(head[KEY:], "big"))


def write_all(fd: int, data: bytes) -> None:
    """Write all of it. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _exactly(fd: int, size: int) -> bytes:
    data = os.read(fd, min(size, PIECE)) if size else b""
    if size and not data:
        raise EOFError
    if len(data) == size:
        return data
    whole = bytearray(data)
    while len(whole) < size:
        piece = os.read(fd, min(size - len(whole), PIECE))
        if not piece:
            raise EOFError
        whole += piece
    return bytes(whole)


def encode(outcome: Outcome) -> bytes:
    """An outcome as JSON that PostgreSQL can store. Raises BadBody, and whatever its mappings raise."""
    names = _NAMES[type(outcome)]
    said = {name: getattr(outcome, name) for name in names}
    said["jobs"], said["kind"] = [_prepared(job) for job in outcome.jobs], type(outcome).__name__
    text = canon.body(said).encode()
    if len(text) > LONGEST // 2:
        raise BadBody(f"what came of it has {len(text)} bytes, more than {LONGEST // 2}")
    return text


def pack(task: Task) -> bytes:
    """A task, for a child that trusts its worker."""
    return pickle.dumps([getattr(task, name) for name in _TASK])


def unpack(body: bytes) -> Task:
    """What `pack` packed."""
    return Task(*pickle.loads(body))


def answer(text: bytes, *, last: bool) -> bytes:
    """The body of an answer. last: the child runs nothing after it, and is to be replaced."""
    return (b"!" if last else b".") + text


def decode(body: bytes) -> tuple[Outcome, bool]:
    """The outcome in an answer, and whether the child is to be replaced. Raises Garbled."""
    try:
        said = json.loads(body[1:])
        kind = KINDS[said.pop("kind")]
        said["jobs"] = tuple(_job(job) for job in said["jobs"])
        if said.get("then") is not None:
            said["then"] = tuple(said["then"])
        return kind(**said), body[:1] == b"!"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Garbled(str(error)) from error


def _prepared(job: Prepared) -> dict[str, Any]:
    """Times are JSON text under `times`, so that they are times again."""
    times = {name: value for name, value in job.fields.items() if isinstance(value, datetime)}
    given = {
        name: str(value) if isinstance(value, UUID) else value
        for name, value in job.fields.items()
        if name not in times
    }
    said = {"id": job.id, "operation": job.operation, "payload": job.payload, "fields": given}
    return {**said, "times": {name: value.isoformat() for name, value in times.items()}}


def _job(said: Mapping[str, Any]) -> Prepared:
    times = {name: datetime.fromisoformat(text) for name, text in said["times"].items()}
    return Prepared(said["id"], said["operation"], said["payload"], {**said["fields"], **times})
