"""
FASTA files, plain or gzipped: cut into parts of whole proteins in one pass, and read again part by part.

A part is a range of bytes of the unpacked file, with the digest of those bytes. So a later reader on any
machine can check that it reads what was cut. A gzipped file cannot be read from the middle: a part near the
end costs the unpacking of all before it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

GZIP: Final = b"\x1f\x8b"
MARK: Final = b"\xef\xbb\xbf"
"""A byte order mark, which some editors put before the first line."""


class BadFasta(ValueError):
    """The file is not FASTA, is damaged, or is not the one that was cut; the message names the place."""


@dataclass(frozen=True, slots=True)
class Protein:
    """A record of the file. nr: from 1, in the order of the file; letters are in upper case."""

    nr: int
    name: str
    sequence: str


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive proteins: `proteins` of them from number `first`, bytes start to end."""

    first: int
    proteins: int
    start: int
    end: int
    digest: str


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked where it is gzipped. Raises BadFasta where it is cut off or damaged, OSError."""
    with path.open("rb") as raw:
        zipped = raw.read(2) == GZIP
        raw.seek(0)
        try:
            with gzip.open(raw) if zipped else raw as file:
                yield file  # type: ignore[misc]  # a GzipFile reads as any other
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadFasta(f"{path} is cut off or damaged: {error}") from error


def cut(path: Path, size: int) -> tuple[str, list[Part]]:
    """The digest of the whole and its parts of `size` proteins, in one pass. Raises BadFasta, OSError."""
    whole, part = sha256(), sha256()
    parts: list[Part] = []
    first = count = start = at = 0
    with opened(path) as file:
        for line in file:
            if line.startswith(b">") or (at == 0 and line.startswith(MARK + b">")):
                if count == size:
                    parts.append(Part(first + 1, count, start, at, part.hexdigest()))
                    first, count, start, part = first + count, 0, at, sha256()
                count += 1
            elif count == 0 and line.strip():
                raise BadFasta(f"{path} is not a FASTA file: there is text before the first line with `>`")
            whole.update(line)
            part.update(line)
            at += len(line)
    if count:
        parts.append(Part(first + 1, count, start, at, part.hexdigest()))
    return whole.hexdigest(), parts


def read(path: Path, part: Part) -> list[Protein]:
    """The proteins of a part. Raises BadFasta where the file has changed since it was cut, OSError."""
    with opened(path) as file:
        file.seek(part.start)
        text = file.read(part.end - part.start)
    if sha256(text).hexdigest() != part.digest:
        raise BadFasta(f"{path} has changed since it was cut: bytes {part.start} to {part.end} differ")
    return list(parsed(text, part.first))


def parsed(text: bytes, first: int = 1) -> Iterator[Protein]:
    """The proteins of a text that begins with `>`."""
    for nr, record in enumerate((b"\n" + text.removeprefix(MARK).lstrip()).split(b"\n>")[1:], first):
        head, _, lines = record.partition(b"\n")
        name = (head.split() or [b""])[0].decode("ascii", "backslashreplace").replace("\0", "")
        letters = b"".join(lines.split()).decode("ascii", "backslashreplace").upper()
        yield Protein(nr, name or f"protein-{nr}", letters.rstrip("*"))
