"""A few requests of Kafka's protocol on a socket of our own, where the client tells too little."""

from __future__ import annotations

import socket
import struct
from typing import Final

_DESCRIBE_CLUSTER: Final = (60, 2)
"""The first version that tells which brokers are fenced (KIP-1073)."""
LARGEST: Final = 1 << 24
"""Bytes of an answer; a greater number is another protocol."""


class Wire:
    """Requests and answers on one connection."""

    def __init__(self, connection: socket.socket, place: str) -> None:
        self.connection, self.place = connection, place

    def ask(self, request: tuple[int, int], body: bytes, *, flexible: bool = False) -> Answer:
        """The answer. request: its key and version. flexible: whether this version has tagged fields.

        Raises OSError if the connection ends instead, TimeoutError.
        """
        header = struct.pack(">hhi", *request, 1) + encoded("pledger") + (b"\0" if flexible else b"")
        self.connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", self._take(4))
        if not 4 <= size <= LARGEST:
            raise ConnectionError("this is not Kafka's protocol")
        return Answer(self._take(size)[5 if flexible else 4 :])

    def _take(self, many: int) -> bytes:
        taken = b""
        while len(taken) < many:
            part = self.connection.recv(many - len(taken))
            if not part:
                raise ConnectionError("closed")
            taken += part
        return taken


class Answer:
    """The parts of an answer, read in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, size: int) -> int:
        """An integer of so many bytes."""
        return int.from_bytes(self._part(size), "big", signed=True)

    def text(self) -> str | None:
        """A text; None if it is null."""
        size = self.number(2)
        return None if size < 0 else self._part(size).decode(errors="replace")

    def texts(self) -> list[str]:
        """A list of texts."""
        return [self.text() or "" for _ in range(self.number(4))]

    def data(self) -> bytes:
        """Bytes."""
        return self._part(max(0, self.number(4)))

    def length(self) -> int:
        """The length of a compact text or list; -1 if it is null."""
        size, shift = 0, 0
        while True:
            byte = self._part(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return size - 1

    def compact_text(self) -> str | None:
        """A text of a flexible version; None if it is null."""
        size = self.length()
        return None if size < 0 else self._part(size).decode(errors="replace")

    def _part(self, size: int) -> bytes:
        if size > len(self._data):
            raise ConnectionError("the answer is too short")
        found, self._data = self._data[:size], self._data[size:]
        return found


def encoded(text: str) -> bytes:
    """A text as requests have it."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def members(address: tuple[str, int], patience: float) -> set[int]:
    """The ids of the brokers that are not fenced, as the broker at this address says. Raises OSError."""
    with socket.create_connection(address, patience) as connection:
        # No authorized operations; of the brokers, not the controllers; also those that are fenced.
        answer = Wire(connection, "").ask(_DESCRIBE_CLUSTER, b"\0\x01\x01\0", flexible=True)
    answer.number(4)  # the time of throttling
    if answer.number(2):
        return set()
    for skipped in (answer.compact_text, lambda: answer.number(1), answer.compact_text):
        skipped()  # the error's message, the kind of brokers, the cluster's id
    answer.number(4)  # the controller
    found = set()
    for _ in range(answer.length()):
        broker = answer.number(4)
        answer.compact_text(), answer.number(4), answer.compact_text()  # host, port, rack
        if not answer.number(1):
            found.add(broker)
        answer.number(1)  # no tagged fields
    return found
