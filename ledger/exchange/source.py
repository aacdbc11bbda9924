"""The file that an import reads: its bytes, events, faults and times."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from ..domain.topics import TopicStatus
from ..errors import BadFile, BadInput

Place = tuple[str | int, ...]
"""A place in a file: ("trace", 5, "line", 88)."""
MAX_PLACES: Final = 20
"""How many places are kept; further ones are only counted."""


def shown(place: Place) -> str:
    """A place for people: `trace 5, line 88`."""
    return ", ".join(f"{place[i]} {place[i + 1]}" for i in range(0, len(place), 2))


class Faults:
    """The faults of one file, each kept in the ledger as it was found.

    count: how many. places: the first of them, each `place: what is wrong`.
    """

    def __init__(self, *, strict: bool = False) -> None:
        """strict: refuse the first fault instead."""
        self.count = 0
        self.places: list[str] = []
        self._strict = strict

    def tell(self, place: Place, wrong: str) -> None:
        """Count a fault. Raises BadInput where the reading is strict."""
        if self._strict:
            raise BadInput(wrong)
        self.count += 1
        if len(self.places) < MAX_PLACES:
            self.places.append(f"{shown(place)}: {wrong}")


STDIN: Final = "-"


class Arrival(NamedTuple):
    """One event of a file, to be recorded.

    version: its place in its stream, None for the next one. fields: of Meta, as JSON values. status: the new
    status of the stream's head, None to keep it. trace: its number in an XES log, else 0. command: its own
    command id, if its row has an id.
    """

    place: Place
    stream: str
    version: int | None
    topic: str
    schema: int
    data: str | None
    raw: bytes | None
    fields: Mapping[str, Any]
    status: str | None = None
    trace: int = 0
    command: str | None = None


class Format(Protocol):
    """A way to read a file.

    statuses: those of topics; it grows while the file is read. insists: whether a ledger with other announced
    statuses is refused, or left as it is. faults: what the format does not allow.
    """

    statuses: dict[str, TopicStatus]
    insists: bool

    @property
    def faults(self) -> Faults:
        """The faults of the file that was read last."""
        ...

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in file order. Raises BadFile."""
        ...


class Source:
    """A file that is read once, from its beginning; `with Source.of(path) as source: …`."""

    def __init__(self, name: str, file: BinaryIO, size: int | None) -> None:
        """size: bytes of the file, None if unknown."""
        self.name, self.size = name, size
        self._file = file
        packed: Any = io.BufferedReader(_Raw(file), 1 << 16)
        is_packed = packed.peek(2)[:2] == b"\x1f\x8b"
        self.unpacked: io.BufferedReader[Any] = (
            io.BufferedReader(gzip.GzipFile(fileobj=packed), 1 << 16) if is_packed else packed
        )

    @classmethod
    @contextmanager
    def of(cls, path: str | Path) -> Iterator[Source]:
        """The file at a path, `-` for stdin. Raises BadFile if it cannot be read."""
        if str(path) == STDIN:
            yield cls("stdin", sys.stdin.buffer, None)
            return
        name = Path(path).name
        try:
            file = Path(path).open("rb")  # noqa: SIM115  it is closed below
        except OSError as error:
            raise BadFile(str(path), "", f"it cannot be read: {error.strerror or error}") from error
        with file:
            size = Path(path).stat().st_size
            with cls.told(name):
                source = cls(name, file, size)
            yield source

    @property
    def own_name(self) -> str | None:
        """The name of the file without `.gz`; None for stdin, which has none."""
        return None if self.size is None else self.name.removesuffix(".gz")

    @property
    def done(self) -> int:
        """Bytes of the file that were read so far, before decompression."""
        return self._file.tell() if self.size is not None else 0

    @staticmethod
    @contextmanager
    def told(name: str) -> Iterator[None]:
        """Raise BadFile for errors of reading a damaged file."""
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadFile(
                name, "", f"its gzip data is damaged or truncated ({error}); fetch it again"
            ) from error
        except OSError as error:
            raise BadFile(name, "", f"it cannot be read: {error.strerror or error}") from error


class _Raw(io.RawIOBase):
    """A file without a buffer of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self._inner = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def aware(text: str, zone: tzinfo | None, what: str) -> datetime:
    """The time in an ISO 8601 text. Raises BadInput if it is none, or if its zone is unknown."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput(f"{what} {text[:60]!r} is not a time: write it as 2030-01-31T14:00:00+01:00") from None
    if at.utcoffset() is None:
        if zone is None:
            raise BadInput(
                f"{what} {text!r} has no offset from UTC: add it (2030-01-31T14:00:00+01:00), or give the "
                "time zone (--time-zone Europe/Zurich)"
            )
        at = at.replace(tzinfo=zone)
    return at


def claimed(at: datetime) -> str:
    """A time as metadata holds it, in UTC. Raises BadInput if it is out of range in UTC."""
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError:
        raise BadInput(f"{at.isoformat()} is outside the range of times that can be stored") from None
