"""
Frames between worker and child on a pair of sockets, with outcomes as JSON.

A frame is the key of the pair (8 random bytes), the length of the body (4 bytes), and the body. Bytes that an
operation writes there by accident do not begin with the key and are detected at once. The worker never
unpickles what a child sends and never waits for it: it reads what is there, up to MAX_LENGTH bytes a frame.
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

from ledger import BadBody
from ledger.domain import canonical_json

from ..messages import (
    AlreadyRecorded,
    Deferred,
    Failed,
    Outcome,
    Prepared,
    RetryLater,
    Stopped,
    Succeeded,
    Task,
    UnknownHere,
)

KEY: Final = 8
"""Bytes of a key."""
HEAD: Final = KEY + 4
MAX_LENGTH: Final = 64 * 2**20
"""Maximum bytes of a body."""
READ_SIZE: Final = 2**18
"""Bytes that are read at once."""
KINDS: Final[dict[str, type[Outcome]]] = {
    kind.__name__: kind
    for kind in (Succeeded, Deferred, RetryLater, Failed, AlreadyRecorded, Stopped, UnknownHere)
}

_NAMES: Final = {kind: tuple(one.name for one in fields(kind)) for kind in KINDS.values()}
_TASK: Final = tuple(one.name for one in fields(Task))


class BadFrame(Exception):
    """The bytes are not a frame of the child."""


class FrameSocket(socket.socket):
    """The worker's end, which no child can block; fit for `wait` of multiprocessing."""

    def __init__(self, end: socket.socket, key: bytes) -> None:
        super().__init__(fileno=end.detach())
        self.key = key
        self._buffer = bytearray()
        self.setblocking(False)

    def poll(self, seconds: float = 0.0) -> bool:
        """Whether there is something to read, or it ended."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def send_frame(self, body: bytes, seconds: float) -> None:
        """Send a frame. Raises OSError if it is not read within so many seconds."""
        left = memoryview(frame(self.key, body))
        deadline = time.monotonic() + seconds
        while left:
            try:
                left = left[super().send(left) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self, select.POLLOUT)
                if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError(f"the frame was not read within {seconds:g} seconds") from None

    def read_frame(self) -> bytes | None:
        """The body of the next frame; None while it is incomplete. Raises EOFError, OSError, BadFrame.

        Nothing beyond it is read: the next frame makes this readable again.
        """
        try:
            while (missing := self._missing()) > 0:
                piece = self.recv(min(missing, READ_SIZE))
                if not piece:
                    raise EOFError
                self._buffer += piece
                if not self.key.startswith(self._buffer[:KEY]):
                    raise BadFrame
        except BlockingIOError:
            return None
        body = bytes(self._buffer[HEAD:])
        self._buffer.clear()
        return body

    def _missing(self) -> int:
        """How many bytes are missing: of the head, then of the body."""
        if len(self._buffer) < HEAD:
            return HEAD - len(self._buffer)
        length = int.from_bytes(self._buffer[KEY:HEAD], "big")
        if length > MAX_LENGTH:
            raise BadFrame
        return HEAD + length - len(self._buffer)


def frame(key: bytes, body: bytes) -> bytes:
    """The bytes of a frame."""
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
    data = os.read(fd, min(size, READ_SIZE)) if size else b""
    if size and not data:
        raise EOFError
    if len(data) == size:
        return data
    whole = bytearray(data)
    while len(whole) < size:
        piece = os.read(fd, min(size - len(whole), READ_SIZE))
        if not piece:
            raise EOFError
        whole += piece
    return bytes(whole)


def encode(outcome: Outcome) -> bytes:
    """An outcome as JSON that PostgreSQL can store. Raises BadBody, and whatever its mappings raise."""
    names = _NAMES[type(outcome)]
    found = {name: getattr(outcome, name) for name in names}
    found["jobs"], found["kind"] = [_prepared(job) for job in outcome.jobs], type(outcome).__name__
    text = canonical_json.body(found).encode()
    if len(text) > MAX_LENGTH // 2:
        raise BadBody(f"the outcome has {len(text)} bytes, more than {MAX_LENGTH // 2}")
    return text


def pack(task: Task) -> bytes:
    """A task as bytes: a pickle, since the child trusts its worker."""
    return pickle.dumps([getattr(task, name) for name in _TASK])


def unpack(body: bytes) -> Task:
    """The task in the bytes of `pack`."""
    return Task(*pickle.loads(body))


def answer(text: bytes, *, last: bool) -> bytes:
    """The body of an answer. last: the child runs nothing after it and must be replaced."""
    return (b"!" if last else b".") + text


def decode(body: bytes) -> tuple[Outcome, bool]:
    """The outcome in an answer, and whether the child must be replaced. Raises BadFrame."""
    try:
        found = json.loads(body[1:])
        kind = KINDS[found.pop("kind")]
        found["jobs"] = tuple(_job(job) for job in found["jobs"])
        if found.get("then") is not None:
            found["then"] = tuple(found["then"])
        return kind(**found), body[:1] == b"!"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFrame(str(error)) from error


def _prepared(job: Prepared) -> dict[str, Any]:
    """Times are JSON text under `times`, so that they are times again."""
    times = {name: value for name, value in job.fields.items() if isinstance(value, datetime)}
    given = {
        name: str(value) if isinstance(value, UUID) else value
        for name, value in job.fields.items()
        if name not in times
    }
    found = {"id": job.id, "operation": job.operation, "payload": job.payload, "fields": given}
    return {**found, "times": {name: value.isoformat() for name, value in times.items()}}


def _job(found: Mapping[str, Any]) -> Prepared:
    times = {name: datetime.fromisoformat(text) for name, text in found["times"].items()}
    return Prepared(found["id"], found["operation"], found["payload"], {**found["fields"], **times})
