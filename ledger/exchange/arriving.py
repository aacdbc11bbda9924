"""What comes in: a file being read, and the events that it says."""

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

from ..errors import BadFile, BadInput
from ..store.declaring import Move

STDIN: Final = "-"
Place = tuple[str | int, ...]
"""Where something stands in a file: ("trace", 5, "line", 88)."""


class Arrival(NamedTuple):
    """One event of a file, as it shall be recorded.

    version: its place in its stream, None for whatever comes next. fields: of Meta, as JSON holds them.
    status: what its stream's head will say, None leaves it. trace: its number in an XES log, else 0.
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


class Format(Protocol):
    """A way to read a file.

    options: what of its settings decides on what is recorded. moves: what the topics lead to; it grows while
    the file is read. insists: whether a ledger that was told otherwise is refused, or left as it is.
    """

    options: tuple[str, ...]
    moves: dict[str, Move]
    insists: bool

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in its order. Raises BadFile."""
        ...


class Source:
    """A file that is read once, from its beginning; `with Source.of(path) as source: …`."""

    def __init__(self, name: str, file: BinaryIO, size: int | None) -> None:
        """size: bytes of the file, None where that is not known."""
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
        """The file at a path, `-` for stdin. Raises BadFile where it cannot be read."""
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
    def done(self) -> int:
        """Bytes of the file that were read so far, as they lie there."""
        return self._file.tell() if self.size is not None else 0

    @staticmethod
    @contextmanager
    def told(name: str) -> Iterator[None]:
        """Raise BadFile for what reading raises where a file is damaged."""
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadFile(
                name, "", f"its gzip data are damaged or cut off ({error}); fetch it again"
            ) from error
        except OSError as error:
            raise BadFile(name, "", f"it cannot be read: {error.strerror or error}") from error


class _Raw(io.RawIOBase):
    """A file without its own buffer in our way."""

    def __init__(self, file: BinaryIO) -> None:
        self._inner = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def shown(place: Place) -> str:
    """A place for people: `trace 5, line 88`."""
    return ", ".join(f"{place[i]} {place[i + 1]}" for i in range(0, len(place), 2))


def aware(text: str, zone: tzinfo | None, what: str) -> datetime:
    """The time in an ISO 8601 text. Raises BadInput where it is none, or nobody says of which zone it is."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput(f"{what} {text[:60]!r} is no time: write it as 2030-01-31T14:00:00+01:00") from None
    if at.utcoffset() is None:
        if zone is None:
            raise BadInput(
                f"{what} {text!r} does not say its offset from UTC: write it so (2030-01-31T14:00:00+01:00), "
                "or name the time zone (--time-zone Europe/Zurich)"
            )
        at = at.replace(tzinfo=zone)
    return at


def claimed(at: datetime) -> str:
    """A time as meta holds it, in UTC. Raises BadInput for one that UTC does not reach."""
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError:
        raise BadInput(f"{at.isoformat()} is beyond the times that can be kept") from None
